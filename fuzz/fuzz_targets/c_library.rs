//! Calls functions of the library for C in any order, with arguments of any kind: each succeeds or says why not, and nothing leaks.

#![no_main]

use litz_testing::fuzz::FuzzTarget;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| FuzzTarget::CLibrary.attempt(bytes));
