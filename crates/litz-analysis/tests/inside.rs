//! Checks what is said of how far loops go where conditions hold.

use litz_analysis::inside::{is_inside, loops_where};
use litz_ir::loops::Axis;
use litz_ir::text;
use litz_sym::{Cmp, Expr, Facts, Rel, Sym};

/// Sizes that `s0` takes in the facts of [`axes`].
const SIZES: std::ops::RangeInclusive<i64> = 1..=9;

/// Axes as a nest lists them, and what is known of their sizes.
fn axes(list: &str) -> (Vec<Axis>, Facts) {
    let text = format!("loops @l on cpu {{ sym s0 in [1, 9] nest n [{list}] {{ }} return }}");
    let loops = text::loops::parse(&text).unwrap_or_else(|diags| panic!("{}\n{text}", diags[0]));
    (loops.stmts[0].nests()[0].axes.clone(), loops.facts)
}

fn expr(text: &str) -> Expr {
    axes(&format!("e in {text}")).0[0].extent
}

fn rel(cmp: Cmp, (lhs, rhs): (&str, &str)) -> Rel {
    Rel { cmp, lhs: expr(lhs), rhs: expr(rhs) }
}

/// The extents of loops where conditions hold, `a <= b` for each of `conds`.
fn extents(list: &str, conds: &[(&str, &str)]) -> Option<Vec<Expr>> {
    let (loops, facts) = axes(list);
    let conds = conds.iter().map(|&sides| rel(Cmp::Le, sides));
    let found = loops_where(loops, conds, &facts)?;
    Some(found.into_iter().map(|axis| axis.extent).collect())
}

#[test]
fn loops_are_no_longer_than_they_can_be() {
    let is = |list: &str, conds: &[(&str, &str)], expected: &[&str]| {
        let expected: Vec<Expr> = expected.iter().map(|text| expr(text)).collect();
        assert_eq!(extents(list, conds), Some(expected), "{list} where {conds:?}");
    };
    is("i in s0, j in 4", &[], &["s0", "4"]);
    is("i in s0, j in 4", &[("s0", "5")], &["min(s0, 5)", "4"]);
    is("t in 3, i in s0 - 4*t", &[("s0 - 4*t", "3")], &["3", "min(s0 - 4*t, 3)"]);
    is("t in 3, i in max(0, s0 - 4*t)", &[("s0 - 4*t", "3")], &["3", "min(s0 - 4*t, 3)"]);
    is("t in 3, i in 4", &[("s0 - 4*t", "3")], &["3", "4"]);
    assert_eq!(extents("i in 4", &[("s0", "5"), ("6", "s0")]), None);
    assert_eq!(extents("i in 4", &[("5", "i")]), None, "the variable is below 4");
}

#[test]
fn what_is_inside_of_an_axis_stays_inside() {
    let is = |list: &str, value: &str, extent: &str| {
        let (loops, mut facts) = axes(list);
        loops.iter().for_each(|axis| litz_analysis::inside::enter(&mut facts, *axis));
        is_inside(expr(value), expr(extent), &facts)
    };
    assert!(is("i in s0", "i", "s0"));
    assert!(!is("i in s0", "i + 1", "s0"));
    assert!(is("t in 3, i in min(4, s0 - 4*t)", "4*t + i", "s0"));
    assert!(!is("t in 3, i in min(4, s0 - 4*t + 1)", "4*t + i", "s0"));
    assert!(is("i in 3*s0", "floordiv(i, 3)", "s0"));
    assert!(!is("i in 3*s0 + 1", "floordiv(i, 3)", "s0"));
}

/// A generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn of<'t>(&mut self, choices: &[&'t str]) -> &'t str {
        choices[self.below(choices.len())]
    }
}

/// All iterations of loops where `s0` is `size`.
fn iterations(loops: &[Axis], size: i64) -> Vec<Vec<i64>> {
    loops.iter().fold(vec![Vec::new()], |points, axis| {
        let next = |point: Vec<i64>| {
            let end = number(axis.extent, loops, &point, size);
            (0..end).map(move |at| point.iter().copied().chain([at]).collect::<Vec<i64>>())
        };
        points.into_iter().flat_map(next).collect()
    })
}

fn number(e: Expr, loops: &[Axis], point: &[i64], size: i64) -> i64 {
    let at = |sym: Sym| loops.iter().position(|axis| axis.var == sym);
    e.eval(&|sym| at(sym).map_or(Some(size), |at| point.get(at).copied())).expect("all have values")
}

/// Of random loops and conditions, no iteration is lost in which all conditions hold.
#[test]
fn no_iteration_is_lost_where_conditions_hold() {
    let mut random = Random(1);
    let (mut shorter, mut never) = (0, 0);
    for _ in 0..2000 {
        let list = format!(
            "t in {}, i in {}, j in {}",
            random.of(&["3", "s0", "ceildiv(s0, 4)"]),
            random.of(&["4", "s0 - 2*t", "min(4, s0 - 4*t)", "max(0, s0 - 4*t)"]),
            random.of(&["2", "s0", "i", "max(0, s0 - i - 2)", "s0 - t"]),
        );
        let sides = ["1", "4", "5", "s0", "s0 - 4*t", "s0 - i", "t", "i", "i + j", "2*t"];
        let cmp = |random: &mut Random| [Cmp::Le, Cmp::Lt, Cmp::Eq][random.below(3)];
        let conds: Vec<Rel> = (0..1 + random.below(2))
            .map(|_| rel(cmp(&mut random), (random.of(&sides), random.of(&sides))))
            .collect();
        let (loops, facts) = axes(&list);
        let found = loops_where(loops.clone(), conds.iter().copied(), &facts);
        never += usize::from(found.is_none());
        shorter += usize::from(found.as_ref().is_some_and(|found| *found != loops));
        for size in SIZES {
            for point in iterations(&loops, size) {
                let side = |e: Expr| number(e, &loops, &point, size);
                let holds = |cond: &Rel| match cond.cmp {
                    Cmp::Le => side(cond.lhs) <= side(cond.rhs),
                    Cmp::Lt => side(cond.lhs) < side(cond.rhs),
                    Cmp::Eq => side(cond.lhs) == side(cond.rhs),
                    Cmp::Ne => side(cond.lhs) != side(cond.rhs),
                };
                if !conds.iter().all(holds) {
                    continue;
                }
                let shown = || format!("{list} where {conds:?}: {point:?} with s0 = {size}");
                let found = found.as_ref().unwrap_or_else(|| panic!("there are none: {}", shown()));
                for (at, axis) in found.iter().enumerate() {
                    let end = number(axis.extent, found, &point[..at], size);
                    assert!(point[at] < end, "{axis:?} ends before: {}", shown());
                }
            }
        }
    }
    assert!(never > 50 && shorter > 200, "{never} never hold, {shorter} make loops shorter");
}
