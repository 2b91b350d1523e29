//! Declares what the kernels of a routine read and write, and writes it: elements, lists of pairs, results.

use litz_ir::kernel::{Mem, MemorySpace, Val};
use litz_ir::{Dtype, ScalarOp};
use litz_sym::Expr;

use super::Call;
use super::pairs::{Pairs, Row, Source};
use super::writer::Writer;

/// Pairs of each row, between two kernels.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    /// Which of those of the routine.
    pub(super) number: usize,
    /// Pairs of a row.
    pub(super) length: Expr,
}

/// What a kernel reads and writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// Pairs; none for the elements themselves.
    pub(super) from: Option<List>,
    /// Pairs; none for the results.
    pub(super) to: Option<List>,
}

/// What a parameter of a kernel stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arg {
    /// The buffer that the routine reads.
    Elements,
    /// The sorted values.
    Values,
    /// Their positions.
    Positions,
    /// Keys of a list.
    Keys(usize),
    /// Positions of a list.
    Places(usize),
}

impl Round {
    /// What its parameters stand for, in order.
    pub(super) fn args(self) -> Vec<Arg> {
        let list = |list: List| [Arg::Keys(list.number), Arg::Places(list.number)];
        let mut args = Vec::new();
        args.extend((self.from.is_none() || self.to.is_none()).then_some(Arg::Elements));
        args.extend(self.from.into_iter().flat_map(list));
        args.extend(self.to.map_or([Arg::Values, Arg::Positions], list));
        args
    }
}

/// The parameters of a kernel.
pub(super) struct Ends {
    round: Round,
    elements: Option<Mem>,
    from: Option<Pairs>,
    to: To,
}

enum To {
    Pairs(Pairs, Expr),
    Results { values: Mem, positions: Mem },
}

/// A row, by its coordinates around the sorted dimension.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) outer: Expr,
    pub(super) inner: Expr,
}

impl Ends {
    /// Declares the parameters, in the order of [`Round::args`].
    pub(super) fn declare(w: &mut Writer, call: &Call<'_>, round: Round) -> Ends {
        let rows = call.outer * call.inner;
        let is_read = round.from.is_none() || round.to.is_none();
        let elements =
            is_read.then(|| w.param("elements", call.dtype, rows * call.length, MemorySpace::Read));
        let mut pairs =
            |names, list: List, space| Pairs::param(w, names, call.key, rows * list.length, space);
        let from = round.from.map(|list| pairs(["from_key", "from_at"], list, MemorySpace::Read));
        let to = match round.to {
            Some(list) => To::Pairs(pairs(["to_key", "to_at"], list, MemorySpace::Write), list.length),
            None => {
                let mut result = |name, dtype| w.param(name, dtype, rows * call.wanted, MemorySpace::Write);
                To::Results {
                    values: result("values", call.dtype),
                    positions: result("positions", Dtype::I64),
                }
            }
        };
        Ends { round, elements, from, to }
    }

    /// The row that is read.
    pub(super) fn row(&self, call: &Call<'_>, line: Line) -> Row {
        let key = call.key;
        match (self.from.zip(self.round.from), self.elements) {
            (Some((pairs, List { length, .. })), _) => {
                let first = call.number(line) * length;
                Row { source: Source::Pairs(pairs), first, step: Expr::one(), length, key }
            }
            (None, elements) => {
                let mem = elements.expect("invariant: what reads no pairs reads elements");
                let source = Source::Elements { mem, dtype: call.dtype, direction: call.direction };
                let first = line.outer * call.length * call.inner + line.inner;
                Row { source, first, step: call.inner, length: call.length, key }
            }
        }
    }

    /// The pairs that are read.
    pub(super) fn pairs(&self) -> Pairs {
        self.from.expect("invariant: runs of pairs are merged")
    }

    /// The position of the element that is at a place of the row that is read. Of what is behind the end, that of some other.
    pub(super) fn position(&self, w: &mut Writer, row: &Row, at: Val) -> Val {
        let Some(from) = self.from else { return at };
        let number = w.index(row.length - 1);
        let last = w.cast(w.dtype(at), number);
        let at = w.op(ScalarOp::Min, [at, last]);
        let at = w.bind(at, row.length);
        w.load(from.at, row.place(at), Vec::new())
    }

    /// Writes the pair, or the result, that is `rank`th in its row.
    pub(super) fn put(
        &self,
        w: &mut Writer,
        call: &Call<'_>,
        line: Line,
        rank: Expr,
        (key, position): (Val, Val),
    ) {
        match self.to {
            To::Pairs(to, length) => {
                let place = call.number(line) * length + rank;
                w.store(to.key, place, key, Vec::new());
                w.store(to.at, place, position, Vec::new());
            }
            To::Results { values, positions } => {
                let elements = self.elements.expect("invariant: what writes results reads elements");
                let at = w.bind(position, call.length);
                let from = (line.outer * call.length + at) * call.inner + line.inner;
                let to = (line.outer * call.wanted + rank) * call.inner + line.inner;
                w.copy((elements, from), (values, to));
                let position = w.cast(Dtype::I64, position);
                w.store(positions, to, position, Vec::new());
            }
        }
    }
}
