//! Says which elements of matrices the lanes of a warp have for an instruction.
//!
//! All instructions of warps that the language has lay them out by one rule (PTX ISA, fragments of `mma.m16n8k4` to `mma.m16n8k32`): a
//! register of 32 bits has `group` neighbouring reduced points, four lanes have those of a row side by side, eight fours the rows. Of an
//! instruction of 16 rows a lane has those of two rows, eight apart, and along the sum as many pieces as it takes to be as deep.
//! Doubles have two registers each, and the same places. Of an instruction of a warpgroup each warp has 16 rows, as of its own, and sums in pieces of
//! eight columns (`wgmma.m64nNk16`).

use super::{Gpu, Instruction};
use litz_sym::Expr;

/// Rows of the sums that a warp has, at most: a warpgroup has those of its warps below each other.
const WARP_ROWS: i64 = 16;

/// A matrix of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The left operand: rows, and reduced points.
    Left,
    /// The right operand: columns, and reduced points.
    Right,
    /// The sums: rows, and columns.
    Sums,
}

impl Side {
    /// Those that are loaded.
    pub const OPERANDS: [Side; 2] = [Side::Left, Side::Right];

    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            Side::Left => "left",
            Side::Right => "right",
            Side::Sums => "sums",
        }
    }

    /// What a thread has, of an instruction that takes so many columns: pieces along the sum, or of sums across the columns, pieces eight rows
    /// apart, and the neighbours of a piece.
    pub fn pieces(self, by: &Instruction, columns: i64) -> [i64; 3] {
        let [rows, _, depth] = by.shape();
        let (group, down) = (i64::from(by.group), rows.min(WARP_ROWS) / 8);
        match self {
            Side::Left => [depth / (4 * group), down, group],
            Side::Right => [depth / (4 * group), 1, group],
            Side::Sums => [columns / 8, down, 2],
        }
    }

    /// The elements of a thread.
    pub fn elements(self, by: &Instruction, columns: i64) -> i64 {
        self.pieces(by, columns).into_iter().product()
    }

    /// Row and reduced point, column and reduced point, or row and column of an element that a thread has of those that run an instruction:
    /// the `inner`-th of its piece, which is so many along the sum or the columns, and so many rows of eight down.
    pub fn of_thread(self, by: &Instruction, thread: Expr, [along, down, inner]: [Expr; 3]) -> [Expr; 2] {
        let group = i64::from(by.group);
        let (warp, lane) = match by.is_of_warpgroup() {
            true => (thread.floordiv(i64::from(Gpu::LANES)), thread.modulo(i64::from(Gpu::LANES))),
            false => (Expr::zero(), thread),
        };
        let (four, place) = (lane.floordiv(4), lane.modulo(4));
        let row = warp * WARP_ROWS + four + down * 8;
        match self {
            Side::Left | Side::Right => [row, place * group + along * (4 * group) + inner],
            Side::Sums => [row, place * 2 + along * 8 + inner],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::GpuIsa;
    use std::collections::BTreeSet;

    /// The lanes of a warp have each element of each matrix of each instruction once.
    #[test]
    fn lanes_have_all_of_a_matrix() {
        for by in GpuIsa::Sm90.instructions() {
            let [rows, columns, depth] = by.shape();
            for (side, sizes) in
                [(Side::Left, [rows, depth]), (Side::Right, [columns, depth]), (Side::Sums, [rows, columns])]
            {
                if side == Side::Right && by.is_of_warpgroup() {
                    continue;
                }
                let [along, down, inner] = side.pieces(by, columns);
                let mut found = BTreeSet::new();
                for lane in 0..i64::from(by.threads()) {
                    for piece in 0..along * down * inner {
                        let at = [piece / (down * inner), piece / inner % down, piece % inner].map(Expr::int);
                        let place =
                            side.of_thread(by, Expr::int(lane), at).map(|e| e.as_int().expect("a number"));
                        assert!(
                            (0..2).all(|dim| (0..sizes[dim]).contains(&place[dim])),
                            "{}: {place:?}",
                            by.name
                        );
                        assert!(found.insert(place), "{}: {place:?} twice", by.name);
                    }
                }
                assert_eq!(found.len() as i64, sizes[0] * sizes[1], "{}: {side:?}", by.name);
            }
        }
    }

    /// Sums lie as they did where schedules say so themselves.
    #[test]
    fn sums_are_those_of_schedules() {
        let by = Instruction::mma("mma.m16n8k16.bf16").expect("an instruction");
        for (lane, down, inner) in
            (0..32).flat_map(|lane| [(lane, 0, 0), (lane, 0, 1), (lane, 1, 0), (lane, 1, 1)])
        {
            let [lane, down, inner] = [lane, down, inner].map(Expr::int);
            let own = Side::Sums.of_thread(by, lane, [Expr::zero(), down, inner]);
            assert_eq!(own, Gpu::sum_of_thread([Expr::zero(), lane], [down, inner]));
        }
    }
}
