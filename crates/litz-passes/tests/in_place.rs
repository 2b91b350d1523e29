//! The pass `in_place`: what takes the memory of what, why other results do not, and that numbers stay.

mod common;

use common::{parse, run_pass};
use litz_analysis::Uses;
use litz_ir::loops::{InstOp, Loops, Nest};
use litz_passes::loops::in_place::rewrite;
use litz_passes::loops::renaming::{InPlaceNote, NotInPlace};
use litz_passes::loops::{PASSES, in_place, updates};

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

/// A change of one of several copies of an element is none of the others, whether the copies are of a row or of quotients.
#[test]
fn repeated_elements_are_copied() {
    let changed = |copies: &str| {
        let mut loops = lowered(&format!(
            "  %p: f32[2] = aten.neg.default(%v)
{copies}
  %z: f32[4] = aten.index_put.default(%e, [%i], %v, false)
  %a: f32[4] = aten.abs.default(%z)
  return %a",
        ));
        verdicts(&mut loops).remove(0).3
    };
    let upsampled = "  %c: f32[1, 1, 2] = aten.view.default(%p, [1, 1, 2])
  %u: f32[1, 1, 4] = aten.upsample_nearest1d.vec(%c, [4], none)
  %e: f32[4] = aten.view.default(%u, [4])";
    let expanded = "  %c: f32[2, 1] = aten.view.default(%p, [2, 1])
  %u: f32[2, 2]{1, 0} = aten.expand.default(%c, [2, 2])
  %k: f32[2, 2] = aten.clone.default(%u, none)
  %e: f32[4] = aten.view.default(%k, [4])";
    assert_eq!(changed(upsampled), Err(NotInPlace::RepeatedElements));
    assert_eq!(changed(expanded), Err(NotInPlace::RepeatedElements));
}

#[test]
fn nothing_is_considered_where_nothing_is_changed() {
    let file = include_str!("../../../filetests/loops/join/products.litz");
    let mut loops = parse(file.split("\n//|").next().unwrap_or(file));
    assert_eq!(verdicts(&mut loops), []);
}

/// IP-7 to IP-9: a base of which only a size is asked for is not read, through a view or not.
#[test]
fn sizes_of_a_base_are_not_its_elements() {
    let changed = "  %y: f32[8] = aten.neg.default(%x)
  %z: f32[8] = aten.index_put.default(%y, [%i], %v, false)\n";
    let view = "  %u: f32[2, 4] = aten.view.default(%y, [2, 4])\n";
    for (later, expected) in [
        ("  %s: int(8) = aten.sym_size.int(%y, 0)\n  return %z, %s".to_owned(), Ok(())),
        (format!("{view}  %s: int(4) = aten.sym_size.int(%u, 1)\n  return %z, %s"), Ok(())),
        (
            format!("{view}  %t: f32[2, 4] = aten.add.Tensor(%u, 1, 1)\n  return %z, %t"),
            Err(NotInPlace::StillRead),
        ),
    ] {
        let verdicts = verdicts(&mut lowered(&format!("{changed}{later}")));
        assert_eq!(verdicts, [("z".to_owned(), "y".to_owned(), 32, expected)], "{later}");
    }
}

/// Updates that are in place, and others.
fn updates_of(lines: &str) -> (usize, usize) {
    let mut loops = lowered(lines);
    run_pass(in_place::run, &mut loops);
    run_pass(updates::run, &mut loops);
    let there = loops.updates.iter().filter(|(to, from)| to == from).count();
    (there, loops.updates.len() - there)
}

/// IP-32, IP-33: each result of a list is decided by itself.
#[test]
fn results_of_lists_are_stored_where_they_are_wanted() {
    let sums = "  %p: f32[8] = input\n  %q: f32[8] = input\n  %r: f32[8] = input
  %a: f32[8], %b: f32[8], %c: f32[8] = aten._foreach_add.List([%p, %q, %r], [%x, %x, %x], 1)
  update %p = %a\n  update %q = %b\n";
    assert_eq!(updates_of(&format!("{sums}  update %r = %c\n  return none")), (3, 0));
    assert_eq!(updates_of(&format!("{sums}  return %c")), (2, 0));
}

