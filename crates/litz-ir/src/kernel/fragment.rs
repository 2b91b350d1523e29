//! Defines the acts by which the lanes of a warp load operands of matrix instructions into registers, and multiply them.

use litz_sym::{Expr, Sym};

use super::Mem;
use crate::target::{Instruction, Side};

/// What each lane of a warp has of an operand or of the sums of an instruction: elements of memory that each thread has of its own.
///
/// They come in pieces of neighbours; [`Side::pieces`] says how many, and [`Side::of_thread`] which element of the
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
    /// Where it comes from.
    pub rows: Rows,
}

/// An operand in shared memory: rows of elements that lie side by side, in units of 16 bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rows {
    /// The memory.
    pub mem: Mem,
    /// The variable of the rows that lie side by side: of rows or columns of the operand, or of reduced points.
    pub row: Sym,
    /// Where each of these begins.
    pub first: Expr,
    /// Whether they are of reduced points.
    pub is_transposed: bool,
    /// Where what is longer than a row goes on, if it does.
    pub panels: Option<Panels>,
}

/// Rows of an operand that are cut into panels, which lie behind each other: `w_tile[64*n] columns n panels 64 step 4096` are 64 columns of all
/// reduced points `n`, and 4096 elements further the next 64.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Panels {
    /// Elements of a row that lie side by side.
    pub columns: u32,
    /// Elements from a panel to the next.
    pub step: Expr,
}

/// An operand of a product.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// What each thread has of it.
    Own(Fragment),
    /// Shared memory that the instruction of a warpgroup reads itself.
    Rows(Rows),
}

/// Adds a product of two fragments to a third, by one instruction of a warp, or of two operands by one of a warpgroup.
///
/// ```text
/// acc[4*v step 0, 2, 1] mma.m16n8k16.bf16= fragments a[8*u step 4, 2, 1] by b[4*v step 2, 0, 1]
/// acc[0 step 2, 32, 1] wgmma.m64k16.bf16= fragments x_tile[64*n] rows n by w_tile[64*n] rows n in 128
/// ```
///
/// The instruction of a warpgroup goes on in the background: until `wait products` nobody touches the sums, nor changes the operands.
/// Numbers are as those of a [`Dot`](super::Dot).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FragmentProduct {
    /// The instruction.
    pub by: &'static Instruction,
    /// How many columns.
    pub columns: u32,
    /// The sums.
    pub sum: Fragment,
    /// Rows, and reduced points.
    pub left: Operand,
    /// Columns, and reduced points: of a warpgroup in shared memory.
    pub right: Operand,
}

impl Fragment {
    /// Where the element `inner` of a piece is, which is so many along the sum and so many rows of eight down.
    pub fn place(&self, [along, down, inner]: [Expr; 3]) -> Expr {
        self.first + self.steps[0] * along + self.steps[1] * down + self.steps[2] * inner
    }
}

impl Rows {
    /// How many rows that lie side by side there are, and of how many elements, of an operand of an instruction that takes so many columns.
    pub fn extents(&self, by: &Instruction, side: Side, columns: i64) -> [i64; 2] {
        let [rows, _, depth] = by.shape();
        let across = if side == Side::Left { rows } else { columns };
        if self.is_transposed { [depth, across] } else { [across, depth] }
    }

    /// How far from the beginning of its row an element is, in memory.
    pub fn beside(&self, element: Expr) -> Expr {
        match &self.panels {
            None => element,
            Some(Panels { columns, step }) => {
                let columns = i64::from(*columns);
                element.floordiv(columns) * *step + element.modulo(columns)
            }
        }
    }
}

impl FragmentProduct {
    /// What threads have of their own, and what each is of.
    pub fn fragments<'a>(&'a self) -> Vec<(Side, &'a Fragment)> {
        let operands = [(Side::Left, &self.left), (Side::Right, &self.right)];
        let own = |(side, operand): (Side, &'a Operand)| match operand {
            Operand::Own(own) => Some((side, own)),
            Operand::Rows(_) => None,
        };
        std::iter::once((Side::Sums, &self.sum)).chain(operands.into_iter().filter_map(own)).collect()
    }

    /// As [`FragmentProduct::fragments`], to be changed.
    pub fn fragments_mut<'a>(&'a mut self) -> Vec<(Side, &'a mut Fragment)> {
        let operands = [(Side::Left, &mut self.left), (Side::Right, &mut self.right)];
        let own = |(side, operand): (Side, &'a mut Operand)| match operand {
            Operand::Own(own) => Some((side, own)),
            Operand::Rows(_) => None,
        };
        std::iter::once((Side::Sums, &mut self.sum)).chain(operands.into_iter().filter_map(own)).collect()
    }

    /// What lies in shared memory, and which operand it is.
    pub fn rows<'a>(&'a self) -> Vec<(Side, &'a Rows)> {
        let shared = |(side, operand): (Side, &'a Operand)| match operand {
            Operand::Rows(rows) => Some((side, rows)),
            Operand::Own(_) => None,
        };
        [(Side::Left, &self.left), (Side::Right, &self.right)].into_iter().filter_map(shared).collect()
    }

    /// Rows, columns and reduced points.
    pub fn shape(&self) -> [i64; 3] {
        let [rows, _, depth] = self.by.shape();
        [rows, i64::from(self.columns), depth]
    }
}
