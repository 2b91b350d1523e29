//! Places in pools: buffers that live at once never share bytes, and pools are no larger than they need be.

use crate::{loops, outcome, target};
use litz_ir::loops::Loops;
use litz_ir::schedule::{Pool, ScheduleStep};
use litz_schedule::Heuristics;
use litz_sym::Expr;
use std::fmt::Write;

/// A small generator: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A program of `steps` calls, each of which writes a buffer and reads a few earlier ones. Calls never fuse, so that
/// lifetimes are those written here. `sizes` are drawn from.
fn chain(random: &mut Random, steps: u64, sizes: &[&str]) -> String {
    let mut bufs = "sym s0 in [1, 100] hint 10 buf x: f32[1] = input ".to_owned();
    let mut calls = String::new();
    for step in 0..steps {
        let size = sizes[random.below(sizes.len() as u64) as usize];
        write!(bufs, "buf b{step}: f32[{size}] ").expect("strings take all");
        let mut reads = vec!["x".to_owned()];
        for _ in 0..random.below(3) {
            let read = format!("b{}", random.below(step.max(1)));
            if step > 0 && !reads.contains(&read) {
                reads.push(read);
            }
        }
        write!(calls, "extern e{step} = sort({}) -> (b{step}) ", reads.join(", ")).expect("strings take all");
    }
    format!("{bufs} {calls} return b{}, b{}", steps - 1, steps / 2)
}

/// First and last step that uses the buffer.
fn life(loops: &Loops, steps: &[ScheduleStep], name: &str) -> (usize, usize) {
    let uses = |step: &ScheduleStep| {
        let ScheduleStep::Extern { name: stmt, .. } = step else { panic!("calls alone") };
        let stmt = loops.stmts.iter().find(|s| s.name() == stmt).expect("it is there");
        stmt.reads().iter().chain(&stmt.writes()).any(|&b| loops.bufs[b].name == name)
    };
    let first = steps.iter().position(uses).expect("it is used");
    (first, steps.iter().rposition(uses).expect("it is used"))
}

fn bytes(loops: &Loops, name: &str, s0: i64) -> i64 {
    let data = loops.bufs.values().find(|d| d.name == name).expect("it is there");
    at(data.span(), s0) * data.dtype.size() as i64
}

fn at(e: Expr, s0: i64) -> i64 {
    e.eval(&|_| Some(s0)).expect("s0 is the only symbol")
}

#[test]
fn lives_never_overlap_in_memory() {
    let mut random = Random(1);
    let (mut pooled, mut apart, mut hosted) = (0, 0, 0);
    for case in 0..200 {
        let steps = 3 + random.below(20);
        let sizes =
            [&["1", "16", "17", "1000", "0", "64"][..], &["s0", "2*s0", "16*s0 + 1", "100"][..]][case % 2];
        let body = chain(&mut random, steps, sizes);
        let outcome = outcome(&body);
        let loops = loops(&body);
        let schedule = &outcome.schedule;
        for s0 in [1, 10, 100] {
            for Pool { name, bytes: size, places, .. } in &schedule.pools {
                let total = size.map_or_else(|| bytes(&loops, name, s0), |size| at(size, s0));
                let mut placed: Vec<(i64, i64, (usize, usize))> = places
                    .iter()
                    .map(|(buf, offset)| {
                        let from = at(*offset, s0);
                        (from, from + bytes(&loops, buf, s0), life(&loops, &schedule.steps, buf))
                    })
                    .collect();
                if size.is_none() {
                    // The memory of a returned buffer, which needs it from its first step on.
                    hosted += placed.len();
                    placed.push((0, total, (life(&loops, &schedule.steps, name).0, usize::MAX)));
                }
                for (i, (from, to, life)) in placed.iter().enumerate() {
                    assert!(from % 64 == 0 && *to <= total, "{name} of {total}: {from}..{to}");
                    for (other_from, other_to, other) in &placed[i + 1..] {
                        let meet = life.0 <= other.1 && other.0 <= life.1;
                        let share = from < other_to && other_from < to;
                        assert!(
                            !(meet && share),
                            "case {case} at {s0}: {from}..{to} and {other_from}..{other_to}\n{schedule}"
                        );
                    }
                }
                if size.is_none() {
                    continue;
                }
                let naive: i64 = placed.iter().map(|(from, to, _)| (to - from + 63) / 64 * 64).sum();
                let alive = |step: usize| {
                    let here = placed.iter().filter(|p| p.2.0 <= step && step <= p.2.1);
                    here.map(|(from, to, _)| to - from).sum::<i64>()
                };
                let needed = (0..schedule.steps.len()).map(alive).max().unwrap_or(0);
                assert!(
                    needed <= total && total <= naive,
                    "case {case}: {needed} {total} {naive}\n{schedule}"
                );
                pooled += total;
                apart += naive;
            }
        }
    }
    // Most lives are short: sharing must pay.
    assert!(pooled * 4 < apart * 3, "{pooled} of {apart}");
    assert!(hosted > 100, "{hosted} buffers in memory of others");
}

