//! Feeds libFuzzer's inputs to the target `simplify` of `litz-testing`.

#![no_main]

use litz_testing::fuzz::FuzzTarget;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| FuzzTarget::Simplify.attempt(bytes));
