//! The pass `in_place`: what takes the memory of what, why other results do not, and that numbers stay.

mod common;

use common::parse;
use litz_ir::loops::Loops;
use litz_passes::loops::in_place::{InPlaceNote, NotInPlace, rewrite};

/// What became of each result: its name, that of its base, and the reason.
fn verdicts(loops: &mut Loops) -> Vec<(String, String, i64, Result<(), NotInPlace>)> {
    let told = |note: InPlaceNote| (note.result, note.base, note.bytes, note.verdict);
    rewrite(loops).into_iter().map(told).collect()
}

fn lowered(lines: &str) -> Loops {
    let text = format!(
        "graph @g on cpu {{\n  %x: f32[8] = input\n  %v: f32[2] = input\n  %i: i64[2] = input\n{lines}\n}}"
    );
    let graph = litz_ir::text::graph::parse(&text).unwrap_or_else(|diags| panic!("{}", diags[0]));
    litz_ops::lower(&graph).unwrap_or_else(|diags| panic!("{}", diags[0]))
}

/// IP-43: what was considered, side by side.
#[test]
fn every_refusal_has_a_name() {
    let mut loops = lowered(
        "  %y: f32[8] = aten.sin.default(%x)
  %z: f32[8] = aten.index_put.default(%y, [%i], %v, false)
  %w: f32[8] = aten.add.Tensor(%y, 1, 1)
  %n: f32[8] = aten.index_put.default(%x, [%i], %v, false)
  %e: f32[8] = aten.exp.default(%x)
  %s: f32[8] = aten.slice_scatter.default(%e, %v, 0, 1, 3, 1)
  %o: f32[8] = aten.index_put.default(%w, [%i], %v, false)
  return %z, %n, %s, %o",
    );
    let name = |result: &str, base: &str, verdict| (result.to_owned(), base.to_owned(), 32, verdict);
    let expected = [
        name("z", "y", Err(NotInPlace::StillRead)),
        name("n", "x", Err(NotInPlace::NotUpdated)),
        name("s", "e", Err(NotInPlace::FusesBetter)),
        name("o", "w", Ok(())),
    ];
    assert_eq!(verdicts(&mut loops), expected);
}

#[test]
fn updates_are_counted_once() {
    let mut loops = lowered(
        "  %z: f32[8] = aten.index_put.default(%x, [%i], %v, false)
  update %x = %z
  return %z",
    );
    assert_eq!(verdicts(&mut loops), [("z".to_owned(), "x".to_owned(), 32, Ok(()))]);
    assert_eq!(loops.updates.iter().filter(|(to, from)| to == from).count(), 1);
}

#[test]
fn an_update_that_reads_other_elements_is_copied() {
    let mut loops = lowered(
        "  %r: f32[8] = aten.flip.default(%x, [0])
  update %x = %r
  return",
    );
    let verdict = verdicts(&mut loops).remove(0).3;
    assert_eq!(verdict, Err(NotInPlace::OtherElements));
}

#[test]
fn nothing_is_considered_where_nothing_is_changed() {
    let file = include_str!("../../../filetests/loops/join/products.litz");
    let mut loops = parse(file.split("\n//|").next().unwrap_or(file));
    assert_eq!(verdicts(&mut loops), []);
}
