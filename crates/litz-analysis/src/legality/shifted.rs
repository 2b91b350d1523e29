//! Takes from the values of axes what moves them as a whole, by the loops of other axes: rows that begin within a vector.
//!
//! In `i = g, j = 8*t + v - mod(g, 8)` the loops `t` and `v` count, in each row `g`, from up to seven elements before the first one. Of those a masked
//! leaf takes none. Where the loops of other axes stand still, what moves an axis is one number, from 0 down to some `-m`, so that loops that count
//! `m` numbers more than the axis has points take each of these once, and otherwise only points before its first one or past its end.

use litz_ir::loops::Axis;
use litz_sym::{Expr, Facts};

use super::coverage::Bound;

/// The axes with values that begin at 0, and as many points more as these may begin before it.
pub(super) fn unshifted(bound: &[Bound], loops: &[Axis], facts: &Facts) -> Vec<Bound> {
    let mut inside = facts.clone();
    loops.iter().for_each(|axis| inside.declare_index(axis.var, axis.extent));
    let of = |at: usize| of_one(bound, at, loops, &inside).unwrap_or(bound[at]);
    (0..bound.len()).map(of).collect()
}

/// One of the axes, if it is moved by loops that others alone count.
fn of_one(bound: &[Bound], at: usize, loops: &[Axis], facts: &Facts) -> Option<Bound> {
    let one = bound[at];
    let is_of_others = |axis: &Axis| {
        bound.iter().enumerate().any(|(other, bound)| other != at && bound.value.has_sym(axis.var))
    };
    let (others, own): (Vec<Axis>, Vec<Axis>) =
        loops.iter().filter(|axis| one.value.has_sym(axis.var)).partition(|axis| is_of_others(axis));
    let has_any = |e: Expr, loops: &[Axis]| loops.iter().any(|axis| e.has_sym(axis.var));
    let moved: Expr = one
        .value
        .terms()
        .filter(|&(_, term)| has_any(term, &others))
        .map(|(factor, term)| term * factor)
        .sum();
    if moved.is_zero() || own.is_empty() || has_any(moved, &own) {
        return None;
    }
    let by = facts.bounds(moved);
    (by.hi <= 0 && by.lo > i64::MIN / 2).then(|| Bound {
        value: one.value - moved,
        extent: one.extent - by.lo,
        ..one
    })
}

#[cfg(test)]
mod tests {
    use super::super::coverage::{Bound, Coverage};
    use super::unshifted;
    use litz_ir::loops::Axis;
    use litz_sym::{Expr, Facts, Sym};

    fn axis(name: &str, extent: i64) -> Axis {
        Axis { var: Sym::new(name), extent: Expr::int(extent) }
    }

    /// Whether the loops are proved to take each point of `rows` rows of 20 elements once, and whether they do.
    fn covers(rows: i64, value: &str, loops: &[(&str, i64)]) -> (bool, bool) {
        covers_rows(rows, ["g", value], loops)
    }

    /// The same where a row has the first value, and its element the second.
    fn covers_rows(rows: i64, values: [&str; 2], loops: &[(&str, i64)]) -> (bool, bool) {
        let facts = Facts::new();
        let loops: Vec<Axis> = loops.iter().map(|&(name, extent)| axis(name, extent)).collect();
        let parse = |text: &str| litz_sym::parse(text).expect("an expression");
        let bound = [("i", rows, values[0]), ("j", 20, values[1])].map(|(name, extent, value)| Bound {
            axis: Sym::new(name),
            extent: Expr::int(extent),
            value: parse(value),
        });
        let extents = bound.iter().map(|bound| bound.extent);
        let coverage = Coverage::new(&facts, extents, loops.iter().copied()).expect("there are points");
        let groups = coverage.together(&unshifted(&bound, &loops, &facts));
        let is_proved = groups.iter().all(|group| coverage.is_once(group));
        let mut points = vec![Vec::new()];
        for axis in &loops {
            let extent = axis.extent.as_int().expect("a number");
            points = points
                .into_iter()
                .flat_map(|point: Vec<i64>| (0..extent).map(move |at| [point.clone(), vec![at]].concat()))
                .collect();
        }
        let mut taken = vec![0; (rows * 20) as usize];
        for point in points {
            let at = |sym: Sym| loops.iter().position(|axis| axis.var == sym).map(|at| point[at]);
            let [i, j] = bound.map(|bound| bound.value.eval(&at).expect("all have values"));
            if (0..rows).contains(&i) && (0..20).contains(&j) {
                taken[(i * 20 + j) as usize] += 1;
            }
        }
        (is_proved, taken.iter().all(|&times| times == 1))
    }

