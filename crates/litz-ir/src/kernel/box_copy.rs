//! Defines the act by which one thread has a box of elements copied to shared memory.

use litz_sym::{Expr, Rel, Sym};

use super::{Act, Kernel, Mem, Stmt, visit};
use crate::loops::Axis;
use crate::target::Gpu;

/// Copies a box of elements from global to shared memory, in the background, by one thread that fills a buffer of a ring.
///
/// ```text
/// copy box x[64*k] to x_tile[8192*b] of 128 step 4096 from 128*g below n, 64 step 1
///   =   for i in 128 { for j in 64 {
///         x_tile[8192*b + 64*i + j] = x[64*k + 4096*(128*g + i) + j] if 0 <= 128*g + i < n else 0
///       } }
/// ```
///
/// It has up to [`BoxCopy::DIMS`] dimensions; the hardware's fifth is for what the place in global memory depends on besides. Its elements
/// lie side by side in shared memory, or as its swizzle puts them. (PTX ISA, `cp.async.bulk.tensor`.)
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BoxCopy {
    /// Global memory.
    pub from: Mem,
    /// Where its element is whose coordinates are all zero.
    pub origin: Expr,
    /// Shared memory.
    pub to: Mem,
    /// Where the box begins there.
    pub first: Expr,
    /// Dimensions of the box, outermost first; the elements along the last one are side by side in global memory, too.
    pub dims: Vec<BoxDim>,
}

/// A dimension of a box.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BoxDim {
    /// Elements along it.
    pub count: u32,
    /// Elements of global memory from one coordinate to the next.
    pub step: Expr,
    /// The first coordinate, and how many there are from zero on: zeros stand for elements of others. None where the box begins at coordinate
    /// zero and all of its elements are there.
    pub range: Option<[Expr; 2]>,
}

impl BoxCopy {
    /// Dimensions at most.
    pub const DIMS: usize = Gpu::BOX_DIMS - 1;

    /// Loops over the elements of the box, outermost first.
    pub fn axes(&self) -> Vec<Axis> {
        let axis = |(number, dim): (usize, &BoxDim)| Axis {
            var: Sym::new(&format!("box.{number}")),
            extent: Expr::int(i64::from(dim.count)),
        };
        self.dims.iter().enumerate().map(axis).collect()
    }

    /// Where the element at these coordinates of the box is in global memory, and what holds where it is there.
    pub fn outside(&self, axes: &[Axis]) -> (Expr, Vec<Rel>) {
        let (mut place, mut guard) = (self.origin, Vec::new());
        for (dim, axis) in self.dims.iter().zip(axes) {
            let mut at = Expr::sym(axis.var);
            if let Some([first, end]) = dim.range {
                at = first + at;
                guard.extend([Rel::le(0, at), Rel::lt(at, end)]);
            }
            place = place + dim.step * at;
        }
        (place, guard)
    }

    /// Where the element at these coordinates of the box is in shared memory.
    pub fn inside(&self, axes: &[Axis]) -> Expr {
        let place = axes.iter().fold(Expr::zero(), |place, axis| place * axis.extent + Expr::sym(axis.var));
        self.first + place
    }
}

/// What a box is cut out of, as the hardware has it described: dimensions innermost first. (CUDA driver API, `cuTensorMapEncodeTiled`.)
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BoxMap {
    /// Global memory.
    pub from: Mem,
    /// Bytes of the rows of shared memory whose units change places; none where elements lie side by side.
    pub swizzle: Option<u32>,
    /// Dimensions.
    pub dims: Vec<MapDim>,
}

impl BoxMap {
    /// What the boxes of a kernel are cut out of, each once, in the order of the text: of those that have a description.
    pub fn of(kernel: &Kernel) -> Vec<BoxMap> {
        let mut maps = Vec::new();
        visit(&kernel.body, &mut |stmt| {
            if let Stmt::Act(Act::BoxCopy(copy)) = stmt
                && let Some((map, _)) = copy.cut(kernel)
                && !maps.contains(&map)
            {
                maps.push(map);
            }
        });
        maps
    }
}

/// A dimension of what a box is cut out of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MapDim {
    /// Elements of the box along it.
    pub count: u32,
    /// Elements of global memory from one coordinate to the next.
    pub step: Expr,
    /// How many coordinates there are.
    pub end: Expr,
}

impl BoxCopy {
    /// What it is cut out of, and the coordinates of its first element there.
    ///
    /// A dimension without a range takes what of the origin its steps divide, so that boxes of one matrix have one description: in
    /// `x[64*k + 524288*g] .. of 128 step 4096, 64 step 1` rows begin at `128*g` and columns at `64*k`. What is left of an origin counts
    /// the units of 16 bytes, in a dimension of its own. None where a coordinate could be negative: zeros would stand for its elements.
    pub fn cut(&self, kernel: &Kernel) -> Option<(BoxMap, Vec<Expr>)> {
        let [from, to] = [self.from, self.to].map(|mem| &kernel.mems[mem]);
        let size = from.dtype.size();
        let swizzle = to.swizzle.filter(|swizzle| swizzle.units(size).is_some());
        let (mut dims, mut coordinates) = (Vec::new(), Vec::new());
        let mut origin = self.origin;
        let is_inside = |coordinate: Expr| is_natural(kernel, coordinate);
        for dim in &self.dims {
            let (first, end) = match dim.range {
                Some([first, end]) => (first, end),
                None => {
                    let (first, rest) = divided(origin, dim.step);
                    origin = rest;
                    is_inside(first).then_some(())?;
                    (first, from.span().ceildiv(dim.step))
                }
            };
            dims.push(MapDim { count: dim.count, step: dim.step, end });
            coordinates.push(first);
        }
        dims.reverse();
        coordinates.reverse();
        is_inside(origin).then_some(())?;
        if !origin.is_zero() {
            let unit = Gpu::VECTOR_BYTES as i64 / size as i64;
            dims.push(MapDim { count: 1, step: Expr::int(unit), end: from.span().ceildiv(unit) });
            coordinates.push(origin.floordiv(unit));
        }
        let swizzle = swizzle.map(|swizzle| swizzle.row * size as u32);
        Some((BoxMap { from: self.from, swizzle, dims }, coordinates))
    }
}

