//! Prints loops whose iterations with something to do are looked for many at once.
//!
//! ```text
//! for each round of 256 iterations {
//!   a lane has 8 of them, 32 apart, and asks of each: do the acts say that the branch is taken?
//!   for each word of answers that is not 0, for each bit of it { the iteration, by all lanes }
//! }
//! ```
//!
//! In a loop over threads a round is of 8 iterations of the thread alone, whose answers are one word. All loads of a round are under way
//! together. An iteration that has something to do computes what is ahead of its branch once more, from what was loaded just before.

use litz_ir::Scalar;
use litz_ir::kernel::{Act, Loop, Mem, Stmt, visit};
use litz_ir::target::Gpu;
use litz_ir::verify::search;
use litz_sym::{Expr, Rel, Sym};

use super::super::block::{ScopeKind, Value};
use super::super::index::Condition;
use super::super::ty::{Prim, Ty};
use super::super::{Bound, EmitError, Emitter};

/// Iterations that a lane asks of in a round, at most, for whose loads it waits once. At most as many as a warp has lanes.
const WORDS: i64 = 8;

/// A round of a search.
struct Round<'a> {
    inner: &'a Loop,
    extent: Expr,
    ahead: &'a [Stmt],
    cond: &'a [Rel],
    /// Lanes that ask together: all of a warp, or one.
    lanes: i64,
    /// Iterations of a lane, each so many behind the one before as there are lanes.
    words: i64,
}

