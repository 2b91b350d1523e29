//! Merges what slabs of columns have come to, each by itself.
//!
//! The nests of the region have the slab as an axis, and leave for each what its sums are. Nests behind the region combine these in the order
//! of the slabs, and correct them by how far their extreme is from that of all, as an iteration corrects those of the one before. A slab without
//! columns has identities, which nothing corrects.

use super::{Body, Rewrite, element, element_at, made};
use crate::loops::Names;
use litz_analysis::online::Correction;
use litz_ir::ScalarOp;
use litz_ir::graph::TensorType;
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest};
use litz_sym::Expr;
use std::collections::BTreeMap;

impl Rewrite<'_> {
    /// Gives a nest of the region the slab as an axis, and to what it accesses of the region's own buffers as a coordinate.
    pub(super) fn put_in(&self, slab: Axis, nest: &mut Nest) {
        nest.axes.insert(0, slab);
        for inst in &mut nest.body {
            if let InstOp::Load { buf, index, .. } | InstOp::Store { buf, index, .. } = &mut inst.op
                && self.is_own(*buf)
            {
                index.insert(0, Expr::sym(slab.var));
            }
        }
    }

    fn is_own(&self, buf: Buf) -> bool {
        let is_changed = |at: &usize| {
            self.references.get(at).is_some_and(|reference| {
                [reference.next, reference.now].contains(&buf)
                    || reference.changes.iter().any(|change| change.1 == buf)
            })
        };
        self.sums.values().chain(self.pointwise.values()).any(|own| *own == buf)
            || self.references.keys().any(is_changed)
    }

    /// Adds to the region's nests what copies the sums of slabs out of it, and returns what merges them. From then on sums are those of all
    /// slabs.
    pub(super) fn merge(
        &mut self,
        loops: &mut Loops,
        names: &mut Names,
        slab: Axis,
        all: &mut Vec<Nest>,
    ) -> Vec<Nest> {
        let (mut parts, mut nears, mut totals) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut behind = Vec::new();
        for (at, reduction) in self.reductions() {
            let (like, sums) = (&self.nests[&at], self.sums[&at]);
            let (ty, device) = (loops.bufs[sums].dtype, loops.bufs[sums].device);
            let base = loops.bufs[sums].name.clone();
            let mut add = |axes: &[Axis], suffix: &str| {
                let sizes = axes.iter().map(|axis| axis.extent).collect();
                let ty = TensorType::contiguous(ty, sizes).on(device);
                names.add_buf(loops, &format!("{base}_{suffix}"), ty)
            };
            let axes = [&[slab], &like.axes[..]].concat();
            let (part, total) = (add(&axes, "part"), add(&like.axes, "total"));
            let near = self.references.contains_key(&at).then(|| add(&like.axes, "total_near"));
            let (of_slab, of_all) = (element(&axes), element(&like.axes));

            let mut copy = Body::default();
            let value = copy.load(ty, sums, &of_slab);
            copy.store(ty, part, &of_slab, value);
            all.push(made(like, names.statement(&format!("{}_part", like.name)), axes, Vec::new(), copy));

            let mut body = Body::default();
            let mut value = body.load(ty, part, &of_slab);
            for correction in &reduction.corrections {
                let Correction::Exp(op, shift) = correction else { continue };
                let point = element_at(&self.nests[&shift.of], &shift.point);
                let (extreme, near): (Buf, Buf) = (parts[&shift.of], nears[&shift.of]);
                let own = loops.bufs[extreme].dtype;
                let extreme = body.load(own, extreme, &[&[Expr::sym(slab.var)], &point[..]].concat());
                let near = body.load(own, near, &point);
                let difference = body.op(own, ScalarOp::Sub, &[extreme, near]);
                let exponent = body.times(own, difference, shift.times);
                let ratio = body.op(own, *op, &[exponent]);
                let ratio = if own == ty { ratio } else { body.push(ty, InstOp::Cast(ratio)) };
                value = body.op(ty, ScalarOp::Mul, &[value, ratio]);
            }
            let merged = body.push(ty, InstOp::Reduce(reduction.op, value));
            body.store(ty, total, &of_all, merged);
            if let Some(buf) = near {
                let near = self.near(&mut body, at, reduction, merged);
                body.store(ty, buf, &of_all, near);
                nears.insert(at, buf);
            }
            let name = names.statement(&format!("{}_merged", like.name));
            behind.push(made(like, name, like.axes.clone(), vec![slab], body));
            parts.insert(at, part);
            totals.insert(at, total);
        }
        self.sums = totals;
        behind
    }
}
