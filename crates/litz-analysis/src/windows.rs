//! Reads a nest that copies rows of windows: its rows are points whose numbers have a digit for each dimension that windows move along.
//!
//! ```text
//! p[m, t] = h[floordiv(m, 196), mod(t, 256), 2*mod(floordiv(m, 14), 14) + floordiv(t, 768) - 1, 2*mod(m, 14) + mod(floordiv(t, 256), 3) - 1]
//!           if there is such an element, else 0
//!   =>  points m over 32, 14 by 2 and 14 by 2; along each of these dimensions, a tap's place depends on t, as does the channel
//! ```
//!
//! A box of them is one copy of the hardware ([`litz_ir::kernel::BoxPoints`]).

use litz_ir::Scalar;
use litz_ir::ids::Id;
use litz_ir::kernel::{BoxPoints, PointDim};
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest};
use litz_ir::target::Gpu;
use litz_sym::{Expr, Facts, Kind, Rel, Sym};

/// What a nest copies rows of windows of.
pub struct Windows {
    /// The buffer.
    pub buf: Buf,
    /// The axis of its rows, which are points.
    pub points: Sym,
    /// The axis of what a row has.
    pub row: Sym,
    /// The dimensions that points go through, the outermost first.
    dims: Vec<Dim>,
    /// Where an element is, in terms of the row's axis, whose coordinates along all of them are zero.
    rest: Expr,
    /// Whether rows lie in memory as they are, one behind the other: they are no windows, and a box of them is one of a matrix.
    pub is_matrix: bool,
}

/// A dimension that points go through.
struct Dim {
    /// Points along it.
    count: Expr,
    /// Coordinates from one point to the next.
    by: i64,
    /// Elements from one coordinate to the next.
    step: Expr,
    /// The coordinate for the first point, in terms of the row's axis.
    from: Expr,
    /// Coordinates.
    end: Expr,
}

/// A digit of a number: `mod(floordiv(number, period), count)`, the highest without the `mod`.
#[derive(PartialEq)]
struct Digit {
    period: Expr,
    count: Option<Expr>,
}

impl Windows {
    /// Those that a nest copies, which does nothing else. None of other nests, of a box of
    /// the buffer as it is, and where a dimension's end is asked for that no point goes through.
    pub fn of(loops: &Loops, nest: &Nest) -> Option<Windows> {
        let [load, store] = &nest.body[..] else { return None };
        let InstOp::Load { buf, index, guard, other } = &load.op else { return None };
        let InstOp::Store { buf: stored, index: at, value, combine: None } = &store.op else { return None };
        let ([points, row], true) = (nest.axes.as_slice(), nest.reduced.is_empty()) else { return None };
        let data = &loops.bufs[*buf];
        let is_copy = value.index() == 0
            && data.dtype == loops.bufs[*stored].dtype
            && load.ty == store.ty
            && at[..] == [Expr::sym(points.var), Expr::sym(row.var)]
            && (guard.is_empty() || *other == Scalar::zero(load.ty));
        let is_box = guard.is_empty() && index.iter().all(|at| at.is_polynomial());
        (is_copy && !is_box).then_some(())?;
        let mut found = Vec::new();
        let mut rest = Expr::zero();
        for ((&at, &end), &step) in index.iter().zip(&data.sizes).zip(&data.strides) {
            if !at.has_sym(points.var) {
                rest = rest + at * step;
                continue;
            }
            let (by, digit, from) = digit_of(at, points.var)?;
            found.push((digit, Dim { count: Expr::zero(), by, step, from, end }, at));
        }
        let is_end = |rel: &Rel| {
            found.iter().any(|(_, dim, at)| *rel == Rel::lt(*at, dim.end) || *rel == Rel::le(0, *at))
        };
        guard.iter().all(is_end).then_some(())?;
        let facts = nest.facts(&loops.facts);
        let mut dims = in_order(found, &|period| facts.simplify(points.extent.floordiv(period)))?;
        let all = dims.iter().fold(Expr::one(), |all, dim| all * dim.count);
        facts.simplify(points.extent - all).is_zero().then_some(())?;
        // The hardware goes through the outermost dimension as it is, and takes what is behind its end for zeros.
        let is_plain = |dim: &Dim| dim.by == 1 && dim.from.is_zero() && dim.count == dim.end;
        let is_dense = || facts.simplify(rest).linear(row.var).is_some_and(|(step, _)| step.is_one());
        let is_matrix = dims.len() == 1 && is_plain(&dims[0]) && is_dense();
        if dims.len() == 1 || !dims.first().is_some_and(is_plain) {
            let [zero, one] = [Expr::zero(), Expr::one()];
            dims.insert(0, Dim { count: one, by: 1, step: zero, from: zero, end: one });
        }
        let windows = Windows { buf: *buf, points: points.var, row: row.var, dims, rest, is_matrix };
        BoxPoints::DIMS.contains(&windows.dims.len()).then_some(windows)
    }

