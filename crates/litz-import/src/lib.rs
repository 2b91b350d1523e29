//! Readers of torch.export archives: from a .pt2 file to a verified graph.