/// Whether a number of elements is not negative, whatever the loops count that are around: no loop counts below zero.
fn is_natural(kernel: &Kernel, number: Expr) -> bool {
    let is_plain = number.constant() >= 0 && number.terms().all(|(factor, _)| factor >= 0);
    is_plain || {
        let mut facts = kernel.facts.clone();
        kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
        let is_known = |term: Expr| term.syms().iter().all(|&sym| facts.is_symbol_declared(sym));
        let least = number.terms().filter(|&(factor, term)| factor < 0 || is_known(term));
        let least: Expr = least.map(|(factor, term)| term * factor).sum();
        facts.bounds(least + number.constant()).lo >= 0
    }
}

/// The terms of a sum that are multiples of a step, as so many steps, and what is left.
fn divided(sum: Expr, step: Expr) -> (Expr, Expr) {
    let Some(by) = step.as_int().filter(|&by| by > 0) else {
        let symbol = step.as_sym().and_then(|step| sum.linear(step));
        return symbol.unwrap_or((Expr::zero(), sum));
    };
    let steps: Expr =
        sum.terms().filter(|(factor, _)| factor % by == 0).map(|(factor, term)| term * (factor / by)).sum();
    let steps = steps + sum.constant().div_euclid(by);
    (steps, sum - steps * by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;
    use crate::kernel::{MemData, MemorySpace, Swizzle};
    use litz_sym::parse;

    fn expr(text: &str) -> Expr {
        parse(text).expect("an expression")
    }

    /// The dimensions and coordinates of a box of 128 rows of 64 elements, of rows `step` apart.
    fn cut(origin: &str, step: &str, rows: Option<[&str; 2]>) -> Option<(Vec<String>, Vec<String>)> {
        let mut kernel = Kernel::new("k");
        kernel.grid.push(Axis { var: Sym::new("b"), extent: Expr::int(8) });
        let from = MemData::flat("x", Dtype::BF16, expr("4096*n"), MemorySpace::Read);
        let to = MemData {
            swizzle: Some(Swizzle { unit: 8, row: 64, pairs: false }),
            ..MemData::flat("s", Dtype::BF16, expr("8192"), MemorySpace::Shared)
        };
        let (from, to) = (kernel.mems.push(from), kernel.mems.push(to));
        let range = rows.map(|ends| ends.map(expr));
        let dims = vec![
            BoxDim { count: 128, step: expr(step), range },
            BoxDim { count: 64, step: Expr::one(), range: None },
        ];
        let copy = BoxCopy { from, origin: expr(origin), to, first: Expr::zero(), dims };
        let (map, coordinates) = copy.cut(&kernel)?;
        assert_eq!(map.swizzle, Some(128));
        let dims = map.dims.iter().map(|dim| format!("{} of {} step {}", dim.count, dim.end, dim.step));
        Some((dims.collect(), coordinates.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn boxes_of_one_matrix_have_one_description() {
        let (dims, coordinates) = cut("64*k + 524288*g", "4096", None).expect("a description");
        assert_eq!(dims, ["64 of 4096*n step 1", "128 of n step 4096"]);
        assert_eq!(coordinates, ["64*k", "128*g"]);
        // The same for rows of a length that is a symbol.
        let (_, coordinates) = cut("128*g*p + 64*k", "p", None).expect("a description");
        assert_eq!(coordinates, ["64*k", "128*g"]);
        // A dimension that ends somewhere counts from where its range does, and what is left of the origin is along the row.
        let (dims, coordinates) =
            cut("64*k + 4096*n*b", "4096", Some(["128*g", "n"])).expect("a description");
        assert_eq!(dims, ["64 of 4096*n step 1", "128 of n step 4096"]);
        assert_eq!(coordinates, ["4096*b*n + 64*k", "128*g"]);
        // Zeros would stand for what is at a negative coordinate.
        assert_eq!(cut("64*k - 4096", "4096", None), None);
        assert_eq!(cut("524288*n - 524288*k", "4096", None), None);
        // Blocks of rows that are counted from the last one are none: `b` is below 8.
        let (_, coordinates) = cut("64*k - 524288*b + 3670016", "4096", None).expect("a description");
        assert_eq!(coordinates, ["64*k", "-128*b + 896"]);
        assert_eq!(cut("64*k - 524288*b + 3145728", "4096", None), None);
    }
}
