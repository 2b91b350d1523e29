//! What several queues do with one memory is refused unless events, or the host, order it.

#![allow(missing_docs, reason = "a test")]

use litz_ir::{text, verify};

/// `x` is read, `y` written.
const KERNEL: &str = "kernel @k {
  read x: f32[8]
  write y: f32[8]
  grid p in 1
}
";

/// What is not in order in a program with these steps, by messages.
#[track_caller]
fn unordered(steps: &str) -> Vec<String> {
    let program = format!(
        "program @p on ref:0 {{ param x: f32[8] param n: f32[8] on cpu alloc a: f32[8] alloc b: f32[8]
         alloc c: f32[8] alloc far: f32[8] on ref:1 alloc h: f32[8] on cpu alloc pool: u8[64]
         view v: f32[8] = pool + 0 view w: f32[8] = pool + 32 {steps} return x: f32[8] }}"
    );
    let program = text::program::parse(&program).unwrap_or_else(|diags| panic!("{diags:?}"));
    let kernel = text::kernel::parse(KERNEL).unwrap_or_else(|diags| panic!("{diags:?}"));
    let diags = verify::program::verify_with(&program, &[kernel]);
    assert!(diags.iter().all(|diag| diag.slug == "unordered"), "{diags:?}");
    diags.into_iter().map(|diag| diag.message).collect()
}

#[test]
fn a_use_on_another_stream_waits_for_what_it_reads() {
    assert!(unordered("launch @k(x, a) launch @k(a, b)").is_empty());
    let found = unordered("launch @k(x, a) launch @k(a, b) stream 1");
    assert_eq!(found, ["launch of @k: nothing makes it wait for the launch of @k"]);
    let waits = "launch @k(x, a) record event 0 wait event 0 stream 1 launch @k(a, b) stream 1";
    assert!(unordered(waits).is_empty());
    // An event from before the launch does not help, nor does one that another stream waits for.
    let early = "record event 0 launch @k(x, a) wait event 0 stream 1 launch @k(a, b) stream 1";
    assert_eq!(unordered(early).len(), 1);
    let other = "launch @k(x, a) record event 0 wait event 0 stream 2 launch @k(a, b) stream 1";
    assert_eq!(unordered(other).len(), 1);
}

#[test]
fn waits_are_passed_on() {
    let chain = "launch @k(x, a) record event 0 wait event 0 stream 1 launch @k(a, b) stream 1
                 record event 1 stream 1 wait event 1 stream 2 launch @k(a, c) stream 2";
    assert!(unordered(chain).is_empty());
}

#[test]
fn what_is_overwritten_has_been_read() {
    let steps = "launch @k(x, a) record event 0 wait event 0 stream 1 launch @k(a, b) stream 1";
    assert_eq!(unordered(&format!("{steps} launch @k(x, a)")).len(), 1);
    assert!(unordered(&format!("{steps} record event 1 stream 1 wait event 1 launch @k(x, a)")).is_empty());
    // Two that read do not wait for each other.
    assert!(unordered("launch @k(x, a) launch @k(x, b) stream 1").is_empty());
}

#[test]
fn places_of_a_pool_that_meet_are_one_memory() {
    assert!(unordered("launch @k(x, v) launch @k(x, w) stream 1").is_empty());
    assert_eq!(unordered("launch @k(x, v) launch @k(x, v) stream 1").len(), 1);
}

#[test]
fn a_copy_between_devices_waits_and_is_waited_for() {
    assert_eq!(unordered("launch @k(x, a) copy a -> far on ref:1").len(), 1);
    let there = "launch @k(x, a) record event 0 wait event 0 on ref:1 copy a -> far on ref:1";
    assert!(unordered(there).is_empty());
    let back = "copy far -> b";
    assert_eq!(unordered(&format!("{there} {back}")).len(), 1);
    assert!(unordered(&format!("{there} record event 1 on ref:1 wait event 1 {back}")).is_empty());
}

#[test]
fn the_host_waits_for_all_that_is_enqueued() {
    let steps = "launch @k(x, a) extern fill() -> (h) launch @k(a, b) stream 1";
    assert!(unordered(steps).is_empty());
}