    #[test]
    fn rows_may_begin_within_a_vector() {
        let loops = [("g", 16), ("t", 4), ("v", 8)];
        assert_eq!(covers(16, "8*t + v - mod(g, 8)", &loops), (true, true));
        assert_eq!(covers(16, "8*t + v - mod(5*g, 8)", &loops), (true, true));
        assert_eq!(covers(16, "8*t + v - 3*mod(g, 4)", &loops), (true, true));
        assert_eq!(covers(16, "t + 4*v - mod(g, 8)", &loops), (true, true), "in any order of loops");
    }

    #[test]
    fn what_moves_too_far_is_refused() {
        let loops = [("g", 16), ("t", 3), ("v", 8)];
        assert_eq!(
            covers(16, "8*t + v - mod(g, 8)", &loops),
            (false, false),
            "the last elements are left out"
        );
        let loops = [("g", 16), ("t", 4), ("v", 8)];
        assert_eq!(covers(16, "8*t + v - g", &loops), (false, false));
        assert_eq!(
            covers(16, "8*t + v + mod(g, 8)", &loops),
            (false, false),
            "the first elements are left out"
        );
        assert_eq!(
            covers(16, "8*t + v - mod(g, 8) - 1", &loops),
            (false, true),
            "a constant is nobody's loop"
        );
        assert_eq!(covers(16, "7*t + v - mod(g, 8)", &loops), (false, false));
        assert_eq!(covers(16, "8*t + v - mod(t, 8)", &loops), (false, false), "it moves itself");
    }

    #[test]
    fn what_moves_an_axis_takes_each_of_its_own_points_once() {
        // Of two loops that count rows, the second takes them again.
        assert_eq!(
            covers(16, "8*t + v - mod(g, 8)", &[("g", 16), ("h", 2), ("t", 4), ("v", 8)]),
            (true, false)
        );
        let loops = [("g", 32), ("t", 4), ("v", 8)];
        assert_eq!(
            covers(16, "8*t + v - mod(g, 8)", &loops),
            (true, true),
            "rows past the end are no points"
        );
        assert_eq!(covers(32, "8*t + v - mod(g, 8)", &[("g", 16), ("t", 4), ("v", 8)]), (false, false));
    }

    /// Of values that are made of pieces, those that are proved take each point once; some are.
    #[test]
    fn what_is_proved_is_so() {
        let rows = ["g", "15 - g", "g + t", "floordiv(g, 2)", "mod(g, 16)"];
        let runs = ["8*t + v", "7*t + v", "t + 4*v", "8*t - v + 7", "8*t + v + 1", "8*t + v - 1"];
        let moves = [
            "mod(g, 8)",
            "mod(3*g, 8)",
            "2*mod(g, 4)",
            "mod(g + t, 8)",
            "floordiv(g, 2)",
            "mod(g, 16)",
            "mod(t, 8)",
            "t*mod(g, 2)",
            "mod(g, 8) - mod(g, 4)",
            "0 - mod(g, 8)",
        ];
        let (mut proved, mut wrong) = (0, 0);
        for row in rows {
            for run in runs {
                for by in moves {
                    for threads in [3, 4, 5] {
                        let value = format!("{run} - ({by})");
                        let loops = [("g", 16), ("t", threads), ("v", 8)];
                        let (is_proved, is_true) = covers_rows(16, [row, &value], &loops);
                        assert!(is_true || !is_proved, "i = {row}, j = {value} for t in {threads}");
                        proved += i64::from(is_proved);
                        wrong += i64::from(!is_true);
                    }
                }
            }
        }
        assert!(proved > 40 && wrong > 400, "{proved} are proved, {wrong} are wrong");
    }
}
