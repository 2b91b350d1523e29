//! The driver: pipeline, options, command line.
