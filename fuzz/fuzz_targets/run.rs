//! Feeds libFuzzer's inputs to the target `run` of `litz-testing`.

#![no_main]

use litz_testing::fuzz::FuzzTarget;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| FuzzTarget::Run.attempt(bytes));
