//! Decides how loops run: fusion, tiling, order, placement.
