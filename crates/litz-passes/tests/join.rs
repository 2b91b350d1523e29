//! The pass `join`: which copies go, and that results stay.

mod common;

use common::{outputs, parse, run_pass, verify};
use litz_ir::loops::{Loops, Stmt};
use litz_passes::loops::join;

const PRODUCTS: &str = include_str!("../../../filetests/loops/join/products.litz");
const OVERLAP: &str = include_str!("../../../filetests/loops/join/overlap.litz");

/// Runs the pass and compares what the program returns before and after.
#[track_caller]
fn joined(text: &str, sizes: &[(&str, i64)]) -> (Loops, usize) {
    let mut loops = parse(text);
    let count = run_pass(join::run, &mut loops);
    verify(&loops);
    assert!(outputs(&parse(text), sizes) == outputs(&loops, sizes), "{loops}");
    (loops, count)
}

/// The part of a filetest before what is expected.
fn input(file: &str) -> &str {
    file.split("\n//|").next().unwrap_or(file)
}

fn names(loops: &Loops) -> Vec<&str> {
    loops.stmts.iter().map(Stmt::name).collect()
}

/// SC-12: both products store into the result, and nothing is copied.
#[test]
fn products_side_by_side_are_not_copied() {
    for s0 in [1, 7, 64] {
        let (loops, count) = joined(input(PRODUCTS), &[("s0", s0)]);
        assert_eq!((count, names(&loops)), (2, vec!["mm1", "mm2", "zeros"]));
    }
}

#[test]
fn what_is_stored_or_read_in_between_keeps_the_copy() {
    let (loops, count) = joined(input(OVERLAP), &[]);
    assert_eq!(count, 0, "{loops}");
    // Rows that are apart from the zeros, known by numbers.
    let apart = input(OVERLAP).replace("i in 6, j in 8", "i in 4, j in 8");
    assert_eq!(joined(&apart, &[]).1, 1);
}

/// A program whose buffer `h` is copied into `y`, filled as `other` says, too.
fn program(y: &str, other: &str, results: &str) -> String {
    format!(
        "loops @p on cpu {{
           buf x: f32[4, 8] = input buf w: f32[4, 8] = const \"w\"
           buf h: f32[4, 8] buf g: f32[4, 8] {y}
           nest a from %h [i in 4, j in 8] {{ %0: f32 = load x[i, j] %1: f32 = exp %0 store h[i, j] = %1 }}
           {other}
           nest copy from %y [i in 4, j in 8] {{ %0: f32 = load h[i, j] store y[i, j] = %0 }}
           {results} }}"
    )
}

#[test]
fn only_what_nobody_else_needs_is_joined() {
    let plain = "buf y: f32[4, 8]";
    assert_eq!(joined(&program(plain, "", "return y"), &[]).1, 1);
    let reader =
        "nest b from %g [i in 4, j in 8] { %0: f32 = load h[i, j] %1: f32 = sin %0 store g[i, j] = %1 }";
    assert_eq!(joined(&program(plain, reader, "return y, g"), &[]).1, 0);
    assert_eq!(joined(&program(plain, "", "return y, h"), &[]).1, 0);
    // At load it is computed once, and copied at each call.
    let constant = program(plain, "", "return y").replace("load x", "load w");
    assert_eq!(joined(&constant, &[]).1, 0);
    // Columns of the target are far apart.
    let columns = program("buf y: f32[4, 8]{1, 4}", "", "return y");
    assert_eq!(joined(&columns, &[]).1, 0);
}

/// What a pointwise nest fills as well may stay in the kernel of who reads it.
#[test]
fn a_part_of_what_need_not_be_stored_is_copied() {
    let other =
        "nest b from %y [i in 4, j in 8] { %0: f32 = load x[i, j] %1: f32 = sin %0 store y[i + 4, j] = %1 }";
    let reader = "nest r from %g [i in 4, j in 8] { %0: f32 = load y[2*i, j] store g[i, j] = %0 }";
    let y = "buf y: f32[8, 8]";
    assert_eq!(joined(&program(y, other, &format!("{reader} return g")), &[]).1, 0);
    assert_eq!(joined(&program(y, other, "return y"), &[]).1, 1);
}