impl Emitter<'_> {
    /// A loop that searches: whole warps together, or one thread.
    pub(in super::super) fn search(&mut self, inner: &Loop, extent: Expr) -> Result<(), EmitError> {
        let Some((ahead, Stmt::If { cond, then, .. })) = search::parts(inner) else {
            return Err(EmitError::malformed(format!("loop {} has no branch to look for", inner.var)));
        };
        let lanes = if self.here()?.is_of_warps() { i64::from(Gpu::LANES) } else { 1 };
        let words = (self.facts.bounds(extent).hi.clamp(1, WORDS * lanes) + lanes - 1) / lanes;
        let round = Round { inner, extent, ahead, cond, lanes, words };
        let written = self.changed(then);
        self.facts.declare_index(inner.var, extent);
        // Threads that ask by themselves go on by themselves.
        let own = if lanes == 1 { vec![Expr::sym(inner.var)] } else { Vec::new() };
        let is_parted = self.part_lanes(&own);
        let result = self.count(inner.var, extent.ceildiv(words * lanes), 1, &written, &mut |cx| {
            let number = cx.scalar(cx.resolve(Expr::sym(inner.var)))?;
            let size = cx.b.int(Prim::I64, words * lanes);
            let first = cx.b.binary("mul", &number, &size);
            let answers = cx.answers(&round, &first)?;
            let run = |cx: &mut Self, first: &Value, bits: &Value| {
                cx.each_bit(bits, &written, &mut |cx, bit| {
                    let above = cx.b.convert("zext", bit, Prim::I64);
                    let point = cx.b.binary("add", first, &above);
                    cx.syms.insert(inner.var, Bound::Scalar(point));
                    cx.body(ahead)?;
                    cx.found(then)
                })
            };
            if lanes == 1 {
                return run(cx, &first, &answers);
            }
            let zero = cx.b.int(Prim::I32, 0);
            let is_some = cx.b.compare("icmp ne", &answers, &zero);
            let words = cx.vote(&is_some);
            cx.each_bit(&words, &written, &mut |cx, word| {
                let bits = cx.of_lane(&answers, word);
                let above = cx.b.convert("zext", word, Prim::I64);
                let size = cx.b.int(Prim::I64, lanes);
                let above = cx.b.binary("mul", &above, &size);
                let first = cx.b.binary("add", &first, &above);
                run(cx, &first, &bits)
            })
        });
        self.join_lanes(is_parted);
        result
    }

    /// What an iteration has to do. Whether the thread has failed it asks once, where none can fail in it or waits for others: what it loads and
    /// stores is under way together then.
    fn found(&mut self, then: &[Stmt]) -> Result<(), EmitError> {
        let mut is_plain = true;
        visit(then, &mut |stmt| {
            is_plain &= match stmt {
                Stmt::Loop(_) | Stmt::If { .. } => true,
                Stmt::Act(act) => matches!(act, Act::Let { .. } | Act::Store { .. } | Act::MulAdd { .. }),
            };
        });
        let slot = self.thread.as_mut().filter(|_| is_plain).and_then(|thread| thread.failed.take());
        let Some(slot) = slot else { return self.body(then) };
        let is_sound = self.is_sound(&slot);
        let result = self.when(Some(is_sound), &mut |cx| cx.body(then));
        if let Some(thread) = &mut self.thread {
            thread.failed = Some(slot);
        }
        result
    }

    /// Asks of the iterations of a round, from `first` on, whether they have something to do: a bit for each of a thread, or in the lane of
    /// the number of a word one for each lane. What is ahead of the branch is computed act by act for all of them, so that nothing waits for
    /// one alone.
    fn answers(&mut self, round: &Round<'_>, first: &Value) -> Result<Value, EmitError> {
        let mut askers = self.askers(round, first)?;
        for stmt in round.ahead {
            for asker in &mut askers {
                self.ask(round.inner, asker);
                self.statement(stmt)?;
                match stmt {
                    Stmt::Act(Act::Let { val, .. }) => {
                        asker.vals.push((val.0 as usize, self.vals[val.0 as usize].clone()));
                    }
                    Stmt::Act(Act::Bind { sym, .. }) => asker.syms.push((*sym, self.syms[sym].clone())),
                    Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => {}
                }
            }
        }
        let mut answers = self.b.int(Prim::I32, 0);
        for (word, asker) in (0..).zip(&askers) {
            self.ask(round.inner, asker);
            let holds = match (self.condition(round.cond)?, asker.exists.clone()) {
                (Condition::Never, _) => continue,
                (Condition::When(holds), Some(exists)) => self.b.and(&exists, &holds),
                (Condition::When(holds), None) | (Condition::Always, Some(holds)) => holds,
                (Condition::Always, None) => self.b.constant(Prim::I1, Scalar::Bool(true)),
            };
            answers = if round.lanes == 1 {
                let bit = self.b.int(Prim::I32, 1 << word);
                let with = self.b.binary("or", &answers, &bit);
                self.b.select(&holds, &with, &answers)
            } else {
                let votes = self.vote(&holds);
                let (lane, number) = (self.lane(), self.b.int(Prim::I32, word));
                let is_own = self.b.compare("icmp eq", &lane, &number);
                self.b.select(&is_own, &votes, &answers)
            };
        }
        Ok(answers)
    }

    /// The iterations of a lane in the round that begins with `first`.
    fn askers(&mut self, round: &Round<'_>, first: &Value) -> Result<Vec<Asker>, EmitError> {
        let end = self.scalar(round.extent)?;
        let one = self.b.int(Prim::I64, 1);
        let last = self.b.binary("sub", &end, &one);
        let mut first = first.clone();
        if round.lanes > 1 {
            let lane = self.lane();
            let lane = self.b.convert("zext", &lane, Prim::I64);
            first = self.b.binary("add", &first, &lane);
        }
        let is_whole = self.facts.divides(round.words * round.lanes, round.extent);
        let mut askers = Vec::new();
        for word in 0..round.words {
            let above = self.b.int(Prim::I64, word * round.lanes);
            let mut point = self.b.binary("add", &first, &above);
            let mut exists = None;
            if !is_whole {
                let inside = self.b.compare("icmp slt", &point, &end);
                // Past the end it is the last one once more, whose answer does not count.
                point = self.b.select(&inside, &point, &last);
                exists = Some(inside);
            }
            askers.push(Asker { point, exists, vals: Vec::new(), syms: Vec::new() });
        }
        Ok(askers)
    }

    /// From here on an iteration is the one that a lane asks about.
    fn ask(&mut self, inner: &Loop, asker: &Asker) {
        self.syms.insert(inner.var, Bound::Scalar(asker.point.clone()));
        for (val, value) in &asker.vals {
            self.vals[*val].clone_from(value);
        }
        self.syms.extend(asker.syms.iter().cloned());
    }

    /// A bit for each lane of the warp, whether it holds there.
    fn vote(&mut self, holds: &Value) -> Value {
        let text = format!("call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 {})", holds.text);
        self.b.impure(Ty::scalar(Prim::I32), &[holds], &text)
    }

    /// What the lane of that number has.
    fn of_lane(&mut self, word: &Value, lane: &Value) -> Value {
        let text = format!(
            "call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 {}, i32 {}, i32 31)",
            word.text, lane.text
        );
        self.b.impure(word.ty, &[word, lane], &text)
    }

    /// Runs `body` with the number of each bit that is set, from the lowest on.
    fn each_bit(
        &mut self,
        bits: &Value,
        written: &[Mem],
        body: &mut dyn FnMut(&mut Self, &Value) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let zero = self.b.int(Prim::I32, 0);
        let some = self.b.compare("icmp ne", bits, &zero);
        self.when(Some(some), &mut |cx| {
            let (preheader, header, exit) = (cx.b.block(), cx.b.new_block(), cx.b.new_block());
            cx.b.jump(header);
            cx.touch(written);
            cx.b.open(ScopeKind::Loop { preheader, header }, header, written.to_vec());
            let left = cx.b.later_phi(Ty::scalar(Prim::I32));
            let number =
                cx.b.pure(left.ty, &[&left], format!("call i32 @llvm.cttz.i32(i32 {}, i1 true)", left.text));
            body(cx, &number)?;
            let less = cx.b.int(Prim::I32, -1);
            let less = cx.b.binary("add", &left, &less);
            let next = cx.b.binary("and", &left, &less);
            let more = cx.b.compare("icmp ne", &next, &zero);
            let latch = cx.b.block();
            cx.b.write_phi(header, &left, &[(bits, preheader), (&next, latch)]);
            cx.b.branch(&more, header, exit);
            cx.b.close_loop(exit);
            Ok(())
        })
    }
}

/// An iteration of a lane, and what is known of it so far.
struct Asker {
    /// Its number.
    point: Value,
    /// Whether it is one of the loop, where some are not.
    exists: Option<Value>,
    /// What the acts so far have defined for it.
    vals: Vec<(usize, Option<Value>)>,
    syms: Vec<(Sym, Bound)>,
}
