//! Defines the statements that one instruction of a target computes: dot products and products of matrices.

use litz_sym::{Expr, Rel};

use super::Mem;
use crate::loops::Axis;
use crate::target::Instruction;

/// Adds a few products of elements to an f32, or of bytes to an i32, in one instruction.
///
/// ```text
/// acc[32*ii + ji] dot.bf16.2= x[768*ii + 2*k] by w[64*k + 2*ji] and x[768*ii + 2*k + 1] by w[64*k + 2*ji + 1]
/// ```
///
/// In a vector loop each lane has a sum of its own. Each product is exact and each sum of f32 rounded to nearest, where numbers
/// below the smallest normal one may count as zero; the products are added in any order. Sums of i32 wrap around.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dot {
    /// The instruction.
    pub by: &'static Instruction,
    /// Memory of the sum.
    pub mem: Mem,
    /// Coordinates of the sum.
    pub index: Vec<Expr>,
    /// The factors of each product, at most as many products as the instruction is deep, in whole groups.
    pub terms: Vec<[Element; 2]>,
}

/// An element that is accessed where all guards hold; where one fails, what is read is zero.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Element {
    /// Memory accessed.
    pub mem: Mem,
    /// Coordinates of the element.
    pub index: Vec<Expr>,
    /// All must hold for the access to happen.
    pub guard: Vec<Rel>,
}

/// Adds a product of matrices to one of f32, which instructions keep in registers of their own while they add it up.
///
/// ```text
/// acc[1024*im step 32] amx.tdpbf16ps= x[24576*im + 32*k step 768] by w[1024*k step 64] in 13, 32, 32 over k in 8 from zero
/// ```
///
/// Numbers are as those of a [`Dot`]. Where there are more rows or columns than the instruction takes, several do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MatrixProduct {
    /// The instruction.
    pub by: &'static Instruction,
    /// The sums: rows and columns.
    pub sum: Matrix,
    /// Rows, and reduced points side by side.
    pub left: Matrix,
    /// Groups of reduced points, and columns; the points of a group are side by side in each column.
    pub right: Matrix,
    /// Rows of the left operand and of the sums.
    pub rows: Expr,
    /// Columns of the right operand and of the sums.
    pub columns: Expr,
    /// Reduced points, at most as many as the instruction takes, in whole groups.
    pub depth: u32,
    /// Loops whose iterations all add to the same sums.
    pub over: Vec<Axis>,
    /// Whether the sums start at zero, not at what memory holds.
    pub is_from_zero: bool,
}

/// A matrix in flat memory; what is in one row is adjacent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Matrix {
    /// Memory accessed.
    pub mem: Mem,
    /// Where the first element is.
    pub first: Expr,
    /// Elements from one row to the next.
    pub step: Expr,
}

impl Matrix {
    /// Where the element `at` places from the start of a row is.
    pub fn place(&self, row: Expr, at: Expr) -> Expr {
        self.first + self.step * row + at
    }
}

impl MatrixProduct {
    /// The matrices: sums, left and right operand.
    pub fn matrices(&self) -> [&Matrix; 3] {
        [&self.sum, &self.left, &self.right]
    }

    /// The matrices, to be changed.
    pub fn matrices_mut(&mut self) -> [&mut Matrix; 3] {
        [&mut self.sum, &mut self.left, &mut self.right]
    }

    /// Where the product of a row, a column and a reduced point, which is `element` of a group, has its sum and its factors.
    pub fn places(&self, row: Expr, column: Expr, group: Expr, element: Expr) -> [Expr; 3] {
        let size = i64::from(self.by.group);
        [
            self.sum.place(row, column),
            self.left.place(row, group * size + element),
            self.right.place(group, column * size + element),
        ]
    }
}
