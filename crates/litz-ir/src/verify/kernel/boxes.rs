//! Checks boxes that are copied to shared memory.

use super::Verifier;
use crate::dtype::Dtype;
use crate::kernel::{BoxCopy, BoxDim, BoxPoints, MemorySpace, PointDim};
use crate::target::{Gpu, Level};

impl Verifier<'_> {
    /// Checks that one thread that fills a ring has a box copied, which the hardware has dimensions for.
    pub(super) fn box_copy(&mut self, copy: &BoxCopy) {
        let BoxCopy { from, origin, to, first, points, dims, rounds } = copy;
        let before = self.report.diags.len();
        let place = format!("box to `{}`", self.mem_name(*to));
        self.element(*from, &[*origin], &place);
        self.writable(*to, &[*first], &place);
        for mem in [*from, *to] {
            self.flat(mem, &place);
        }
        let data = [from, to].map(|mem| self.kernel.mems.get(*mem));
        self.report.same_type(data[0].map(|data| data.dtype), data[1].map(|data| data.dtype), &place);
        let message = format_args!("{place}: elements of f32 alone become numbers of tf32");
        let is_float = data[1].is_none_or(|data| data.dtype == Dtype::F32);
        self.report.check(!rounds || is_float, "wrong-box", message);
        for BoxDim { count, step, range } in dims {
            let message =
                format_args!("{place}: {count} elements along a dimension, not 1 to {}", Gpu::BOX_ELEMENTS);
            self.report.check((1..=Gpu::BOX_ELEMENTS).contains(count), "wrong-box", message);
            self.report.expr(*step, &place);
            range.iter().flatten().for_each(|&bound| self.report.expr(bound, &place));
        }
        let most = if points.is_some() { 1 } else { BoxCopy::DIMS };
        let message = format_args!("{place}: {} dimensions, not 1 to {most}", dims.len());
        self.report.check((1..=most).contains(&dims.len()), "wrong-box", message);
        points.iter().for_each(|points| self.box_points(points, &place));
        let is_known = data[1]
            .is_none_or(|data| data.swizzle.is_none_or(|swizzle| swizzle.is_of_boxes(data.dtype.size())));
        let message = format_args!("{place}: units change places there otherwise than boxes put them");
        self.report.check(is_known, "wrong-box", message);
        let message = format_args!("{place}: the elements of its rows are apart");
        self.report.check(dims.last().is_none_or(|dim| dim.step.is_one()), "wrong-box", message);
        let is_between =
            data.map(|data| data.map(|data| data.space == MemorySpace::Shared)) == [Some(false), Some(true)];
        let message = format_args!("{place}: it is copied from global to shared memory");
        self.report.check(is_between, "wrong-box", message);
        let is_one = !self.around.iter().any(|level| matches!(level, Level::Thread | Level::Lane));
        let message = format_args!("{place}: one thread has it copied, and this is a loop over threads");
        self.report.check(is_one, "wrong-box", message);
        let message = format_args!("{place}: no ring is filled here");
        self.report.check(self.is_filling, "wrong-box", message);
        // What is known to be wrong with it has been said.
        let is_known =
            points.is_none() || self.report.diags.len() > before || copy.cut(self.kernel).is_some();
        let message =
            format_args!("{place}: its origin may be negative, or its corners or taps are too far away");
        self.report.check(is_known, "wrong-box", message);
    }

    /// Checks that the hardware goes through such points.
    fn box_points(&mut self, points: &BoxPoints, place: &str) {
        let BoxPoints { count, first, dims } = points;
        self.report.expr(*first, place);
        let message = format_args!("{place}: {count} points, not 1 to {}", Gpu::BOX_ELEMENTS);
        self.report.check((1..=Gpu::BOX_ELEMENTS).contains(count), "wrong-box", message);
        let [least, most] = [BoxPoints::DIMS.start(), BoxPoints::DIMS.end()];
        let message =
            format_args!("{place}: its points go through {} dimensions, not {least} to {most}", dims.len());
        self.report.check(BoxPoints::DIMS.contains(&dims.len()), "wrong-box", message);
        let limit = BoxPoints::limit(dims.len());
        for (number, PointDim { count, by, step, corner, offset, end }) in dims.iter().enumerate() {
            [count, step, offset, end].into_iter().for_each(|&at| self.report.expr(at, place));
            let message = format_args!("{place}: points are {by} apart, not 1 to {}", BoxPoints::MOST_BY);
            self.report.check((1..=BoxPoints::MOST_BY).contains(by), "wrong-box", message);
            let message =
                format_args!("{place}: the first point is at {corner}, not {} to {}", -limit, limit - 1);
            self.report.check((-limit..limit).contains(corner), "wrong-box", message);
            let is_plain = *by == 1 && *corner == 0 && offset.is_zero();
            let message =
                format_args!("{place}: the outermost dimension is gone through one by one, from zero on");
            self.report.check(number > 0 || is_plain, "wrong-box", message);
        }
    }
}