    /// The box that loops over points and over neighbours of a row copy, whose variables `facts` know, where the nest's axes are bound to these values:
    /// where its element is whose coordinates are all zero, and its points.
    ///
    /// # Errors
    /// Why the hardware has no such box.
    pub fn boxed(
        &self,
        facts: &Facts,
        value: &dyn Fn(Sym) -> Option<Expr>,
        [points, run]: [Axis; 2],
    ) -> Result<(Expr, BoxPoints), &'static str> {
        let (Some(number), Some(row)) = (value(self.points), value(self.row)) else {
            return Err("its axes are not bound");
        };
        let counted = number.linear(points.var).filter(|(step, _)| step.is_one()).map(|(_, first)| first);
        let first = counted.filter(|first| !first.has_sym(run.var) && !row.has_sym(points.var));
        let count = points.extent.as_int().and_then(|count| u32::try_from(count).ok());
        let first = first.zip(count).ok_or("its outer loop counts no points one after another")?;
        let found = self.cut(facts, (first.1, first.0), (row, run));
        found.ok_or("taps and channels of its windows are no run, or corners and offsets too far away")
    }

    /// The box of so many points from number `first` on, of what `run` counts in their rows, where the row's axis is `row` of the loops around and `run`: where
    /// its element is whose coordinates are all zero, and its points. None where taps or channels are no run there, or the hardware has no such
    /// box.
    fn cut(
        &self,
        facts: &Facts,
        (count, first): (u32, Expr),
        (row, run): (Expr, Axis),
    ) -> Option<(Expr, BoxPoints)> {
        let mut facts = facts.clone();
        facts.declare_index(run.var, run.extent);
        let value = |e: Expr| facts.simplify(e.replace(self.row, row));
        let (step, origin) = value(self.rest).linear(run.var)?;
        (step.is_one() && !origin.has_sym(run.var)).then_some(())?;
        let limit = BoxPoints::limit(self.dims.len());
        let mut dims = Vec::new();
        for (number, dim) in self.dims.iter().enumerate() {
            let from = value(dim.from);
            let corner = facts.bounds(from).lo;
            (-limit..limit).contains(&corner).then_some(())?;
            let offset = from - corner;
            let by = u32::try_from(dim.by).ok().filter(|by| (1..=BoxPoints::MOST_BY).contains(by))?;
            let Dim { count, step, end, .. } = *dim;
            let dim = PointDim { count, by, step, corner, offset, end };
            let is_there = number == 0 || dim.corners(limit).is_some() && facts.bounds(offset).hi < 2 * limit;
            (is_there && !from.has_sym(run.var)).then_some(())?;
            dims.push(dim);
        }
        let fits = (1..=Gpu::BOX_ELEMENTS).contains(&count)
            && run.extent.as_int().is_some_and(|run| run <= i64::from(Gpu::BOX_ELEMENTS));
        fits.then_some((origin, BoxPoints { count, first, dims }))
    }

    /// Whether boxes of so many neighbours of a row, which begin at multiples of that, are the hardware's.
    pub fn are_boxes(&self, facts: &Facts, neighbours: i64, length: Expr) -> bool {
        let [number, run] = ["windows.number", "windows.run"].map(Sym::new);
        let run = Axis { var: run, extent: Expr::int(neighbours) };
        let mut facts = facts.clone();
        facts.declare_index(number, length.ceildiv(neighbours));
        let row = Expr::sym(number) * neighbours + Expr::sym(run.var);
        facts.divides(neighbours, length) && self.cut(&facts, (1, Expr::zero()), (row, run)).is_some()
    }

    /// Elements from one coordinate to the next, along each dimension that points go through.
    pub fn steps(&self) -> impl Iterator<Item = Expr> {
        self.dims.iter().map(|dim| dim.step)
    }
}

/// The digit of a number in a coordinate, how many coordinates a step of it is, and what is left. None where the number is there otherwise.
fn digit_of(at: Expr, number: Sym) -> Option<(i64, Digit, Expr)> {
    let mut terms = at.terms().filter(|(_, term)| term.has_sym(number));
    let (by, term) = terms.next().filter(|_| terms.next().is_none())?;
    let of_quotient = |e: Expr| match e.as_floordiv() {
        Some((inner, period)) => (inner.as_sym() == Some(number)).then_some(period),
        None => (e.as_sym() == Some(number)).then(Expr::one),
    };
    let digit = match term.kind() {
        Kind::Mod(inner, count) => Digit { period: of_quotient(inner)?, count: Some(count) },
        Kind::Int(_)
        | Kind::Sym(_)
        | Kind::Add(_)
        | Kind::Mul(_)
        | Kind::FloorDiv(..)
        | Kind::Min(..)
        | Kind::Max(..) => Digit { period: of_quotient(term)?, count: None },
    };
    (!digit.period.has_sym(number)).then_some((by, digit, at - term * by))
}

