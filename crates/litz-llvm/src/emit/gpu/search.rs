//! Prints loops whose iterations with something to do the lanes of a warp look for.
//!
//! ```text
//! for each round of 256 iterations {
//!   a lane has 8 of them, 32 apart, and asks of each: do the acts say that the branch is taken?
//!   for each word of answers that is not 0, for each bit of it { the iteration, by all lanes }
//! }
//! ```
//!
//! All loads of a round are under way together. An iteration that has something to do computes what is ahead of its branch once more, from
//! what was loaded just before.

use litz_ir::Scalar;
use litz_ir::kernel::{Act, Loop, Mem, Stmt};
use litz_ir::target::Gpu;
use litz_ir::verify::search;
use litz_sym::{Expr, Rel, Sym};

use super::super::block::{ScopeKind, Value};
use super::super::index::Condition;
use super::super::ty::{Prim, Ty};
use super::super::{Bound, EmitError, Emitter};

/// Iterations of a lane in a round, at most, for whose loads it waits once. At most as many as a warp has lanes.
const WORDS: i64 = 8;

impl Emitter<'_> {
    /// A loop that searches, by whole warps.
    pub(in super::super) fn search(&mut self, inner: &Loop, extent: Expr) -> Result<(), EmitError> {
        let Some((ahead, Stmt::If { cond, then, .. })) = search::parts(inner) else {
            return Err(EmitError::malformed(format!("loop {} has no branch to look for", inner.var)));
        };
        let lanes = i64::from(Gpu::LANES);
        let words = (self.facts.bounds(extent).hi.clamp(1, WORDS * lanes) + lanes - 1) / lanes;
        let rounds = extent.ceildiv(words * lanes);
        let written = self.changed(then);
        self.facts.declare_index(inner.var, extent);
        self.count(inner.var, rounds, 1, &written, &mut |cx| {
            let round = cx.scalar_of(inner)?;
            let size = cx.b.int(Prim::I64, words * lanes);
            let first = cx.b.binary("mul", &round, &size);
            let answers = cx.answers(inner, extent, (ahead, cond), (&first, words))?;
            cx.each_bit(&answers.words, &written, &mut |cx, word| {
                let bits = cx.of_lane(&answers.own, word);
                let above = cx.b.convert("zext", word, Prim::I64);
                let size = cx.b.int(Prim::I64, lanes);
                let above = cx.b.binary("mul", &above, &size);
                let first = cx.b.binary("add", &first, &above);
                cx.each_bit(&bits, &written, &mut |cx, lane| {
                    let lane = cx.b.convert("zext", lane, Prim::I64);
                    let point = cx.b.binary("add", &first, &lane);
                    cx.syms.insert(inner.var, Bound::Scalar(point));
                    cx.body(ahead)?;
                    cx.body(then)
                })
            })
        })
    }

    /// The value of the variable of a loop.
    fn scalar_of(&mut self, inner: &Loop) -> Result<Value, EmitError> {
        self.scalar(self.resolve(Expr::sym(inner.var)))
    }

    /// Asks of the iterations from `first` on, so many words of them, whether they have something to do. What is ahead of the branch is
    /// computed act by act for all words, so that nothing waits for one of them alone.
    fn answers(
        &mut self,
        inner: &Loop,
        extent: Expr,
        (ahead, cond): (&[Stmt], &[Rel]),
        (first, words): (&Value, i64),
    ) -> Result<Answers, EmitError> {
        let end = self.scalar(extent)?;
        let one = self.b.int(Prim::I64, 1);
        let last = self.b.binary("sub", &end, &one);
        let lane = self.lane();
        let own = self.b.convert("zext", &lane, Prim::I64);
        let is_whole = self.facts.divides(words * i64::from(Gpu::LANES), extent);
        let mut askers = Vec::new();
        for word in 0..words {
            let above = self.b.int(Prim::I64, word * i64::from(Gpu::LANES));
            let point = self.b.binary("add", first, &above);
            let mut point = self.b.binary("add", &point, &own);
            let mut exists = None;
            if !is_whole {
                let inside = self.b.compare("icmp slt", &point, &end);
                // Past the end it is the last one once more, whose answer does not count.
                point = self.b.select(&inside, &point, &last);
                exists = Some(inside);
            }
            askers.push(Asker { point, exists, vals: Vec::new(), syms: Vec::new() });
        }
        for stmt in ahead {
            for asker in &mut askers {
                self.ask(inner, asker);
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
        let zero = self.b.int(Prim::I32, 0);
        let mut mine = zero.clone();
        for (word, asker) in askers.iter().enumerate() {
            self.ask(inner, asker);
            let holds = match (self.condition(cond)?, asker.exists.clone()) {
                (Condition::Never, _) => continue,
                (Condition::When(holds), Some(exists)) => self.b.and(&exists, &holds),
                (Condition::When(holds), None) | (Condition::Always, Some(holds)) => holds,
                (Condition::Always, None) => self.b.constant(Prim::I1, Scalar::Bool(true)),
            };
            let votes = self.vote(&holds);
            let number = self.b.int(Prim::I32, word as i64);
            let is_own = self.b.compare("icmp eq", &lane, &number);
            mine = self.b.select(&is_own, &votes, &mine);
        }
        let is_some = self.b.compare("icmp ne", &mine, &zero);
        Ok(Answers { words: self.vote(&is_some), own: mine })
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

/// Which iterations of a round have something to do.
struct Answers {
    /// A bit for each word that is not 0.
    words: Value,
    /// In the lane of a word's number the word, a bit for each iteration.
    own: Value,
}
