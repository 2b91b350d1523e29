//! Reads any bytes as a `.pt2` file: the result is a verified graph or an error with a message, and never a panic.

#![no_main]

use litz_testing::fuzz::FuzzTarget;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| FuzzTarget::Archive.attempt(bytes));
