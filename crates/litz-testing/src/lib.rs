//! Holds what tests, fuzz targets and tasks of the repository share: programs to try, and what is right about them.

pub mod ahead;
pub mod any_host;
pub mod archive;
pub mod cases;
pub mod choices;
pub mod compare;
pub mod contradictions;
pub mod devices;
pub mod elements;
pub mod filetest;
pub mod fuzz;
pub mod hostile;
pub mod kernels;
pub mod models;
pub mod mutants;
pub mod mutation;
pub mod plans;
pub mod subject;
pub mod torch;
pub mod trial;
