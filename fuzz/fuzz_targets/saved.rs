//! Reads any bytes as a saved program: the result is its texts or an error with a message, and never a panic.

#![no_main]

use litz_testing::fuzz::FuzzTarget;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| FuzzTarget::Saved.attempt(bytes));