/// IP-47: a pass has a place in the order that those which rename buffers allow.
#[test]
fn passes_that_rename_buffers_are_the_first_and_the_last() {
    let position = |name: &str| PASSES.iter().position(|pass| pass.name == name).expect("listed");
    assert_eq!(position("in_place"), 0);
    // Updates are renamed when no statement takes in another one any more; then only what nobody reads is removed.
    assert_eq!(position("updates"), PASSES.len() - 2);
    assert_eq!(position("dead"), PASSES.len() - 1);
}

/// Bytes of the buffers that are stored to when all passes have run.
fn stored_bytes(lines: &str) -> i64 {
    let mut loops = lowered(lines);
    for pass in PASSES {
        run_pass(|loops, cx| pass.apply(loops, cx), &mut loops);
    }
    let uses = Uses::of(&loops);
    let stored = loops.bufs.iter().filter(|(buf, _)| !uses.writers(*buf).is_empty());
    stored.map(|(_, data)| data.elements().as_int().expect("a number") * data.dtype.size() as i64).sum()
}

/// Bytes that all stores of one call write, when all passes have run.
fn written_bytes(lines: &str) -> i64 {
    let mut loops = lowered(lines);
    for pass in PASSES {
        run_pass(|loops, cx| pass.apply(loops, cx), &mut loops);
    }
    let of_nest = |nest: &Nest| {
        let points: i64 = nest.axes.iter().map(|axis| axis.extent.as_int().expect("a number")).product();
        let stores = nest.body.iter().filter(|inst| matches!(inst.op, InstOp::Store { .. }));
        points * stores.map(|inst| inst.ty.size() as i64).sum::<i64>()
    };
    loops.stmts.iter().flat_map(|stmt| stmt.nests()).map(of_nest).sum()
}

/// IP-44: a row that a call writes into a table of any height costs that row.
#[test]
fn a_row_of_a_table_is_all_that_is_written() {
    for rows in [8192, 65536] {
        let put = format!(
            "  %k: f32[{rows}, 64] = const \"k\"\n  %p: i64[1] = input\n  %r: f32[1, 64] = input
  %n: f32[1, 64] = aten.mul.Tensor(%r, 2)
  %z: f32[{rows}, 64] = aten.index_put.default(%k, [%p], %n, false)
  update %k = %z\n  return none"
        );
        // A row, and whether its position is inside of the table.
        assert_eq!(written_bytes(&put), 256 + 1, "{rows}");
    }
}

/// IP-45: rows that are computed one from the other and copied into a table cost the table twice: their own memory, and its.
#[test]
fn rows_of_a_table_are_written_once() {
    let mut lines = "  %t: f32[64, 4096] = input
  %y: f32[64, 4096] = aten.zeros.default([64, 4096], f32, none, cpu, false)
  %h0: f32[4096] = aten.zeros.default([4096], f32, none, cpu, false)\n"
        .to_owned();
    let mut table = "%y".to_owned();
    for k in 0..64 {
        let next = k + 1;
        lines += &format!(
            "  %t{k}: f32[4096] = aten.select.int(%t, 0, {k})
  %m{k}: f32[4096] = aten.mul.Tensor(%h{k}, 0.5)
  %h{next}: f32[4096] = aten.add.Tensor(%m{k}, %t{k}, 1)
  %y{k}: f32[64, 4096] = aten.select_scatter.default({table}, %h{next}, 0, {k})\n"
        );
        table = format!("%y{k}");
    }
    let written = written_bytes(&format!("{lines}  return {table}"));
    let filled = 64 * 4096 * 4;
    assert!(written <= filled + (2 << 20), "{written}");
}

/// IP-19, IP-20: a scatter into a slice that is scattered back stores the result, and the slice at most where it is one of something
/// else.
#[test]
fn slices_that_are_scattered_back_are_not_stored() {
    let element = "  %o: f32[] = input
  %s: f32[4] = aten.slice.Tensor(%x, 0, 1, 5, 1)
  %a: f32[4] = aten.select_scatter.default(%s, %o, 0, 2)
  %b: f32[8] = aten.slice_scatter.default(%x, %a, 0, 1, 5, 1)
  return %b";
    assert_eq!(stored_bytes(element), 32);
    let other = "  %y: f32[8] = input
  %s: f32[4] = aten.slice.Tensor(%y, 0, 1, 5, 1)
  %a: f32[4] = aten.slice_scatter.default(%s, %v, 0, 0, 2, 1)
  %b: f32[8] = aten.slice_scatter.default(%x, %a, 0, 1, 5, 1)
  return %b";
    assert!((32..=48).contains(&stored_bytes(other)), "{}", stored_bytes(other));
}
