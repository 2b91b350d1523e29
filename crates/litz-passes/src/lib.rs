//! Rewrites: graph to graph, loops to loops.
