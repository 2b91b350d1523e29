//! Composes index functions: a result is read from its operand's storage through another one.
//!
//! A view says, for each dimension of the operand, which coordinate a result element comes from, as an expression of
//! the result's own coordinates: `permute(x, [1, 0])` is `[d1, d0]`, `slice(x, 0, 2, 8, 3)` is `[2 + 3*d0, d1]`. That
//! one description gives both the strides of the result and its accesses.

use crate::layout;
use litz_ir::Dtype;
use litz_ir::graph::TensorType;
use litz_ir::loops::{Buf, BufData};
use litz_sym::{Expr, Facts, Sym};

/// One view of an operand.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// Sizes of the result.
    pub sizes: Vec<Expr>,
    /// For each dimension of the operand, its coordinate, over [`dim`]s of the result.
    pub coords: Vec<Expr>,
    /// Strides of the result, where eager's do not follow from `coords` and the operand's strides.
    pub strides: Option<Vec<Expr>>,
    /// Whether the elements are the operand's in row-major order, and nothing but the sizes differs.
    pub is_reshape: bool,
}

/// What a view sees of one dimension of its operand. Dimensions named here are the view's own.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Along {
    /// All of it, along a dimension; along none where it is a single coordinate.
    Whole(Option<usize>),
    /// Coordinates `start + step * at`.
    Range {
        /// The dimension that `at` counts.
        dim: usize,
        /// The first coordinate.
        start: Expr,
        /// The distance between two.
        step: Expr,
    },
    /// One coordinate.
    At(Expr),
}

/// The coordinate along dimension `d`, as a placeholder in views and accesses.
pub fn dim(d: usize) -> Expr {
    Expr::sym(dim_sym(d))
}

const DIM_NAMES: [&str; 12] =
    ["%d0", "%d1", "%d2", "%d3", "%d4", "%d5", "%d6", "%d7", "%d8", "%d9", "%d10", "%d11"];

fn dim_sym(d: usize) -> Sym {
    match DIM_NAMES.get(d) {
        Some(name) => Sym::new(name),
        None => Sym::new(&format!("%d{d}")),
    }
}

/// `e` with the placeholders replaced by coordinates.
fn place(e: Expr, at: &[Expr]) -> Expr {
    let syms: Vec<Sym> = (0..at.len()).map(dim_sym).collect();
    e.subst(&|sym| syms.iter().position(|&s| s == sym).map(|d| at[d]))
}

impl View {
    /// A view whose strides follow from its coordinates.
    pub fn new(sizes: Vec<Expr>, coords: Vec<Expr>) -> View {
        View { sizes, coords, strides: None, is_reshape: false }
    }

    /// The operand as it is.
    pub fn identity(sizes: &[Expr]) -> View {
        View::new(sizes.to_vec(), (0..sizes.len()).map(dim).collect())
    }

    /// The operand's coordinates of the first element.
    pub fn first(&self) -> Vec<Expr> {
        let origin = vec![Expr::zero(); self.sizes.len()];
        self.coords.iter().map(|&coord| place(coord, &origin)).collect()
    }

    /// Whether each element of an operand of these sizes is where it was.
    pub fn is_identity(&self, facts: &Facts, operand: &[Expr]) -> bool {
        let stays = |d: usize| {
            layout::same(facts, self.sizes[d], operand[d])
                && (self.is_reshape || operand[d].is_one() || self.coords[d] == dim(d))
        };
        self.sizes.len() == operand.len() && (0..operand.len()).all(stays)
    }

    /// What of each dimension of an operand of these sizes the view sees, when each of its own dimensions goes along
    /// at most one of the operand's.
    pub fn along(&self, facts: &Facts, operand: &[Expr]) -> Option<Vec<Along>> {
        let mut seen = Vec::new();
        let mut found = Vec::with_capacity(operand.len());
        for (&coord, &size) in self.coords.iter().zip(operand) {
            let mut own = (0..self.sizes.len()).filter(|&d| coord.syms().contains(&dim_sym(d)));
            let along = match (own.next(), own.next()) {
                (None, _) if size.is_one() => Along::Whole(None),
                (None, _) => Along::At(coord),
                (Some(d), None) => {
                    let (step, start) = coord.linear(dim_sym(d))?;
                    if seen.contains(&d) || step.syms().contains(&dim_sym(d)) {
                        return None;
                    }
                    seen.push(d);
                    if coord == dim(d) && layout::same(facts, self.sizes[d], size) {
                        Along::Whole(Some(d))
                    } else {
                        Along::Range { dim: d, start, step }
                    }
                }
                (Some(_), Some(_)) => return None,
            };
            found.push(along);
        }
        Some(found)
    }

