//! Defines the act by which one thread has a box of elements copied to shared memory.

use litz_sym::{Expr, Range, Rel, Sym};

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
///
/// A box of windows has [`BoxPoints`] outside of one dimension, the channels of each point.
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
    /// Points of windows, outside of the dimensions.
    pub points: Option<BoxPoints>,
    /// Dimensions of the box, outermost first; the elements along the last one are side by side in global memory, too.
    pub dims: Vec<BoxDim>,
    /// Whether its elements, of f32, become the nearest numbers of tf32 on their way.
    pub rounds: bool,
}

/// Elements of a box that go through several dimensions of global memory, as digits of a number: points of windows, one tap of which the box is.
///
/// ```text
/// copy box h[64*c] to s[0] of 128 points from 128*g over (32 step 50176 below 32, 14 by 2 step 1792 from -1 offset y below 28,
///                                                          14 by 2 step 64 from -1 offset x below 28), 64 step 1
///   =   for i in 128 { for j in 64 {
///         n, r, q are the digits of 128*g + i: floordiv(.., 196), mod(floordiv(.., 14), 14), mod(.., 14)
///         s[64*i + j] = h[64*c + 50176*n + 1792*(2*r - 1 + y) + 64*(2*q - 1 + x) + j]
///                       if n < 32, 0 <= 2*r - 1 + y < 28, 0 <= 2*q - 1 + x < 28 else 0
///       } }
/// ```
///
/// (PTX ISA, `cp.async.bulk.tensor` in mode `im2col`: the corner is that of its bounding box, offsets are those of the instruction.)
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BoxPoints {
    /// How many.
    pub count: u32,
    /// The number of the first.
    pub first: Expr,
    /// What digits of the number count, the highest first, which goes on without end.
    pub dims: Vec<PointDim>,
}

/// A dimension that a digit of points counts along.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PointDim {
    /// Points along it.
    pub count: Expr,
    /// Coordinates from one point to the next.
    pub by: u32,
    /// Elements of global memory from one coordinate to the next.
    pub step: Expr,
    /// The coordinate of the first point of the window's first tap; of taps behind it an offset is added.
    pub corner: i64,
    /// The tap's distance from the first one, not below zero.
    pub offset: Expr,
    /// How many coordinates there are from zero on: zeros stand for elements of others.
    pub end: Expr,
}

impl BoxPoints {
    /// Dimensions of global memory at most, and at least, beside channels.
    pub const DIMS: std::ops::RangeInclusive<usize> = 2..=Gpu::BOX_DIMS - 1;
    /// Coordinates from one point to the next, at most. (CUDA driver API, `cuTensorMapEncodeIm2col`.)
    pub const MOST_BY: u32 = 8;

    /// Coordinates of its bounding box's corners, and offsets, are below so much, and corners not below its opposite: what numbers of 16, 8 and 5
    /// bits for each of one, two and three dimensions hold. (PTX ISA, `im2col`; CUDA driver API, `cuTensorMapEncodeIm2col`.)
    pub fn limit(dims: usize) -> i64 {
        match dims {
            2 => 1 << 15,
            3 => 1 << 7,
            _ => 1 << 4,
        }
    }

    /// The coordinates of the point of that number along each dimension, the highest first.
    fn coordinates(&self, number: Expr) -> Vec<Expr> {
        let mut rest = number;
        let mut found: Vec<Expr> = Vec::new();
        for (at, dim) in self.dims.iter().enumerate().rev() {
            let digit = if at == 0 { rest } else { rest.modulo(dim.count) };
            rest = rest.floordiv(dim.count);
            found.push(digit * i64::from(dim.by) + dim.corner + dim.offset);
        }
        found.reverse();
        found
    }
}

impl PointDim {
    /// The corners of the bounding box: where the first tap of the first and of the last point is, the latter from the dimension's last
    /// coordinate. None where sizes are symbols, or what they are is beyond the limit.
    pub fn corners(&self, limit: i64) -> Option<[i32; 2]> {
        let (count, end) = (self.count.as_int()?, self.end.as_int()?);
        let last = self.corner.checked_add(i64::from(self.by).checked_mul(count.checked_sub(1)?)?)?;
        let ends = [self.corner, last.checked_sub(end.checked_sub(1)?)?];
        let is_inside = ends.iter().all(|end| (-limit..limit).contains(end));
        is_inside.then(|| ends.map(|end| end as i32))
    }
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

    /// Loops over the elements of the box, outermost first: over its points, then along its dimensions.
    pub fn axes(&self) -> Vec<Axis> {
        let axis = |(number, count): (usize, u32)| Axis {
            var: Sym::new(&format!("box.{number}")),
            extent: Expr::int(i64::from(count)),
        };
        self.counts().enumerate().map(axis).collect()
    }

    /// Elements along each loop.
    fn counts(&self) -> impl Iterator<Item = u32> {
        let points = self.points.iter().map(|points| points.count);
        points.chain(self.dims.iter().map(|dim| dim.count))
    }

    /// Elements of the box.
    pub fn elements(&self) -> i64 {
        self.counts().map(i64::from).product()
    }

