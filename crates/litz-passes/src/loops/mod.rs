//! Rewrites of loops programs.

pub mod cse;
pub mod dead;
mod edits;
pub mod fold;
pub mod inline;
mod names;
pub mod online;
pub mod pack;
pub mod pad;
pub mod split_reduce;
pub mod transpose;
mod uses;

use edits::Edits;
use litz_ir::Dtype;
use litz_ir::ids::Id;
use litz_ir::loops::{Buf, BufKind, Loops, Nest, Stmt};
use litz_sym::Expr;
use names::Names;
use uses::Uses;

/// Numbers of the target and thresholds that rewrites of loops go by.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Columns of a product's register tile: operands are packed to this width.
    pub tile_columns: u32,
    /// Element types whose products are summed several at a time, with how many neighbouring reduced elements a matrix
    /// instruction takes from each column: operands of those types are packed in such groups.
    pub groups: Vec<(Dtype, u32)>,
    /// Cost of a body (see [`inline::cost`]) that is recomputed rather than stored when it has several readers.
    pub cheap: u32,
    /// Instructions a nest may have after taking in its producers.
    pub max_body: usize,
    /// Loads a nest may have after taking in its producers.
    pub max_loads: usize,
    /// Bytes of the cache of one core.
    pub cache_bytes: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            tile_columns: 32,
            groups: Vec::new(),
            cheap: 4,
            max_body: 100,
            max_loads: 12,
            cache_bytes: 1 << 20,
        }
    }
}

/// A rewrite of loops programs; says how many things it changed.
pub struct Pass {
    /// Name: of the file, the flag and the test folder.
    pub name: &'static str,
    /// The rewrite.
    pub run: fn(&mut Loops, &Settings) -> usize,
}

/// Every rewrite, in the order they run.
pub const PASSES: &[Pass] = &[
    Pass { name: "inline", run: inline::run },
    Pass { name: "fold", run: fold::run },
    Pass { name: "pad", run: pad::run },
    Pass { name: "pack", run: pack::run },
    Pass { name: "transpose", run: transpose::run },
    Pass { name: "online", run: online::run },
    Pass { name: "split_reduce", run: split_reduce::run },
    Pass { name: "dead", run: dead::run },
];

/// For each buffer whether its contents depend on the model alone: on constants that nothing updates, and on no size.
pub fn constants(loops: &Loops) -> Vec<bool> {
    let updated = |b: Buf| loops.updates.iter().any(|u| u.0 == b);
    let mut constant: Vec<bool> = loops
        .bufs
        .iter()
        .map(|(buf, data)| match data.kind {
            BufKind::Input => false,
            BufKind::Const(_) => !updated(buf),
            BufKind::Temp => true,
        })
        .collect();
    let fixed: Vec<bool> =
        loops.stmts.iter().map(|s| !s.reads().is_empty() && !mentions_sizes(loops, s)).collect();
    loop {
        let mut changed = false;
        for (stmt, fixed) in loops.stmts.iter().zip(&fixed) {
            if *fixed && stmt.reads().iter().all(|b| constant[b.index()]) {
                continue;
            }
            for buf in stmt.writes() {
                changed |= std::mem::replace(&mut constant[buf.index()], false);
            }
        }
        if !changed {
            return constant;
        }
    }
}

fn mentions_sizes(loops: &Loops, stmt: &Stmt) -> bool {
    let size = |e: Expr| e.syms().into_iter().any(|s| loops.facts.is_symbol_declared(s));
    let in_nest = |n: &Nest| {
        n.all_axes().any(|a| size(a.extent)) || n.body.iter().any(|i| i.op.exprs().into_iter().any(size))
    };
    match stmt {
        Stmt::Nest(_) | Stmt::Region(_) => stmt.nests().iter().any(in_nest),
        Stmt::Extern(e) => e.ints.iter().any(|&i| size(i)),
    }
}