/// Dimensions in the order of their digits, the highest first, each with its count, which `highest` tells of a digit of a period that goes on to the end. None
/// where digits are not all of a number's.
fn in_order(mut found: Vec<(Digit, Dim, Expr)>, highest: &dyn Fn(Expr) -> Expr) -> Option<Vec<Dim>> {
    let mut dims = Vec::new();
    let mut period = Expr::one();
    while !found.is_empty() {
        let at = found.iter().position(|(digit, ..)| digit.period == period)?;
        let (digit, dim, _) = found.swap_remove(at);
        let count = match digit.count {
            Some(count) => count,
            None => found.is_empty().then(|| highest(period))?,
        };
        period = period * count;
        dims.push(Dim { count, ..dim });
    }
    dims.reverse();
    Some(dims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::loops::Stmt;

    /// The windows that the one nest of a text copies of `x`, as the dimensions that points go through: points, steps, first coordinates and ends.
    fn windows(sizes: &str, nest: &str) -> Option<(Loops, Vec<String>, bool)> {
        let text = format!(
            "loops @l on cpu {{
              buf x: bf16[{sizes}] = input
              buf p: bf16[392, 576]
              nest n [m in 392, t in 576] {{ %0: bf16 = load x[{nest} store p[m, t] = %0 }}
              return p
            }}"
        );
        let text = text.replace("{ %0", "{\n%0").replace(" store", "\nstore").replace(" = %0 }", " = %0\n}");
        let loops = litz_ir::text::loops::parse(&text).unwrap_or_else(|diags| panic!("{}", diags[0]));
        let Stmt::Nest(nest) = &loops.stmts[0] else { panic!("it is a nest") };
        let found = Windows::of(&loops, nest)?;
        let dim = |dim: &Dim| format!("{} by {} from {} below {}", dim.count, dim.by, dim.from, dim.end);
        let dims = found.dims.iter().map(dim).collect();
        Some((loops, dims, found.is_matrix))
    }

    #[test]
    fn windows_are_read_from_nests_that_gather() {
        // Two images of 14 x 14 points, 3 x 3 taps of 64 channels.
        let padded = "floordiv(m, 196), floordiv(t, 192) + mod(floordiv(m, 14), 14) - 1, mod(m, 14) + mod(floordiv(t, 64), 3) - 1, mod(t, 64)] \
                      if 0 <= floordiv(t, 192) + mod(floordiv(m, 14), 14) - 1, floordiv(t, 192) + mod(floordiv(m, 14), 14) - 1 < 14, \
                      0 <= mod(m, 14) + mod(floordiv(t, 64), 3) - 1, mod(m, 14) + mod(floordiv(t, 64), 3) - 1 < 14 else 0.0";
        let (loops, dims, is_matrix) = windows("2, 14, 14, 64", padded).expect("windows");
        let expected = [
            "2 by 1 from 0 below 2",
            "14 by 1 from floordiv(t, 192) - 1 below 14",
            "14 by 1 from mod(floordiv(t, 64), 3) - 1 below 14",
        ];
        assert_eq!(dims, expected);
        assert!(!is_matrix);
        let Stmt::Nest(nest) = &loops.stmts[0] else { panic!("it is a nest") };
        let found = Windows::of(&loops, nest).expect("windows");
        assert!(found.are_boxes(&loops.facts, 64, Expr::int(576)));
        // A run of 128 is of two taps.
        assert!(!found.are_boxes(&loops.facts, 128, Expr::int(576)));
        // One image of 28 x 14 points, whose rows have no end of their own: nobody else goes on with them.
        let one =
            "0, 2*floordiv(m, 14) + floordiv(t, 192), mod(m, 14) + mod(floordiv(t, 64), 3), mod(t, 64)]";
        let (_, dims, _) = windows("1, 58, 16, 64", one).expect("windows");
        let expected = [
            "1 by 1 from 0 below 1",
            "28 by 2 from floordiv(t, 192) below 58",
            "14 by 1 from mod(floordiv(t, 64), 3) below 16",
        ];
        assert_eq!(dims, expected);
        // Rows that lie in memory as they are, and others.
        let (_, _, is_matrix) =
            windows("392, 3, 3, 64", "m, floordiv(t, 192), mod(floordiv(t, 64), 3), mod(t, 64)]")
                .expect("rows");
        assert!(is_matrix);
        let (_, _, is_matrix) =
            windows("392, 64, 3, 3", "m, mod(t, 64), floordiv(t, 192), mod(floordiv(t, 64), 3)]")
                .expect("rows");
        assert!(!is_matrix);
        // A box as it lies, digits that leave some points out, and an end of a dimension that no point goes through.
        assert!(windows("392, 576", "m, t]").is_none());
        assert!(
            windows("2, 14, 9, 64", "floordiv(m, 196), mod(floordiv(m, 14), 14), mod(t, 9), mod(m, 13)]")
                .is_none()
        );
        assert!(
            windows("392, 9, 63", "m, mod(floordiv(t, 64), 9), mod(t, 64)] if mod(t, 64) < 63 else 0.0")
                .is_none()
        );
    }
}
