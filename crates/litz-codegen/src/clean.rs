//! Removes from a kernel what nothing reads: stores to locals never loaded, values never used, empty loops.

use litz_ir::ids::Id;
use litz_ir::kernel::{Kernel, Mem, Op, Space, Stmt, Val};
use litz_ir::loops::Axis;
use litz_sym::Expr;

/// Removes dead statements until none is left.
pub fn clean(kernel: &mut Kernel) {
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
        let local: Vec<bool> =
            kernel.mems.values().map(|m| matches!(m.space, Space::Register | Space::Scratch)).collect();
        let dead_mem = |m: Mem| local[m.index()] && !uses.loaded[m.index()];
        let mut body = std::mem::take(&mut kernel.body);
        let removed = sweep(&mut body, &dead_mem, &uses.used);
        kernel.body = body;
        if !removed {
            break;
        }
    }
    drop_unused_locals(kernel);
}

struct Uses {
    loaded: Vec<bool>,
    used: Vec<bool>,
    pairs: Vec<(Mem, Mem)>,
}

impl Uses {
    fn visit(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => self.visit(&l.body),
                Stmt::If { then, other, .. } => {
                    self.visit(then);
                    self.visit(other);
                }
                Stmt::Let { op, .. } => {
                    if let Op::Load { mem, .. } = op {
                        self.loaded[mem.index()] = true;
                    }
                    op.operands().iter().for_each(|v| self.used[v.index()] = true);
                }
                Stmt::Bind { value, .. } | Stmt::Store { value, .. } => self.used[value.index()] = true,
                Stmt::ArgStore { best, at, value, .. } => {
                    self.used[value.index()] = true;
                    self.pairs.push((*best, *at));
                }
            }
        }
    }
}

/// Removes dead statements once; true when any was.
fn sweep(stmts: &mut Vec<Stmt>, dead_mem: &dyn Fn(Mem) -> bool, used: &[bool]) -> bool {
    let before = stmts.len();
    let mut removed = false;
    for stmt in stmts.iter_mut() {
        match stmt {
            Stmt::Loop(l) => removed |= sweep(&mut l.body, dead_mem, used),
            Stmt::If { then, other, .. } => {
                removed |= sweep(then, dead_mem, used);
                removed |= sweep(other, dead_mem, used);
            }
            Stmt::Let { .. } | Stmt::Bind { .. } | Stmt::Store { .. } | Stmt::ArgStore { .. } => {}
        }
    }
    stmts.retain(|stmt| match stmt {
        Stmt::Loop(l) => !l.body.is_empty(),
        Stmt::If { then, other, .. } => !(then.is_empty() && other.is_empty()),
        Stmt::Let { val, .. } => used[val.index()],
        Stmt::Bind { .. } => true,
        Stmt::Store { mem, .. } => !dead_mem(*mem),
        Stmt::ArgStore { at, .. } => !dead_mem(*at),
    });
    removed || stmts.len() != before
}

/// Renumbers memories so that locals nothing mentions disappear, and values so that ids are in order of definition.
fn drop_unused_locals(kernel: &mut Kernel) {
    let mut mentioned = vec![false; kernel.mems.len()];
    (0..kernel.params).for_each(|i| mentioned[i] = true);
    each_stmt(&kernel.body, &mut |s| match s {
        Stmt::Let { op: Op::Load { mem, .. }, .. } | Stmt::Store { mem, .. } => mentioned[mem.index()] = true,
        Stmt::ArgStore { best, at, .. } => {
            mentioned[best.index()] = true;
            mentioned[at.index()] = true;
        }
        Stmt::Loop(_) | Stmt::If { .. } | Stmt::Let { .. } | Stmt::Bind { .. } => {}
    });
    let mut mems = litz_ir::ids::Table::new();
    let mut new_mem = vec![Mem(0); kernel.mems.len()];
    for (id, data) in kernel.mems.iter() {
        if mentioned[id.index()] {
            new_mem[id.index()] = mems.push(data.clone());
        }
    }
    kernel.mems = mems;
    let mut vals = litz_ir::ids::Table::new();
    let mut new_val = vec![Val(0); kernel.vals.len()];
    let old = std::mem::take(&mut kernel.vals);
    renumber(&mut kernel.body, &mut |v, define| {
        if define {
            new_val[v.index()] = vals.push(old[v]);
        }
        new_val[v.index()]
    });
    kernel.vals = vals;
    rename_mems(&mut kernel.body, &|m| new_mem[m.index()]);
}

