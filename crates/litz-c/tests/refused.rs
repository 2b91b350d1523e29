//! Tries programs that do what C does not: each is refused, by name.

#![allow(missing_docs, reason = "a test")]

use litz_c::{Model, layout, write};
use litz_ir::text::program::parse;

/// Why a program is refused.
fn refused(text: &str) -> String {
    let program = parse(text).expect("the text parses");
    let layout = layout(&program).expect("its constants have sizes");
    let model = Model {
        name: "m",
        program: &program,
        kernels: &[],
        inputs: &[],
        outputs: &[],
        layout: &layout,
        weights_id: 0,
    };
    write(&model).expect_err("it is refused").to_string()
}

#[test]
fn operators_of_a_host_are_named() {
    let text = "program @p on cpu {\n  param x: f32[4]\n  alloc y: f32[4]\n  call mylib.foo.default(x as f32[4]) -> (y as f32[4])\n  return y: f32[4]\n}\n";
    assert_eq!(refused(text), "mylib.foo.default is an operator of a host, of which C has none");
}

#[test]
fn routines_that_are_not_there_are_named_with_their_line() {
    let text = "program @p on cpu {\n  param x: f32[4, 4]\n  alloc q: f32[16]\n  alloc t: f32[4]\n  extern eigen(x) -> (t, q) ints(1, 4) for \"model.py:3\"\n  return q: f32[4, 4]\n}\n";
    assert_eq!(refused(text), "there is no routine `eigen` in C (model.py:3)");
}

#[test]
fn memory_of_other_devices_is_named() {
    let text = "program @p on cuda:0 {\n  param x: f32[4]\n  return x: f32[4]\n}\n";
    assert_eq!(refused(text), "`x` is on cuda:0: C is for the CPU alone");
}

#[test]
fn tensors_of_too_many_dimensions_are_refused() {
    let ones = vec!["1"; 33].join(", ");
    let text = format!("program @p on cpu {{\n  param x: f32[{ones}]\n  return x: f32[{ones}]\n}}\n");
    assert_eq!(refused(&text), "a tensor of 33 dimensions: C has at most 32");
}
