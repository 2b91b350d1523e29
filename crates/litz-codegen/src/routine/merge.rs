//! Writes the kernel that merges sorted runs of each row by twos.
//!
//! A thread has a pair. As many pairs of the run beside are ahead of it as are found by bisection, which is how far it moves. Of equal keys
//! those of the left run are ahead: runs lie in the order of positions.

use litz_ir::ScalarOp;
use litz_ir::kernel::{Kernel, MemorySpace};
use litz_ir::target::Level;
use litz_sym::{Expr, Rel};

use super::Call;
use super::ends::{Ends, Round};
use super::pairs::POSITION;
use super::writer::Writer;

/// Threads of a block.
pub(super) const THREADS: i64 = 256;

/// The kernel for runs of `run` pairs, a power of two and a multiple of [`THREADS`]; rows are whole runs.
pub(super) fn kernel(name: &str, call: &Call<'_>, round: Round, run: i64) -> Kernel {
    let mut writer = Writer::new(name, call.facts);
    let w = &mut writer;
    let ends = Ends::declare(w, call, round);
    let line = call.line(w);
    let from = ends.pairs();
    let row = ends.row(call, line);
    let block = w.axis("block", row.length.floordiv(THREADS));
    let [ahead, stride] = ["ahead", "stride"].map(|name| w.local(name, POSITION, 1, MemorySpace::Own));
    let slot = Expr::zero();
    w.each(Level::Thread, THREADS, |w, thread| {
        let own = block.floordiv(run / THREADS);
        let (both, is_right) = (own.floordiv(2) * (2 * run), Rel::eq(own.modulo(2), 1));
        let beside = both + (Expr::one() - own.modulo(2)) * run;
        let at = block * THREADS + thread;
        let pair = from.load(w, row.place(at));
        let is_right = w.holds(is_right);
        let number = w.index((row.length - beside).min(run));
        let length = w.cast(POSITION, number);
        let [none, all, one] = [0, run, 1].map(|number| w.int(POSITION, number));
        w.store(ahead, slot, none, Vec::new());
        w.store(stride, slot, all, Vec::new());
        w.sequence("bit", i64::from(run.ilog2()) + 1, |w, _| {
            let [found, step] = [ahead, stride].map(|mem| w.load(mem, slot, Vec::new()));
            let next = w.op(ScalarOp::Add, [found, step]);
            let is_there = w.op(ScalarOp::Le, [next, length]);
            let last = w.op(ScalarOp::Min, [next, all]);
            let last = w.op(ScalarOp::Sub, [last, one]);
            let other = beside + w.bind(last, Expr::int(run));
            let key = w.load(from.key, row.place(other), vec![Rel::lt(other, row.length)]);
            let is_less = w.op(ScalarOp::Lt, [key, pair.key]);
            let is_equal = w.op(ScalarOp::Eq, [key, pair.key]);
            let is_left = w.op(ScalarOp::And, [is_equal, is_right]);
            let is_ahead = w.op(ScalarOp::Or, [is_less, is_left]);
            let are_ahead = w.op(ScalarOp::And, [is_there, is_ahead]);
            let found = w.op(ScalarOp::Select, [are_ahead, next, found]);
            w.store(ahead, slot, found, Vec::new());
            let step = w.op(ScalarOp::Shr, [step, one]);
            w.store(stride, slot, step, Vec::new());
        });
        let found = w.load(ahead, slot, Vec::new());
        let number = w.index(both + at - own * run);
        let base = w.cast(POSITION, number);
        let rank = w.op(ScalarOp::Add, [base, found]);
        let rank = w.bind(rank, row.length);
        let is_wanted = if round.to.is_none() { vec![Rel::lt(rank, call.wanted)] } else { Vec::new() };
        w.when(is_wanted, |w| ends.put(w, call, line, rank, (pair.key, pair.at)));
    });
    writer.finish()
}