fn renumber(stmts: &mut [Stmt], f: &mut dyn FnMut(Val, bool) -> Val) {
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) => renumber(&mut l.body, f),
            Stmt::If { then, other, .. } => {
                renumber(then, f);
                renumber(other, f);
            }
            Stmt::Let { val, op } => {
                match op {
                    Op::Call(_, args) => args.iter_mut().for_each(|v| *v = f(*v, false)),
                    Op::Cast(v) | Op::Round(_, v) | Op::Bitcast(v) => *v = f(*v, false),
                    Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Cond(_) => {}
                }
                *val = f(*val, true);
            }
            Stmt::Bind { value, .. } | Stmt::Store { value, .. } | Stmt::ArgStore { value, .. } => {
                *value = f(*value, false);
            }
        }
    }
}

fn rename_mems(stmts: &mut [Stmt], f: &dyn Fn(Mem) -> Mem) {
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) => rename_mems(&mut l.body, f),
            Stmt::If { then, other, .. } => {
                rename_mems(then, f);
                rename_mems(other, f);
            }
            Stmt::Let { op: Op::Load { mem, .. }, .. } | Stmt::Store { mem, .. } => *mem = f(*mem),
            Stmt::ArgStore { best, at, .. } => {
                *best = f(*best);
                *at = f(*at);
            }
            Stmt::Let { .. } | Stmt::Bind { .. } => {}
        }
    }
}

fn each_stmt(stmts: &[Stmt], f: &mut dyn FnMut(&Stmt)) {
    for stmt in stmts {
        f(stmt);
        match stmt {
            Stmt::Loop(l) => each_stmt(&l.body, f),
            Stmt::If { then, other, .. } => {
                each_stmt(then, f);
                each_stmt(other, f);
            }
            Stmt::Let { .. } | Stmt::Bind { .. } | Stmt::Store { .. } | Stmt::ArgStore { .. } => {}
        }
    }
}

/// Calls `f` on every expression a kernel mentions.
pub fn each_expr(kernel: &Kernel, f: &mut dyn FnMut(Expr)) {
    kernel.grid.iter().for_each(|Axis { extent, .. }| f(*extent));
    kernel.mems.values().for_each(|m| f(m.extent));
    each_stmt(&kernel.body, &mut |stmt| match stmt {
        Stmt::Loop(l) => f(l.extent),
        Stmt::If { cond, .. } => cond.iter().for_each(|r| {
            f(r.lhs);
            f(r.rhs);
        }),
        Stmt::Let { op, .. } => match op {
            Op::Load { index, guard, .. } => {
                f(*index);
                guard.iter().for_each(|r| {
                    f(r.lhs);
                    f(r.rhs);
                });
            }
            Op::Index(e) => f(*e),
            Op::Cond(r) => {
                f(r.lhs);
                f(r.rhs);
            }
            Op::Const(_) | Op::Call(..) | Op::Cast(_) | Op::Round(..) | Op::Bitcast(_) => {}
        },
        Stmt::Bind { extent, .. } => f(*extent),
        Stmt::Store { index, guard, .. } => {
            f(*index);
            guard.iter().for_each(|r| {
                f(r.lhs);
                f(r.rhs);
            });
        }
        Stmt::ArgStore { index, position, .. } => {
            f(*index);
            f(*position);
        }
    });
}
