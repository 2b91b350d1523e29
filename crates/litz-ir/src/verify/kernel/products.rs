//! Checks the acts of kernels that sum products: dot products, products of matrices, and of fragments.

use super::Verifier;
use crate::kernel::{
    Dot, Fragment, FragmentLoad, FragmentProduct, MatrixProduct, MemorySpace, Operand, Panels, Rows,
};
use crate::target::{Instruction, Level, Side};

impl Verifier<'_> {
    pub(super) fn dot(&mut self, Dot { by, mem, index, terms }: &Dot) {
        let place = format!("{} to `{}`", by.name, self.mem_name(*mem));
        self.depth(by, terms.len(), by.rows == 1, &place);
        for factor in terms.iter().flatten() {
            self.element(factor.mem, &factor.index, &place);
            self.rels(&factor.guard, &place);
            self.operand(factor.mem, by.dtype, &place);
        }
        self.writable(*mem, index, &place);
        self.operand(*mem, by.sums, &place);
    }

    pub(super) fn matrix_product(&mut self, product: &MatrixProduct) {
        let MatrixProduct { by, sum, left, right, rows, columns, depth, over, .. } = product;
        let place = format!("{} to `{}`", by.name, self.mem_name(sum.mem));
        self.depth(by, *depth as usize, by.rows > 1, &place);
        let mark = self.report.enter();
        for axis in over {
            self.report.extent(axis.extent, &place);
            self.report.declare(axis.var);
        }
        for matrix in [left, right] {
            self.element(matrix.mem, &[matrix.first], &place);
            self.report.expr(matrix.step, &place);
            self.operand(matrix.mem, by.dtype, &place);
        }
        self.report.leave(mark);
        self.writable(sum.mem, &[sum.first], &place);
        self.operand(sum.mem, by.sums, &place);
        self.report.expr(sum.step, &place);
        self.report.extent(*rows, &place);
        self.report.extent(*columns, &place);
        for matrix in product.matrices() {
            self.flat(matrix.mem, &place);
        }
    }

    pub(super) fn fragment_load(&mut self, load: &FragmentLoad) {
        let FragmentLoad { by, side, into, rows } = load;
        let place = format!("{} of {} to `{}`", side.name(), by.name, self.mem_name(into.mem));
        let message = format_args!("{place}: a warpgroup loads no fragments");
        self.report.check(!by.is_of_warpgroup(), "wrong-fragment", message);
        self.of_team(by, by.columns, &place);
        self.fragment((*side, into), by, &place);
        self.fragment_rows((*side, rows), (by, by.columns), &place);
    }

    /// Checks that rows are in shared memory that instructions read.
    fn fragment_rows(
        &mut self,
        (side, rows): (Side, &Rows),
        (by, columns): (&Instruction, u32),
        place: &str,
    ) {
        let Rows { mem: from, row, first, is_transposed, panels } = rows;
        let mark = self.report.enter();
        self.report.declare(*row);
        self.element(*from, &[*first], place);
        self.report.leave(mark);
        self.operand(*from, by.dtype, place);
        self.flat(*from, place);
        let Some(data) = self.kernel.mems.get(*from) else { return };
        // Pairs of bytes are not transposed.
        let bytes = data.dtype.size();
        let is_beside = if *is_transposed { bytes == 2 } else { bytes <= 4 };
        let has_rows = data.swizzle.is_none_or(|swizzle| swizzle.unit as usize * bytes >= 16);
        let is_fit = data.space == MemorySpace::Shared && side != Side::Sums && is_beside && has_rows;
        let message = format_args!("{place}: `{}` has no rows of 16 bytes for it", data.name);
        self.report.check(is_fit, "wrong-fragment", message);
        let Some(Panels { columns: width, step }) = panels else { return };
        self.report.expr(*step, place);
        let [_, beside] = rows.extents(by, side, columns.into());
        let message = format_args!("{place}: {beside} elements of a row are no panels of {width}");
        let are_whole = *width > 0 && beside % i64::from(*width) == 0;
        self.report.check(are_whole && by.is_of_warpgroup(), "wrong-fragment", message);
    }

    pub(super) fn fragment_product(&mut self, product: &FragmentProduct) {
        let by = product.by;
        let place = format!("{} to `{}`", by.name, self.mem_name(product.sum.mem));
        self.of_team(by, product.columns, &place);
        for fragment in product.fragments() {
            self.fragment(fragment, by, &place);
        }
        for rows in product.rows() {
            self.fragment_rows(rows, (by, product.columns), &place);
        }
        let is_shared = |operand: &Operand| matches!(operand, Operand::Rows(_));
        let (is_left, is_right) = (is_shared(&product.left), is_shared(&product.right));
        let is_fit = if by.is_of_warpgroup() { is_right } else { !is_left && !is_right };
        let message =
            format_args!("{place}: operands of a warp are fragments, the right one of a warpgroup is shared");
        self.report.check(is_fit, "wrong-fragment", message);
    }

    /// Checks that an instruction is one of a warp or warpgroup, which comes there, and takes so many columns.
    fn of_team(&mut self, by: &Instruction, columns: u32, place: &str) {
        let (level, is_of_gpu, is_wide) = match by.is_of_warpgroup() {
            true => {
                (Level::Warpgroup, true, columns > 0 && columns.is_multiple_of(8) && columns <= by.columns)
            }
            false => (Level::Warp, by.rows > 1 && by.columns == 8, columns == by.columns),
        };
        let message = format_args!("{place}: it is no instruction of threads for {columns} columns");
        self.report.check(is_of_gpu && is_wide, "instruction-shape", message);
        let is_there = self.around.last() == Some(&level);
        let message = format_args!("{place}: what comes here is no {}", level.name());
        self.report.check(is_there, "wrong-fragment", message);
    }

    fn fragment(&mut self, (side, fragment): (Side, &Fragment), by: &Instruction, place: &str) {
        let Fragment { mem, first, steps } = fragment;
        self.element(*mem, &[*first], place);
        self.operand(*mem, if side == Side::Sums { by.sums } else { by.dtype }, place);
        let is_own =
            self.kernel.mems.get(*mem).is_some_and(|data| data.space == MemorySpace::Own && data.is_flat());
        let message = format!("{place}: threads have no `{}` of their own", self.mem_name(*mem));
        self.report.check(is_own, "wrong-fragment", message);
        steps.iter().for_each(|&step| self.report.expr(step, place));
    }

    /// Checks that an instruction takes so many reduced points, of a product that is of its shape.
    fn depth(&mut self, by: &Instruction, points: usize, is_of_shape: bool, place: &str) {
        let is_deep = (1..=by.depth as usize).contains(&points) && points.is_multiple_of(by.group as usize);
        let message = format_args!(
            "{place}: the instruction takes up to {} points, in groups of {}",
            by.depth, by.group
        );
        self.report.check(is_deep && is_of_shape, "instruction-shape", message);
    }
}
