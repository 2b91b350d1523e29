//! Feeds libFuzzer's inputs to the target `run` of `litz-testing`.

#![no_main]

use litz_testing::fuzz::Target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| Target::Run.attempt(bytes));
