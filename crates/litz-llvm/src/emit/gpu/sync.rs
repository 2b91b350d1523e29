//! Prints how threads wait for each other: barriers, blocks that count themselves, copies in the background.

use litz_ir::kernel::{Mem, Sync, Warps};
use litz_ir::target::{Gpu, Level, Persistent};

use super::super::block::{ScopeKind, Slot, Value};
use super::super::ty::{Prim, Ty};
use super::super::{EmitError, Emitter, Form};

/// The barriers of a block have numbers: 0 is that of all threads, then those of warpgroups, then those of some warps.
const WARPGROUPS: i64 = 1;
/// The first of those of some warps, one for each warp that the first of them may be.
const WARPS: i64 = WARPGROUPS + (Gpu::THREADS / Gpu::WARPGROUP) as i64;
/// Numbers that there are.
const BARRIERS: i64 = 16;

impl Emitter<'_> {
    /// The start of a kernel whose blocks may be there before the kernel in front of it has ended: lets the next one's come as soon as all of these
    /// are there, and waits for the one in front, unless a statement does.
    pub(super) fn starts_early(&mut self, waits_late: bool) {
        self.ptx("griddepcontrol.launch_dependents;", &[]);
        if !waits_late {
            self.wait_for_kernels();
        }
    }

    /// Waits for all stores of the kernel in front, which has waited itself, so that all kernels before it have ended as well. Nothing is in front of
    /// a kernel that starts late, as all do on GPUs that start none early.
    fn wait_for_kernels(&mut self) {
        if self.target.starts_kernels_early() {
            self.ptx("griddepcontrol.wait;", &[]);
        }
    }

    /// What was loaded ahead of a wait is unpacked behind it: words are other values from here on, as far as anybody can see. Halves that are floats while a
    /// thread waits take as many registers again.
    fn keep_words(&mut self) {
        for (mem, data) in self.kernel.mems.iter() {
            if self.mems[mem].form != Form::Packed {
                continue;
            }
            let elements = data.span().as_int().unwrap_or(0);
            for group in 0..(elements * data.dtype.size() as i64 + 3) / 4 {
                let word = self.packed(mem, group);
                if !word.is_literal() {
                    let text = format!("call i32 asm sideeffect \"\", \"=r,0\"(i32 {}) #1", word.text);
                    let kept = self.b.impure(word.ty, &[&word], &text);
                    self.b.set_slot(Slot { mem, group }, kept);
                }
            }
        }
    }

    /// What orders threads. Behind it memory has what others have stored.
    pub(in super::super) fn sync(&mut self, sync: Sync) -> Result<(), EmitError> {
        self.here()?;
        match sync {
            Sync::Barrier(Level::Warp) => {
                self.b.effect(&[], "call void @llvm.nvvm.bar.warp.sync(i32 -1)");
            }
            Sync::Barrier(Level::Block) => self.block_barrier(),
            Sync::Barrier(Level::Warpgroup) => {
                let Some(group) = self.here()?.warpgroup.clone() else {
                    return Err(EmitError::malformed("a barrier of no warpgroup"));
                };
                let first = self.b.int(Prim::I32, WARPGROUPS);
                let number = self.b.binary("add", &group, &first);
                let number = self.of_team(number, Gpu::WARPGROUP);
                self.named_barrier(&number, Gpu::WARPGROUP);
            }
            Sync::Barrier(level @ (Level::Grid | Level::Thread | Level::Lane)) => {
                return Err(EmitError::malformed(format!("a barrier of a {}", level.name())));
            }
            Sync::Warps(Warps { first, count }) => {
                // A block of two teams has few warpgroups, and numbers for the warps of both.
                let of_team = self.here()?.team.as_ref().map(|team| i64::from(team.threads));
                let (from, others) = match of_team {
                    Some(threads) => {
                        let teams = i64::from(Persistent::MOST_TEAMS);
                        let groups = threads / i64::from(Gpu::WARPGROUP);
                        (WARPGROUPS + teams * groups, (teams - 1) * threads / i64::from(Gpu::LANES))
                    }
                    None => (WARPS, 0),
                };
                let number = from + i64::from(first);
                if number + others >= BARRIERS {
                    return Err(EmitError::unsupported(format!("a barrier of warps from {first} on")));
                }
                let number = self.b.int(Prim::I32, number);
                let number = self.of_team(number, Gpu::LANES);
                // The others go on.
                let own = self.is_of_warps(Warps { first, count });
                self.when(Some(own), &mut |cx| {
                    cx.named_barrier(&number, count * Gpu::LANES);
                    Ok(())
                })?;
            }
            Sync::Commit => self.b.effect(&[], "call void @llvm.nvvm.cp.async.commit.group()"),
            Sync::Wait { newest } => {
                self.b.effect(&[], &format!("call void @llvm.nvvm.cp.async.wait.group(i32 {newest})"));
            }
            Sync::Elect => self.elect()?,
            Sync::Await => self.await_turn()?,
            Sync::Pass => self.pass_turn()?,
            Sync::Kernels => {
                self.wait_for_kernels();
                self.keep_words();
                let made: Vec<Mem> = self.made_by_kernels().collect();
                self.touch(&made);
            }
            Sync::CommitProducts => self.commit_products(),
            Sync::Products { newest } => self.wait_for_products(newest)?,
            Sync::Acquire { ring, filling, buffer } => self.acquire(ring, filling, buffer)?,
            Sync::Release { ring, filling } => self.release(ring, filling)?,
            Sync::Cluster => return Err(EmitError::unsupported("clusters")),
        }
        let mems = self.seen_by_others();
        self.touch(&mems);
        Ok(())
    }

    pub(super) fn block_barrier(&mut self) {
        self.b.effect(&[], "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)");
    }

    /// The number of a barrier that each team has for itself, one for so many threads.
    fn of_team(&mut self, number: Value, threads: u32) -> Value {
        let Some(team) = self.thread.as_ref().and_then(|thread| thread.team.clone()) else { return number };
        let each = self.b.int(Prim::I32, i64::from(team.threads / threads));
        let before = self.b.binary("mul", &team.number, &each);
        self.b.binary("add", &number, &before)
    }

    fn named_barrier(&mut self, number: &Value, threads: u32) {
        let text = format!(
            "call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 {}, i32 {threads})",
            number.text
        );
        self.b.effect(&[number], &text);
    }

    /// The word in which the blocks of this point count.
    fn count_of_point(&mut self) -> Result<Value, EmitError> {
        let Some(point) = self.here()?.point.clone() else {
            return Err(EmitError::malformed("blocks of no point"));
        };
        let counts = self.generic(1, "%counts");
        Ok(self.advance(Ty::scalar(Prim::I32), &counts, &point))
    }

    /// Whether it is the first thread of its block.
    pub(super) fn is_first_of_block(&mut self) -> Value {
        let number = self.special("tid.x");
        let zero = self.b.int(Prim::I32, 0);
        self.b.compare("icmp eq", &number, &zero)
    }

    /// Blocks come here one after another: each adds one to a count, and all but the last one are done.
    ///
    /// The count wraps to zero at the last one, which is how it was before.
    fn elect(&mut self) -> Result<(), EmitError> {
        let count = self.count_of_point()?;
        let Some(blocks) = self.blocks_of_point()? else { return Ok(()) };
        let one = self.b.int(Prim::I32, 1);
        let last = self.b.binary("sub", &blocks, &one);
        self.b.effect(&[], "fence syncscope(\"device\") acq_rel");
        self.block_barrier();
        let first = self.is_first_of_block();
        let [counts, others, exit] = [0; 3].map(|_| self.b.new_block());
        self.b.branch(&first, counts, others);
        self.b.open(ScopeKind::Arm, counts, Vec::new());
        let text = format!(
            "atomicrmw uinc_wrap ptr {}, i32 {} syncscope(\"device\") acq_rel, align 4",
            count.text, last.text
        );
        let before = self.b.impure(Ty::scalar(Prim::I32), &[&count, &last], &text);
        self.b.jump(exit);
        self.b.close_arm();
        self.b.open(ScopeKind::Arm, others, Vec::new());
        self.b.jump(exit);
        self.b.close_arm();
        self.b.continue_in(exit);
        let zero = self.b.int(Prim::I32, 0);
        let before = self.b.phi(Ty::scalar(Prim::I32), &[(&before, counts), (&zero, others)]);
        let is_last = self.b.compare("icmp eq", &before, &last);
        let is_last = self.b.and(&is_last, &first);
        // Any thread that knows it tells all.
        let text =
            format!("call i32 @llvm.nvvm.barrier.cta.red.popc.aligned.all(i32 0, i1 {})", is_last.text);
        let total = self.b.impure(Ty::scalar(Prim::I32), &[&is_last], &text);
        let goes_on = self.b.compare("icmp ne", &total, &zero);
        let [on, done] = [0; 2].map(|_| self.b.new_block());
        self.b.branch(&goes_on, on, done);
        self.b.continue_in(done);
        self.b.end("ret void");
        self.b.continue_in(on);
        self.b.effect(&[], "fence syncscope(\"device\") acq_rel");
        self.goes_on_alone();
        Ok(())
    }

    /// How many blocks run a point, an i32.
    fn blocks_of_point(&mut self) -> Result<Option<Value>, EmitError> {
        let here = self.here()?;
        if here.block.is_none() {
            return Ok(None);
        }
        let count = here.blocks_of_point;
        let count = self.scalar(count)?;
        Ok(Some(self.b.convert("trunc", &count, Prim::I32)))
    }

    /// The number of this block among those of its point, an i32.
    fn own_block(&mut self) -> Result<Value, EmitError> {
        let Some(block) = self.here()?.block.clone() else {
            return Err(EmitError::malformed("a turn of the only block"));
        };
        Ok(self.b.convert("trunc", &block, Prim::I32))
    }

    /// Waits until all blocks before this one have passed their turn. Blocks begin in the order of their numbers, so that those run, or have.
    fn await_turn(&mut self) -> Result<(), EmitError> {
        let (count, block) = (self.count_of_point()?, self.own_block()?);
        let first = self.is_first_of_block();
        self.when(Some(first), &mut |cx| {
            let (header, exit) = (cx.b.new_block(), cx.b.new_block());
            cx.b.jump(header);
            cx.b.continue_in(header);
            let text = format!("load atomic i32, ptr {} syncscope(\"device\") acquire, align 4", count.text);
            let now = cx.b.impure(Ty::scalar(Prim::I32), &[&count], &text);
            let same = format!("icmp eq i32 {}, {}", now.text, block.text);
            let is_turn = cx.b.impure(Ty::I1, &[&now, &block], &same);
            cx.b.branch(&is_turn, exit, header);
            cx.b.continue_in(exit);
            Ok(())
        })?;
        self.block_barrier();
        self.b.effect(&[], "fence syncscope(\"device\") acquire");
        Ok(())
    }

    /// Lets the next block have its turn; behind the last one the count is zero again.
    fn pass_turn(&mut self) -> Result<(), EmitError> {
        let (count, block) = (self.count_of_point()?, self.own_block()?);
        let Some(blocks) = self.blocks_of_point()? else { return Ok(()) };
        self.b.effect(&[], "fence syncscope(\"device\") acq_rel");
        self.block_barrier();
        let first = self.is_first_of_block();
        let one = self.b.int(Prim::I32, 1);
        let zero = self.b.int(Prim::I32, 0);
        let next = self.b.binary("add", &block, &one);
        let is_last = self.b.compare("icmp eq", &next, &blocks);
        let next = self.b.select(&is_last, &zero, &next);
        self.when(Some(first), &mut |cx| {
            let text = format!(
                "store atomic i32 {}, ptr {} syncscope(\"device\") release, align 4",
                next.text, count.text
            );
            cx.b.effect(&[&next, &count], &text);
            Ok(())
        })
    }
}