#[test]
fn returned_and_loaded_buffers_have_memory_of_their_own() {
    let outcome = outcome(
        "buf w: f32[64] = const \"w\" buf x: f32[64] = input
         buf a: f32[64] buf b: f32[64] buf c: f32[64]
         extern e0 = sort(w) -> (a)
         extern e1 = sort(x, a) -> (b)
         extern e2 = sort(b) -> (c)
         return c",
    );
    let names: Vec<&str> = outcome.schedule.pools.iter().flat_map(|p| &p.places).map(|p| &*p.0).collect();
    assert_eq!(names, ["b"]);
}

/// What is done with before a returned buffer is written lies in its memory; what its step reads does not.
#[test]
fn returned_buffers_lend_their_memory() {
    for (size, small) in [("64", "64"), ("8*s0", "4*s0")] {
        let outcome = outcome(&format!(
            "sym s0 in [1, 100] buf x: f32[1] = input
             buf a: f32[{small}] buf b: f32[{small}] buf c: f32[{small}] buf y: f32[{size}] buf z: f32[16*s0 + 64]
             extern e0 = sort(x) -> (a)
             extern e1 = sort(a) -> (b)
             extern e2 = sort(b) -> (c)
             extern e3 = sort(c) -> (y)
             extern e4 = sort(y) -> (z)
             return y, z"
        ));
        let pool = |name: &str| {
            let pools = &outcome.schedule.pools;
            let pool = pools.iter().find(|pool| pool.places.iter().any(|place| place.0 == name));
            pool.map(|pool| pool.name.as_str()).expect("it has a place")
        };
        assert_eq!(pool("a"), "y", "{size}");
        assert_ne!(pool("c"), "y", "{size}");
    }
}

/// A buffer of run-time size takes the place of one that is known to be as large.
#[test]
fn symbolic_places() {
    let outcome = outcome(
        "sym s0 in [1, 100] sym s1 in [1, 100]
         buf x: f32[1] = input
         buf a: f32[2*s0] buf b: f32[s1] buf c: f32[s0] buf d: f32[s1] buf y: f32[1]
         extern e0 = sort(x) -> (a)
         extern e1 = sort(a) -> (b)
         extern e2 = sort(b) -> (c)
         extern e3 = sort(c) -> (d)
         extern e4 = sort(d) -> (y)
         return y",
    );
    let place = |name: &str| {
        let places = &outcome.schedule.pools[0].places;
        places.iter().find(|p| p.0 == name).map(|p| p.1).expect("it is pooled")
    };
    assert_eq!(place("a"), place("c"), "c is half of a");
    assert_eq!(place("b"), place("d"), "nothing says that s1 fits where a is");
    assert_ne!(place("a"), place("b"));
}

#[test]
fn no_program_no_pool() {
    let outcome = litz_schedule::schedule(&loops("return 1"), &target(), &Heuristics::default());
    assert!(outcome.schedule.steps.is_empty() && outcome.schedule.pools.is_empty());
}