    /// Where the element at these coordinates of the box is in global memory, and what holds where it is there.
    pub fn outside(&self, axes: &[Axis]) -> (Expr, Vec<Rel>) {
        let coordinates = |points: &BoxPoints| points.coordinates(points.first + Expr::sym(axes[0].var));
        self.placed(axes, &self.points.as_ref().map(coordinates).unwrap_or_default())
    }

    /// As [`BoxCopy::outside`], for a proof that it is inside of global memory: whatever digits are, their coordinates are some of those that are
    /// there, which are what the second list counts.
    pub fn reached(&self, axes: &[Axis]) -> (Expr, Vec<Axis>, Vec<Rel>) {
        let dims = self.points.iter().flat_map(|points| &points.dims).enumerate();
        let coordinate = |(number, dim): (usize, &PointDim)| Axis {
            var: Sym::new(&format!("box.at.{number}")),
            extent: dim.end,
        };
        let there: Vec<Axis> = dims.map(coordinate).collect();
        let coordinates: Vec<Expr> = there.iter().map(|axis| Expr::sym(axis.var)).collect();
        let (place, mut guard) = self.placed(axes, &coordinates);
        guard.drain(..2 * there.len());
        (place, there, guard)
    }

    fn placed(&self, axes: &[Axis], coordinates: &[Expr]) -> (Expr, Vec<Rel>) {
        let (mut place, mut guard) = (self.origin, Vec::new());
        let points = self.points.iter().flat_map(|points| &points.dims);
        for (dim, &at) in points.zip(coordinates) {
            guard.extend([Rel::le(0, at), Rel::lt(at, dim.end)]);
            place = place + dim.step * at;
        }
        for (dim, axis) in self.dims.iter().zip(&axes[usize::from(self.points.is_some())..]) {
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

/// What a box is cut out of, as the hardware has it described: dimensions innermost first. (CUDA driver API, `cuTensorMapEncodeTiled` and
/// `cuTensorMapEncodeIm2col`.)
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BoxMap {
    /// Global memory.
    pub from: Mem,
    /// Bytes of the rows of shared memory whose units change places; none where elements lie side by side.
    pub swizzle: Option<u32>,
    /// Dimensions.
    pub dims: Vec<MapDim>,
    /// How points of windows go through the dimensions between the first one, their channels, and the last one.
    pub windows: Option<Windows>,
    /// Whether elements, of f32, become numbers of tf32.
    pub rounds: bool,
}

/// How points of windows go through dimensions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Windows {
    /// Points of a box.
    pub count: u32,
    /// The corners of the bounding box along each, and coordinates from one point to the next.
    pub dims: Vec<([i32; 2], u32)>,
}

/// A box as the hardware is asked for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// What it is cut out of.
    pub map: BoxMap,
    /// The coordinates of its first element there, innermost first.
    pub coordinates: Vec<Expr>,
    /// The tap of windows along the dimensions that their points go through, innermost first.
    pub offsets: Vec<Expr>,
}

impl BoxMap {
    /// What the boxes of a kernel are cut out of, each once, in the order of the text: of those that have a description.
    pub fn of(kernel: &Kernel) -> Vec<BoxMap> {
        let mut maps = Vec::new();
        visit(&kernel.body, &mut |stmt| {
            if let Stmt::Act(Act::BoxCopy(copy)) = stmt
                && let Some(Cut { map, .. }) = copy.cut(kernel)
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
    /// the units of 16 bytes, in a dimension of its own. None where a coordinate could be negative: zeros would stand for its elements; and of
    /// windows where no hardware has such corners.
    pub fn cut(&self, kernel: &Kernel) -> Option<Cut> {
        let [from, to] = [self.from, self.to].map(|mem| &kernel.mems[mem]);
        let size = from.dtype.size();
        let swizzle = to.swizzle.filter(|swizzle| swizzle.units(size).is_some());
        let swizzle = swizzle.map(|swizzle| swizzle.row * size as u32);
        if let Some(points) = &self.points {
            return self.cut_windows(kernel, points, swizzle);
        }
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
        let map = BoxMap { from: self.from, swizzle, dims, windows: None, rounds: self.rounds };
        Some(Cut { map, coordinates, offsets: Vec::new() })
    }

    /// As [`BoxCopy::cut`], of windows: channels count elements from the origin, points begin where the first of them has its first tap.
    fn cut_windows(&self, kernel: &Kernel, points: &BoxPoints, swizzle: Option<u32>) -> Option<Cut> {
        let [channels] = &self.dims[..] else { return None };
        is_natural(kernel, self.origin).then_some(())?;
        let span = kernel.mems[self.from].span();
        let mut dims = vec![MapDim { count: channels.count, step: channels.step, end: span }];
        let mut coordinates = vec![self.origin];
        let first: Vec<Expr> = points.dims.iter().map(|dim| dim.offset).collect();
        let places = points.coordinates(points.first).into_iter().zip(first).map(|(at, offset)| at - offset);
        let places: Vec<Expr> = places.collect();
        for (number, (dim, at)) in points.dims.iter().zip(places).rev().enumerate() {
            let count = if number == 0 { points.count } else { 1 };
            dims.push(MapDim { count, step: dim.step, end: dim.end });
            coordinates.push(at);
        }
        let (outermost, walked) = points.dims.split_first()?;
        (outermost.by == 1 && outermost.corner == 0 && outermost.offset.is_zero()).then_some(())?;
        let limit = BoxPoints::limit(points.dims.len());
        let range = |sym: Sym| range_of(kernel, sym);
        let fits = |dim: &PointDim| {
            let offset = dim.offset.range(&range);
            offset.lo >= 0 && offset.hi < 2 * limit
        };
        walked.iter().all(fits).then_some(())?;
        let walked = || walked.iter().rev();
        let corners: Option<Vec<_>> = walked().map(|dim| Some((dim.corners(limit)?, dim.by))).collect();
        let windows = Some(Windows { count: points.count, dims: corners? });
        let offsets = walked().map(|dim| dim.offset).collect();
        let map = BoxMap { from: self.from, swizzle, dims, windows, rounds: self.rounds };
        Some(Cut { map, coordinates, offsets })
    }
}

/// The values that a symbol may have in a kernel: of what a loop counts, or a ring, those of the longest that has the name.
fn range_of(kernel: &Kernel, sym: Sym) -> Range {
    let mut longest = kernel.grid.iter().filter(|axis| axis.var == sym).map(|axis| axis.extent).next();
    let most = |extent: Expr| kernel.facts.bounds(extent).hi;
    visit(&kernel.body, &mut |stmt| {
        if let Stmt::Loop(inner) = stmt
            && inner.var == sym
            && longest.is_none_or(|known| most(known) < most(inner.extent))
        {
            longest = Some(inner.extent);
        }
    });
    match longest {
        Some(extent) => Range::new(0, most(extent).saturating_sub(1).max(0)),
        None => kernel.facts.range_of(sym),
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
    use crate::kernel::{KernelLoopKind, Loop, MemData, MemorySpace, Swizzle};
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
        let copy = BoxCopy {
            from,
            origin: expr(origin),
            to,
            first: Expr::zero(),
            points: None,
            dims,
            rounds: false,
        };
        let Cut { map, coordinates, .. } = copy.cut(&kernel)?;
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
    #[test]
    fn windows_have_corners_and_taps() {
        let mut kernel = Kernel::new("k");
        kernel.grid.push(Axis { var: Sym::new("g"), extent: Expr::int(13) });
        let from = MemData::flat("h", Dtype::BF16, expr("50176*n"), MemorySpace::Read);
        let to = MemData::flat("s", Dtype::BF16, expr("8192"), MemorySpace::Shared);
        let (from, to) = (kernel.mems.push(from), kernel.mems.push(to));
        let body = Vec::new();
        let taps = Loop { kind: KernelLoopKind::For, var: Sym::new("k"), extent: Expr::int(3), body };
        kernel.body.push(Stmt::Loop(taps));
        let along = |count: &str, by, step: &str, corner, offset: &str, end: &str| PointDim {
            count: expr(count),
            by,
            step: expr(step),
            corner,
            offset: expr(offset),
            end: expr(end),
        };
        // Of images of 28 x 28 points every second is a point of 14 x 14: the first tap of the last is at 25, two from the last coordinate.
        let points = |offset| BoxPoints {
            count: 128,
            first: expr("128*g"),
            dims: vec![
                along("n", 1, "50176", 0, "0", "n"),
                along("14", 2, "1792", -1, offset, "28"),
                along("14", 2, "64", -1, "0", "28"),
            ],
        };
        let dims = vec![BoxDim { count: 64, step: Expr::one(), range: None }];
        let copy = |offset| BoxCopy {
            from,
            origin: expr("0"),
            to,
            first: Expr::zero(),
            points: Some(points(offset)),
            dims: dims.clone(),
            rounds: false,
        };
        let cut = copy("k").cut(&kernel).expect("a description");
        let ends: Vec<String> =
            cut.map.dims.iter().map(|dim| format!("{} step {}", dim.end, dim.step)).collect();
        assert_eq!(ends, ["50176*n step 1", "28 step 64", "28 step 1792", "n step 50176"]);
        assert_eq!(cut.map.windows, Some(Windows { count: 128, dims: vec![([-1, -2], 2), ([-1, -2], 2)] }));
        let coordinates: Vec<String> = cut.coordinates.iter().map(ToString::to_string).collect();
        assert_eq!(coordinates[0], "0");
        // 128 points are 9 rows of 14 and two more.
        assert_eq!(coordinates[1], "4*mod(g, 7) - 1");
        assert_eq!(cut.offsets, [expr("0"), expr("k")]);
        assert_eq!(copy("k").elements(), 8192);
        // Offsets are eight bits, and not below zero.
        assert!(copy("100*k").cut(&kernel).is_some());
        assert_eq!(copy("200*k").cut(&kernel), None);
        assert_eq!(copy("k - 1").cut(&kernel), None);
    }
}