    /// The result's type.
    pub fn result_type(self, dtype: Dtype, operand_strides: &[Expr]) -> TensorType {
        let strides = self.strides.unwrap_or_else(|| {
            let along = |d: usize| {
                let steps = self.coords.iter().zip(operand_strides);
                steps
                    .map(|(c, &stride)| c.linear(dim_sym(d)).map_or(Expr::zero(), |(by, _)| by) * stride)
                    .sum()
            };
            (0..self.sizes.len()).map(along).collect()
        });
        TensorType::strided(dtype, self.sizes, strides)
    }
}

/// Where the elements of a value are: an index function into a buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueAccess {
    /// Storage.
    pub buf: Buf,
    /// Element type of the buffer.
    pub dtype: Dtype,
    /// Sizes of the value.
    pub sizes: Vec<Expr>,
    /// The coordinate along each dimension of the buffer, over [`dim`]s of the value.
    index: Vec<Expr>,
    /// The buffer's strides.
    steps: Vec<Expr>,
}

impl ValueAccess {
    /// A buffer as it is.
    pub fn whole(buf: Buf, data: &BufData) -> ValueAccess {
        let (sizes, index) = (data.sizes.clone(), (0..data.sizes.len()).map(dim).collect());
        ValueAccess { buf, dtype: data.dtype, sizes, index, steps: data.strides.clone() }
    }

    /// The same elements in a buffer of the same type.
    pub fn in_copy(self, buf: Buf) -> ValueAccess {
        ValueAccess { buf, ..self }
    }

    /// The elements `offset + sum(coordinate * stride)` of the memory that a buffer takes. None where it is not known which
    /// coordinates these have: the memory has gaps, or elements share it.
    pub fn strided(
        (buf, data): (Buf, &BufData),
        sizes: Vec<Expr>,
        strides: &[Expr],
        offset: Expr,
        facts: &Facts,
    ) -> Option<ValueAccess> {
        let place = strides.iter().enumerate().fold(offset, |sum, (d, &stride)| sum + dim(d) * stride);
        let mut access = ValueAccess { sizes, ..ValueAccess::whole(buf, data) };
        let facts = access.declared(facts);
        access.index = layout::coordinates_at(place, &data.sizes, &data.strides, &facts)?;
        Some(access)
    }

    /// The element at these coordinates, one for each dimension of the value: its coordinate along each dimension of the
    /// buffer.
    pub fn at(&self, coords: &[Expr]) -> Vec<Expr> {
        self.index.iter().map(|&index| place(index, coords)).collect()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// Strides and offset in memory, when these say where the elements are. Dimensions of size 1 have stride 0.
    pub fn strides(&self, facts: &Facts) -> Option<(Vec<Expr>, Expr)> {
        let place = self.index.iter().zip(&self.steps).map(|(&at, &step)| at * step).sum();
        let mut rest = self.simplified(place, facts);
        let mut strides = Vec::with_capacity(self.rank());
        for d in 0..self.rank() {
            let (stride, other) = rest.linear(dim_sym(d))?;
            if stride.syms().iter().any(|s| s.name().starts_with('%')) {
                return None;
            }
            strides.push(stride);
            rest = other;
        }
        Some((strides, rest))
    }

    /// Whether it is exactly this strided tensor at offset 0; strides of size-1 dimensions do not count.
    pub fn is_strided_as(&self, ty: &TensorType, facts: &Facts) -> bool {
        let Some((strides, offset)) = self.strides(facts) else { return false };
        let agrees = |d: usize| strides[d] == ty.strides[d] || ty.sizes[d].is_one();
        offset.is_zero() && self.sizes == ty.sizes && (0..self.rank()).all(agrees)
    }

    /// The access of a view of this value.
    pub fn view(&self, view: &View, facts: &Facts) -> ValueAccess {
        let mut access =
            ValueAccess { sizes: view.sizes.clone(), index: self.at(&view.coords), ..self.clone() };
        access.index = access.index.iter().map(|&index| access.simplified(index, facts)).collect();
        access
    }

    fn simplified(&self, e: Expr, facts: &Facts) -> Expr {
        if e.is_polynomial() { e } else { self.declared(facts).simplify(e) }
    }

    /// `facts` with the ranges of the value's coordinates.
    fn declared(&self, facts: &Facts) -> Facts {
        let mut facts = facts.clone();
        for (d, &size) in self.sizes.iter().enumerate() {
            facts.declare_index(dim_sym(d), size);
        }
        facts
    }

    /// The same elements with leading dimensions added or size-1 dimensions expanded to `sizes`, aligned at the end.
    pub fn broadcast(&self, sizes: &[Expr]) -> ValueAccess {
        let lead = sizes.len() - self.rank();
        let coord = |d: usize| if self.sizes[d].is_one() { Expr::zero() } else { dim(lead + d) };
        let coords: Vec<Expr> = (0..self.rank()).map(coord).collect();
        ValueAccess { sizes: sizes.to_vec(), index: self.at(&coords), ..self.clone() }
    }
}
