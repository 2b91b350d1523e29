//! Finds which statements have to run before which, and along which axes the points of a nest depend on each other.

use litz_ir::ids::Table;
use litz_ir::loops::{Buf, BufKind, Inst, InstOp, Loops, Nest, Span, Stmt};
use litz_sym::Sym;
use std::collections::BTreeSet;

use crate::collisions::colliding_axes;
use crate::constants::Constants;
use crate::uses::Uses;

/// What depends on what.
#[derive(Clone, Debug)]
pub struct Dependences {
    /// For each statement.
    pub stmts: Vec<Statement>,
    /// Statements that read or write the buffer, in order.
    pub users: Table<Buf, Vec<usize>>,
    /// Whether the buffer is needed after all statements have run.
    pub escapes: Table<Buf, bool>,
}

/// What a statement depends on.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Buffers read.
    pub reads: Vec<Buf>,
    /// Buffers written.
    pub writes: Vec<Buf>,
    /// Earlier statements that must run before it.
    pub after: Vec<usize>,
    /// Depends on constants alone, so it runs once, when the model is loaded.
    pub at_load: bool,
    /// Axes of a nest whose points depend on each other, but for that of its region: a scan runs along them, or stores
    /// along them may meet.
    pub ordered: Vec<Sym>,
    /// Whether a nest combines with what is in memory, or stores along some axis may meet.
    pub is_scatter: bool,
}

impl Dependences {
    /// Finds the dependences of a program. `regions` are the spans of statements that are nests of one region.
    pub fn of(loops: &Loops, regions: &[Span]) -> Dependences {
        let uses = Uses::of(loops);
        let constants = Constants::of(loops, regions, &uses);
        let may_fail = |at: &usize| loops.may_fail(&loops.stmts[*at]);
        let effects: Vec<(usize, BTreeSet<&str>)> =
            (0..loops.stmts.len()).filter(may_fail).map(|at| (at, loops.effects(&loops.stmts[at]))).collect();
        let late = loops.late_sizes();
        let statement = |(at, stmt): (usize, &Stmt)| {
            let (reads, writes) = (uses.reads_of(at).to_vec(), uses.writes_of(at).to_vec());
            let written = reads.iter().flat_map(|&buf| uses.writers(buf));
            let touched = writes.iter().flat_map(|&buf| uses.readers(buf).iter().chain(uses.writers(buf)));
            // Assertions, and what the host may fail at, come before what outlives a call is stored, as they do in the program.
            let outlives = writes.iter().any(|&buf| loops.bufs[buf].kind != BufKind::Temp);
            let own = loops.effects(stmt);
            let is_before = |(_, of): &&(usize, BTreeSet<&str>)| outlives || !own.is_disjoint(of);
            let effects = effects.iter().filter(is_before).map(|(at, _)| at);
            let sizes = late.iter().filter(|(sym, _)| loops.mentions(stmt, *sym)).map(|(_, defined)| defined);
            let before = written.chain(touched).chain(effects).chain(sizes);
            let mut after: Vec<usize> = before.copied().filter(|&user| user < at).collect();
            after.sort_unstable();
            after.dedup();
            let over = regions.iter().find(|region| region.stmts.contains(&at)).map(|region| region.over.var);
            let (ordered, is_scatter) = match stmt {
                Stmt::Nest(nest) => order_of(loops, nest, over),
                Stmt::Extern(_) | Stmt::Recurrence(_) => (Vec::new(), false),
            };
            Statement { reads, writes, after, at_load: constants.is_statement(at), ordered, is_scatter }
        };
        let stmts = loops.stmts.iter().enumerate().map(statement).collect();
        let (mut users, mut escapes) = (Table::new(), Table::new());
        for (buf, data) in loops.bufs.iter() {
            let mut of_buf = [uses.readers(buf), uses.writers(buf)].concat();
            of_buf.sort_unstable();
            of_buf.dedup();
            users.push(of_buf);
            escapes.push(data.kind != BufKind::Temp);
        }
        loops.results().for_each(|buf| escapes[buf] = true);
        Dependences { stmts, users, escapes }
    }
}

/// The axes of a nest whose points must be taken in order, as the nest has them, and whether it is a scatter. `over` is the
/// axis of its region.
fn order_of(loops: &Loops, nest: &Nest, over: Option<Sym>) -> (Vec<Sym>, bool) {
    let mut ordered = colliding_axes(loops, nest);
    ordered.retain(|&axis| Some(axis) != over);
    let combines = |inst: &Inst| matches!(inst.op, InstOp::Store { combine: Some(_), .. });
    let is_scatter = !ordered.is_empty() || nest.body.iter().any(combines);
    let scanned = nest.scanned();
    ordered.extend(scanned);
    let axes = nest.all_axes().map(|axis| axis.var);
    (axes.filter(|axis| ordered.contains(axis)).collect(), is_scatter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_follow_writers_and_writers_follow_all() {
        let text = "loops @f on cpu { buf x: f32[4] = input buf a: f32[4] buf b: f32[4]
            nest n0 [i in 4] { %0: f32 = load x[i] store a[i] = %0 }
            nest n1 [i in 4] { %0: f32 = load a[i] store b[i] = %0 }
            nest n2 [i in 4] { %0: f32 = load x[i] store a[i] = %0 }
            nest n3 [i in 4] { %0: f32 = load x[i] store.sum a[2] = %0 }
            return a, b }";
        let loops = litz_ir::text::loops::parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]));
        let dependences = Dependences::of(&loops, &[]);
        let after: Vec<&[usize]> = dependences.stmts.iter().map(|stmt| &*stmt.after).collect();
        assert_eq!(after, [&[][..], &[0], &[0, 1], &[0, 1, 2]]);
        let ordered: Vec<bool> = dependences.stmts.iter().map(|stmt| stmt.is_scatter).collect();
        assert_eq!(ordered, [false, false, false, true]);
        let users: Vec<usize> = dependences.users.values().map(Vec::len).collect();
        assert_eq!(users, [3, 4, 1]);
    }
}
