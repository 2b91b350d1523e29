//! Defines the acts by which the lanes of a warp load operands of matrix instructions into registers, and multiply them.

use litz_sym::{Expr, Sym};

use super::Mem;
use crate::target::{Instruction, Side};

/// What each lane of a warp has of an operand or of the sums of an instruction: elements of memory that each thread has of its own.
///
/// They come in pieces of neighbours; [`Side::pieces`] says how many, and [`Side::of_lane`] which element of the
/// matrix each is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Fragment {
    /// Memory of the thread.
    pub mem: Mem,
    /// Where the first element is.
    pub first: Expr,
    /// Elements from one piece along the sum to the next, from that of one row to that of the row eight below, and from one neighbour to the
    /// next.
    pub steps: [Expr; 3],
}

/// Loads a fragment from shared memory, all lanes of a warp together.
///
/// ```text
/// a[8*u step 4, 2, 1] left of mma.m16n8k16.bf16= x_tile[512*u + 16*k + 32*n] rows n
/// b[4*v step 2, 0, 1] right of mma.m16n8k16.bf16= w_tile[8*v + 512*k + 32*n] columns n
/// ```
///
/// What lies side by side are 16 bytes along the sum, of each row of the left operand and column of the right one, or, where they are
/// `columns`, 16 bytes of each reduced point, which are transposed on the way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FragmentLoad {
    /// The instruction.
    pub by: &'static Instruction,
    /// Which operand.
    pub side: Side,
    /// Where it goes.
    pub into: Fragment,
    /// Memory that is read.
    pub from: Mem,
    /// The variable of the rows that lie side by side: of rows or columns of the operand, or of reduced points.
    pub row: Sym,
    /// Where each of these begins.
    pub first: Expr,
    /// Whether they are of reduced points.
    pub is_transposed: bool,
}

/// Adds a product of two fragments to a third, by one instruction of a warp.
///
/// ```text
/// acc[4*v step 0, 2, 1] mma.m16n8k16.bf16= fragments a[8*u step 4, 2, 1] by b[4*v step 2, 0, 1]
/// ```
///
/// Numbers are as those of a [`Dot`](super::Dot).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FragmentProduct {
    /// The instruction.
    pub by: &'static Instruction,
    /// The sums.
    pub sum: Fragment,
    /// Rows, and reduced points.
    pub left: Fragment,
    /// Columns, and reduced points.
    pub right: Fragment,
}

impl Fragment {
    /// Where the element `inner` of a piece is, which is so many along the sum and so many rows of eight down.
    pub fn place(&self, [along, down, inner]: [Expr; 3]) -> Expr {
        self.first + self.steps[0] * along + self.steps[1] * down + self.steps[2] * inner
    }
}

impl FragmentLoad {
    /// How many rows that lie side by side there are, and of how many elements.
    pub fn extents(&self) -> [i64; 2] {
        let [rows, columns, depth] = self.by.shape();
        let across = if self.side == Side::Left { rows } else { columns };
        if self.is_transposed { [depth, across] } else { [across, depth] }
    }
}

impl FragmentProduct {
    /// The fragments, and what each is of.
    pub fn fragments(&self) -> [(Side, &Fragment); 3] {
        [(Side::Sums, &self.sum), (Side::Left, &self.left), (Side::Right, &self.right)]
    }
}
