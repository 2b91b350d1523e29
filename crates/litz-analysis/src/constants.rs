//! Decides which statements depend on the model alone, so that they can run once, when it is loaded.

use std::collections::HashSet;

use litz_ir::ids::Table;
use litz_ir::loops::{Buf, BufKind, Callee, Loops, Nest, Span, Stmt};
use litz_sym::Expr;

use crate::uses::Uses;

/// What depends on the model alone.
///
/// A statement does if it reads something, nothing but constants, mentions no size, and stores into memory of a size that
/// is a number: what is kept from one call to the next is allocated before any call. A buffer does if it is a constant that no call updates, or if *all* its
/// writers do: what a call writes again has to be written whole by that call. So the two go together, and what is left is the
/// largest set in which they agree. Regions and calls of the host are left out: these run at every call.
#[derive(Clone, Debug)]
pub struct Constants {
    stmts: Vec<bool>,
    bufs: Table<Buf, bool>,
}

impl Constants {
    /// Finds the constants of a program. `regions` are the spans of statements that are nests of one region.
    pub fn of(loops: &Loops, regions: &[Span], uses: &Uses) -> Constants {
        let updated: HashSet<Buf> = loops.updates.iter().map(|update| update.0).collect();
        let is_repeated = |at: usize| regions.iter().any(|region| region.stmts.contains(&at));
        let is_fixed = |buf: &Buf| loops.bufs[*buf].sizes.iter().all(|size| size.as_int().is_some());
        let may_be = |(at, stmt): (usize, &Stmt)| {
            !uses.reads_of(at).is_empty()
                && stmt.host_call().is_none()
                && !matches!(stmt, Stmt::Recurrence(_))
                && is_routine(stmt)
                && !is_repeated(at)
                && !mentions_sizes(loops, stmt)
                && uses.writes_of(at).iter().all(is_fixed)
        };
        let mut constants =
            Constants { stmts: loops.stmts.iter().enumerate().map(may_be).collect(), bufs: Table::new() };
        for (buf, data) in loops.bufs.iter() {
            constants.bufs.push(match data.kind {
                BufKind::Input => false,
                BufKind::Const(_) => !updated.contains(&buf),
                BufKind::Temp => !uses.writers(buf).is_empty(),
            });
        }
        // Statements whose buffers are to be looked at again, and the other way round, until neither takes one more out.
        let mut varying: Vec<Buf> =
            constants.bufs.iter().filter(|(_, is_constant)| !**is_constant).map(|(buf, _)| buf).collect();
        let late = constants.stmts.iter().enumerate().filter(|(_, is_constant)| !**is_constant);
        let mut late: Vec<usize> = late.map(|(at, _)| at).collect();
        while !varying.is_empty() || !late.is_empty() {
            for at in late.drain(..) {
                for &buf in uses.writes_of(at) {
                    if std::mem::replace(&mut constants.bufs[buf], false) {
                        varying.push(buf);
                    }
                }
            }
            for buf in varying.drain(..) {
                for &at in uses.readers(buf).iter().chain(uses.writers(buf)) {
                    if std::mem::replace(&mut constants.stmts[at], false) {
                        late.push(at);
                    }
                }
            }
        }
        constants
    }

    /// Whether the statement at a position can run when the model is loaded.
    pub fn is_statement(&self, at: usize) -> bool {
        self.stmts[at]
    }

    /// Whether the contents of a buffer depend on the model alone. Of buffers that came later, nothing is known.
    pub fn is_buffer(&self, buf: Buf) -> bool {
        self.bufs.get(buf).copied().unwrap_or(false)
    }
}

/// Whether a call, if the statement is one, is of a routine: sizes get their values, and functions run, in calls of the program.
fn is_routine(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Nest(_) | Stmt::Recurrence(_) => true,
        Stmt::Extern(call) => match call.callee {
            Callee::Routine(_) | Callee::Copy { .. } => true,
            Callee::Host(_) | Callee::Size { .. } | Callee::Control(_) => false,
        },
    }
}

/// Whether a statement, apart from the buffers that it touches, depends on sizes that calls give.
pub(crate) fn mentions_sizes(loops: &Loops, stmt: &Stmt) -> bool {
    let is_size = |e: Expr| e.syms().into_iter().any(|sym| loops.facts.is_symbol_declared(sym));
    let in_nest = |nest: &Nest| {
        nest.all_axes().any(|axis| is_size(axis.extent))
            || nest.body.iter().any(|inst| inst.op.exprs().into_iter().any(is_size))
    };
    match stmt {
        Stmt::Nest(_) | Stmt::Recurrence(_) => stmt.nests().iter().any(in_nest),
        Stmt::Extern(call) => call.exprs().into_iter().any(is_size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the constant statements of a program with this body.
    fn constant(body: &str) -> Vec<String> {
        let text = format!(
            "loops @f on cpu {{ sym s0 in [1, 8] buf x: f32[4] = input buf w: f32[4] = const \"w\"\n{body} }}"
        );
        let loops = litz_ir::text::loops::parse(&text).unwrap_or_else(|diags| panic!("{}\n{text}", diags[0]));
        let (flat, regions) = loops.flat();
        let constants = Constants::of(&flat, &regions, &Uses::of(&flat));
        let names = flat.stmts.iter().enumerate().filter(|(at, _)| constants.is_statement(*at));
        names.map(|(_, stmt)| stmt.name().to_owned()).collect()
    }

    const ONE: &str = "buf a: f32[4] buf b: f32[4]
        nest n0 [i in 4] { %0: f32 = load w[i] store a[i] = %0 }
        nest n1 [i in 4] { %0: f32 = load a[i] store b[i] = %0 }";

    #[test]
    fn what_reads_constants_alone_is_constant() {
        assert_eq!(constant(&format!("{ONE} return b")), ["n0", "n1"]);
        assert_eq!(constant(&format!("{ONE} update w = b return b")), [""; 0]);
        assert_eq!(constant(&format!("{ONE} return b").replace("load w", "load x")), [""; 0]);
    }

    #[test]
    fn what_reads_nothing_is_computed_where_it_is_used() {
        assert_eq!(
            constant("buf a: f32[4] nest n0 [i in 4] { %0: f32 = const 1.0 store a[i] = %0 } return a"),
            [""; 0]
        );
    }

    #[test]
    fn what_mentions_a_size_is_not_constant() {
        assert_eq!(
            constant(&format!("{ONE} return b").replace("n1 [i in 4]", "n1 [i in min(s0, 4)]")),
            ["n0"]
        );
        assert_eq!(
            constant(&format!("{ONE} return b").replace("buf b: f32[4]", "buf b: f32[s0 + 4]")),
            ["n0"]
        );
    }

    #[test]
    fn a_buffer_that_a_call_writes_again_is_written_whole_by_the_call() {
        let again = format!("{ONE} nest n2 [i in 2] {{ %0: f32 = load x[i] store b[i] = %0 }} return b");
        assert_eq!(constant(&again), ["n0"]);
    }

    #[test]
    fn a_statement_runs_at_load_with_all_that_it_stores_or_not_at_all() {
        let two = "buf a: f32[4] buf b: f32[4] buf c: f32[4]
            nest n0 [i in 4] { %0: f32 = load w[i] store a[i] = %0 store b[i] = %0 }
            nest n1 [i in 4] { %0: f32 = load b[i] store c[i] = %0 }
            nest n2 [i in 2] { %0: f32 = load x[i] store a[i] = %0 } return a, c";
        assert_eq!(constant(two), [""; 0]);
    }
}
