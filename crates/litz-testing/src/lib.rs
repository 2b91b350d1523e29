//! Holds what tests, fuzz targets and tasks of the repository share: programs to try, and what is right about them.

pub mod archive;
pub mod cases;
pub mod contradictions;
pub mod elements;
pub mod hostile;
pub mod mutants;
pub mod choices;
pub mod compare;
pub mod devices;
pub mod elements;
pub mod models;
pub mod torch;
pub mod trial;
