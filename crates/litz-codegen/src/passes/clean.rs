//! Removes from a kernel what nothing reads: stores to locals never loaded, values never used, empty loops.

use super::Pass;
use litz_ir::Diag;
use litz_ir::ids::{Id, Table};
use litz_ir::kernel::{
    Act, BoxCopy, Dot, Element, Fragment, FragmentLoad, FragmentProduct, Kernel, LaneReduction, Matrix,
    MatrixProduct, Mem, MemorySpace, PartMut, Stmt, Val, visit, visit_mut,
};
use litz_ir::target::Target;
use std::collections::HashSet;

/// The pass.
pub const PASS: Pass = Pass { name: "clean", run };

/// Removes dead statements until none is left.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    loop {
        let mut uses = Uses {
            loaded: vec![false; kernel.mems.len()],
            used: vec![false; kernel.vals.len()],
            pairs: Vec::new(),
        };
        uses.visit(&kernel.body);
        // A pair of best value and position lives or dies by its position.
        for (best, at) in std::mem::take(&mut uses.pairs) {
            uses.loaded[best.index()] |= uses.loaded[at.index()];
        }
        let local: Vec<bool> = kernel
            .mems
            .values()
            .map(|m| matches!(m.space, MemorySpace::Register | MemorySpace::Scratch | MemorySpace::Own))
            .collect();
        let dead_mem = |m: Mem| local[m.index()] && !uses.loaded[m.index()];
        let mut body = std::mem::take(&mut kernel.body);
        let removed = sweep(&mut body, &dead_mem, &uses.used);
        kernel.body = body;
        if !removed {
            break;
        }
    }
    drop_unused_locals(kernel);
    Ok(())
}

struct Uses {
    loaded: Vec<bool>,
    used: Vec<bool>,
    pairs: Vec<(Mem, Mem)>,
}

impl Uses {
    fn visit(&mut self, stmts: &[Stmt]) {
        visit(stmts, &mut |stmt| {
            stmt.loaded().for_each(|(mem, _)| self.loaded[mem.index()] = true);
            match stmt {
                Stmt::Act(Act::ArgStore { best, at, .. }) => self.pairs.push((*best, *at)),
                Stmt::Act(Act::Lanes(LaneReduction { into, positions: Some([at, _]), .. })) => {
                    self.pairs.push((*into, *at));
                }
                Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => {}
            }
            stmt.each_value(&mut |value| self.used[value.index()] = true);
        });
    }
}

/// Removes dead statements once; true when any was.
fn sweep(stmts: &mut Vec<Stmt>, dead_mem: &dyn Fn(Mem) -> bool, used: &[bool]) -> bool {
    let before = stmts.len();
    let mut removed = false;
    for block in stmts.iter_mut().flat_map(Stmt::blocks_mut) {
        removed |= sweep(block, dead_mem, used);
    }
    stmts.retain(|stmt| match stmt {
        Stmt::Loop(l) => !l.body.is_empty(),
        Stmt::If { then, other, .. } => !(then.is_empty() && other.is_empty()),
        Stmt::Act(Act::Let { val, .. }) => used[val.index()],
        Stmt::Act(Act::Bind { .. } | Act::Sync(_)) => true,
        Stmt::Act(
            Act::Store { mem, .. }
            | Act::MulAdd { mem, .. }
            | Act::Dot(Dot { mem, .. })
            | Act::MatrixProduct(MatrixProduct { sum: Matrix { mem, .. }, .. })
            | Act::FragmentLoad(FragmentLoad { into: Fragment { mem, .. }, .. })
            | Act::FragmentProduct(FragmentProduct { sum: Fragment { mem, .. }, .. })
            | Act::Copy { to: Element { mem, .. }, .. }
            | Act::BoxCopy(BoxCopy { to: mem, .. })
            | Act::Prefetch { mem, .. },
        ) => !dead_mem(*mem),
        Stmt::Act(Act::Lanes(LaneReduction { into, positions, .. })) => {
            !dead_mem(positions.map_or(*into, |[at, _]| at))
        }
        Stmt::Act(Act::ArgStore { at, .. }) => !dead_mem(*at),
    });
    removed || stmts.len() != before
}

/// Renumbers memories so that locals nothing mentions disappear, and values so that ids are in order of definition.
fn drop_unused_locals(kernel: &mut Kernel) {
    let mut mentioned = vec![false; kernel.mems.len()];
    (0..kernel.params).for_each(|i| mentioned[i] = true);
    visit(&kernel.body, &mut |stmt| {
        stmt.accesses().for_each(|(mem, _)| mentioned[mem.index()] = true);
    });
    let mut mems = Table::new();
    let mut new_mem = vec![Mem(0); kernel.mems.len()];
    for (id, data) in kernel.mems.iter() {
        if mentioned[id.index()] {
            new_mem[id.index()] = mems.push(data.clone());
        }
    }
    kernel.mems = mems;
    let old = std::mem::take(&mut kernel.vals);
    let mut vals = Table::new();
    let mut new_val = vec![Val(0); old.len()];
    visit(&kernel.body, &mut |stmt| {
        if let Stmt::Act(Act::Let { val, .. }) = stmt {
            new_val[val.index()] = vals.push(old[*val]);
        }
    });
    kernel.vals = vals;
    visit_mut(&mut kernel.body, &mut |stmt| {
        stmt.each_part_mut(&mut |part| match part {
            PartMut::Access { mem, beside, .. } => {
                [Some(mem), beside].into_iter().flatten().for_each(|mem| *mem = new_mem[mem.index()]);
            }
            PartMut::Val(value) => *value = new_val[value.index()],
            PartMut::Expr(_) | PartMut::Rel(_) => {}
        });
        if let Stmt::Act(Act::Let { val, .. }) = stmt {
            *val = new_val[val.index()];
        }
    });
}

/// Removes values from statements that nothing in them uses, as long as nothing outside does.
pub(super) fn drop_unused(body: &mut Vec<Stmt>) {
    let mut used = HashSet::new();
    let mut kept: Vec<Stmt> = Vec::new();
    for stmt in std::mem::take(body).into_iter().rev() {
        if matches!(&stmt, Stmt::Act(Act::Let { val, .. }) if !used.contains(val)) {
            continue;
        }
        visit(std::slice::from_ref(&stmt), &mut |stmt| stmt.each_value(&mut |val| _ = used.insert(val)));
        kept.push(stmt);
    }
    kept.reverse();
    *body = kept;
}
