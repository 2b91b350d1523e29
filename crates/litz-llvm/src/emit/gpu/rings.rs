//! Prints rings: barriers in shared memory that count what is full and what is empty, and copies of boxes, which count their bytes there.
//!
//! ```text
//! acquire empty ring 0 as f     wait for the phase of barrier `empty + 8*f`, ahead of which all buffers are empty
//! copy box x[..] to s[..] ..    one thread: expect its bytes at `full + 8*f`, and begin the copy, which will count them there
//! release full ring 0           one lane of each warp that fills: arrive at `full + 8*f`
//! acquire full ring 0 as u      wait for the phase of barrier `full + 8*u`
//! release empty ring 0          one lane of each warp that empties: arrive at `empty + 8*u`
//! ```
//!
//! Each side counts its own turns: the number of the next buffer, and how often all have come round, of which a barrier tells odd from even. (PTX
//! ISA, `mbarrier`: a wait for a parity ends when the phase of that parity is over. So the first wait for what is empty, which nobody has
//! released, is one for the phase before the first.)

use litz_ir::ids::Id;
use litz_ir::kernel::{
    Act, BoxCopy, BoxMap, Cut, Filling, Kernel, Mem, Ring, Roles, Shape, Stmt, Warps, visit,
};
use litz_ir::target::Gpu;
use litz_sym::{Range, Sym};

use super::super::block::{Slot, Value};
use super::super::ty::{Prim, Ty};
use super::super::{Bound, EmitError, Emitter, Form, MemState};

/// Where a ring is, for a thread.
#[derive(Clone, Debug)]
pub(in super::super) struct Place {
    /// Stands for the counts of a thread among the memories that loops change.
    pub(super) counts: Mem,
    /// Address of its first barrier in shared memory, an i32.
    first: Value,
    /// Whether threads begin copies in the background to its buffers.
    has_copies: bool,
    /// Whether threads store to its buffers, and load from them, one element after another.
    has_stores: bool,
}

/// What a thread counts of each side of a ring.
#[derive(Clone, Copy)]
enum Count {
    /// The buffer that it acquires next.
    Next,
    /// Whether buffers have come round an odd number of times.
    Parity,
    /// The buffer that it releases next.
    Held,
}

/// Where a thread counts the turns of its team, behind what it counts of both sides of a ring.
pub(super) const TURN: i64 = 6;

/// What stands for the counts of the rings of which statements acquire or release buffers.
pub(in super::super) fn counted(stmts: &[Stmt], rings: &[Place]) -> Vec<Mem> {
    let mut mems = Vec::new();
    visit(stmts, &mut |stmt| {
        use litz_ir::kernel::Sync::{Acquire, Release};
        if let Stmt::Act(Act::Sync(Acquire { ring, .. } | Release { ring, .. })) = stmt {
            mems.extend(rings.get(ring.index()).map(|place| place.counts));
        }
    });
    mems
}

/// Whether threads, and no boxes, copy something in the background.
fn has_copies(kernel: &Kernel) -> bool {
    let mut found = false;
    visit(&kernel.body, &mut |stmt| {
        found |= matches!(stmt, Stmt::Act(Act::Copy { is_async: true, .. }));
    });
    found
}

/// Whether warps that fill a ring store elements by themselves.
fn has_stores(kernel: &Kernel, fills: Warps) -> bool {
    let mut found = false;
    visit(&kernel.body, &mut |stmt| {
        if let Stmt::Loop(inner) = stmt
            && Warps::of(inner).is_some_and(|own| fills.contains(own))
        {
            visit(&inner.body, &mut |stmt| found |= matches!(stmt, Stmt::Act(Act::Store { .. })));
        }
    });
    found
}

impl Emitter<'_> {
    /// Makes the barriers of rings ready: one thread does, and the others wait.
    pub(super) fn begin_rings(&mut self, shape: &Shape, roles: Option<&Roles>) -> Result<(), EmitError> {
        let kernel = self.kernel;
        if kernel.rings.is_empty() {
            return Ok(());
        }
        let has_copies = has_copies(kernel);
        let mut places = Vec::new();
        for (ring, data) in kernel.rings.iter() {
            let has_stores = has_stores(kernel, data.fills);
            let first = self.address_of_barriers(shape.ring(ring));
            // Memory of no kernel: loops carry its slots as they do those of registers.
            let base = self.b.poison(Ty::PTR);
            let form = Form::Slots { width: 1 };
            let state = MemState {
                dtype: litz_ir::Dtype::I32,
                prim: Prim::I32,
                form,
                base,
                version: 0,
                stays: false,
            };
            let counts = self.mems.push(state);
            places.push(Place { counts, first, has_copies, has_stores });
        }
        if let Some(thread) = &mut self.thread {
            thread.rings = places.clone().into();
        }
        let first = self.is_first_of_block();
        self.when(Some(first), &mut |cx| {
            for (ring, place) in kernel.rings.values().zip(&places) {
                for filling in [Filling::Full, Filling::Empty] {
                    let arrivals = ring.making(filling).count
                        * if place.arrives_by_lane(filling) { Gpu::LANES } else { 1 };
                    for buffer in 0..ring.buffers {
                        let number = buffer + if filling == Filling::Full { 0 } else { ring.buffers };
                        let at = cx.b.int(Prim::I32, i64::from(number * Shape::BARRIER_BYTES));
                        let at = cx.b.binary("add", &place.first, &at);
                        let text = format!("mbarrier.init.shared::cta.b64 [$0], {arrivals};");
                        cx.ptx(&text, &[&at]);
                    }
                }
            }
            let teams = roles.filter(|roles| roles.teams > 1);
            for team in 0..teams.map_or(0, |roles| roles.teams) {
                let at = cx.address_of_barriers(shape.turns() + team * Shape::BARRIER_BYTES);
                let arrivals = teams.map_or(0, |roles| roles.threads / Gpu::LANES);
                cx.ptx(&format!("mbarrier.init.shared::cta.b64 [$0], {arrivals};"), &[&at]);
            }
            cx.ptx("fence.mbarrier_init.release.cluster;", &[]);
            Ok(())
        })?;
        self.block_barrier();
        Ok(())
    }

    /// The address of barriers that begin so many bytes behind the first one that threads share, an i32.
    pub(super) fn address_of_barriers(&mut self, place: u32) -> Value {
        let text = format!(
            "ptrtoint ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @shared_of_{}, i64 {place}) to i32",
            self.kernel.name,
        );
        self.b.pure(Ty::scalar(Prim::I32), &[], text)
    }

    /// Waits until the phase of a parity is over.
    pub(super) fn wait_for_parity(&mut self, barrier: &Value, parity: &Value) {
        self.ptx(
            "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; @!done bra again; }",
            &[barrier, parity],
        );
    }

    /// One lane of a warp arrives at a barrier, when all lanes are there.
    pub(super) fn arrive_by_warp(&mut self, barrier: &Value) -> Result<(), EmitError> {
        self.b.effect(&[], "call void @llvm.nvvm.bar.warp.sync(i32 -1)");
        let (lane, zero) = (self.lane(), self.b.int(Prim::I32, 0));
        let is_first = self.b.compare("icmp eq", &lane, &zero);
        self.when(Some(is_first), &mut |cx| {
            cx.ptx("mbarrier.arrive.shared::cta.b64 _, [$0];", &[barrier]);
            Ok(())
        })
    }

    /// Counts buffers as full, used and empty again: so many times all of them, and some, fewer than there are.
    pub(super) fn skip_buffers(
        &mut self,
        ring: Ring,
        (rounds, more): (&Value, &Value),
    ) -> Result<(), EmitError> {
        let (place, buffers) = (self.ring(ring)?, self.kernel.rings[ring].buffers);
        let [one, buffers] = [1, buffers.into()].map(|value| self.b.int(Prim::I32, value));
        let (next_slot, next) = self.count_of(&place, Filling::Full, Count::Next);
        let (parity_slot, parity) = self.count_of(&place, Filling::Full, Count::Parity);
        let (held_slot, _) = self.count_of(&place, Filling::Full, Count::Held);
        let behind = self.b.binary("add", &next, more);
        let wraps = self.b.compare("icmp uge", &behind, &buffers);
        let wrapped = self.b.binary("sub", &behind, &buffers);
        let behind = self.b.select(&wraps, &wrapped, &behind);
        let once_more = self.b.binary("add", rounds, &one);
        let rounds = self.b.select(&wraps, &once_more, rounds);
        let odd = self.b.binary("and", &rounds, &one);
        let turned = self.b.binary("xor", &parity, &odd);
        self.b.set_slot(next_slot, behind.clone());
        self.b.set_slot(held_slot, behind);
        self.b.set_slot(parity_slot, turned);
        Ok(())
    }

    /// An instruction by its text, which may change any memory. Operands are registers of 32 and 64 bits.
    pub(super) fn ptx(&mut self, text: &str, operands: &[&Value]) {
        let kind = |value: &&Value| match value.ty.prim.bits() {
            64 => "l",
            16 => "h",
            _ => "r",
        };
        let constraints: Vec<&str> = operands.iter().map(kind).chain(["~{memory}"]).collect();
        let arguments: Vec<String> =
            operands.iter().map(|value| format!("{} {}", value.ty, value.text)).collect();
        let text = format!(
            "call void asm sideeffect \"{text}\", \"{}\"({}) #1",
            constraints.join(","),
            arguments.join(", ")
        );
        self.b.effect(operands, &text);
    }

    fn ring(&self, ring: Ring) -> Result<Place, EmitError> {
        let place = self.here()?.rings.get(ring.index()).cloned();
        place.ok_or_else(|| EmitError::malformed(format!("{ring} of no kernel")))
    }

    /// A count of the side that waits for buffers to be of a filling.
    fn count_of(&mut self, place: &Place, side: Filling, count: Count) -> (Slot, Value) {
        let group = i64::from(side == Filling::Full) * 3 + count as i64;
        let slot = Slot { mem: place.counts, group };
        let zero = self.b.int(Prim::I32, 0);
        (slot, self.b.slot(slot, &zero))
    }

    /// The next buffer behind one, and whether it is the first one again.
    fn behind(&mut self, buffer: &Value, buffers: u32) -> (Value, Value) {
        let [zero, one, end] = [0, 1, buffers.into()].map(|value| self.b.int(Prim::I32, value));
        let next = self.b.binary("add", buffer, &one);
        let is_round = self.b.compare("icmp eq", &next, &end);
        (self.b.select(&is_round, &zero, &next), is_round)
    }

    /// The address of a barrier of a buffer.
    fn barrier(&mut self, ring: Ring, place: &Place, filling: Filling, buffer: &Value) -> Value {
        let buffers = self.kernel.rings[ring].buffers;
        let before = if filling == Filling::Full { 0 } else { buffers * Shape::BARRIER_BYTES };
        let [before, bytes] = [before, Shape::BARRIER_BYTES].map(|value| self.b.int(Prim::I32, value.into()));
        let own = self.b.binary("mul", buffer, &bytes);
        let start = self.b.binary("add", &place.first, &before);
        self.b.binary("add", &start, &own)
    }

    /// Whether the thread is one of these warps.
    pub(super) fn is_of_warps(&mut self, warps: Warps) -> Value {
        let number = self.of_block();
        let [first, count] =
            [warps.first, warps.count].map(|warps| self.b.int(Prim::I32, (warps * Gpu::LANES).into()));
        let from = self.b.binary("sub", &number, &first);
        self.b.compare("icmp ult", &from, &count)
    }

    /// Waits for the next buffer to be of a filling.
    pub(super) fn acquire(&mut self, ring: Ring, filling: Filling, buffer: Sym) -> Result<(), EmitError> {
        let (place, data) = (self.ring(ring)?, self.kernel.rings[ring]);
        let (next_slot, next) = self.count_of(&place, filling, Count::Next);
        let (parity_slot, parity) = self.count_of(&place, filling, Count::Parity);
        let one = self.b.int(Prim::I32, 1);
        let barrier = self.barrier(ring, &place, filling, &next);
        let other = self.b.binary("xor", &parity, &one);
        let awaited = if filling == Filling::Full { &parity } else { &other };
        let own = self.is_of_warps(data.waiting(filling));
        self.when(Some(own), &mut |cx| {
            cx.wait_for_parity(&barrier, awaited);
            Ok(())
        })?;
        let (behind, is_round) = self.behind(&next, data.buffers);
        let turned = self.b.select(&is_round, &other, &parity);
        self.b.set_slot(next_slot, behind);
        self.b.set_slot(parity_slot, turned);
        self.facts.declare(buffer, Range::new(0, i64::from(data.buffers) - 1), None);
        let number = self.b.convert("zext", &next, Prim::I64);
        self.syms.insert(buffer, Bound::Scalar(number));
        if filling == Filling::Empty {
            let full = self.barrier(ring, &place, Filling::Full, &next);
            if let Some(thread) = &mut self.thread {
                thread.filling = Some(full);
            }
        }
        Ok(())
    }

    /// Says that the warps of a side have done with a buffer, which is of a filling when all have.
    pub(super) fn release(&mut self, ring: Ring, filling: Filling) -> Result<(), EmitError> {
        let (place, data) = (self.ring(ring)?, self.kernel.rings[ring]);
        // Who waits for what is empty makes it full.
        let side = match filling {
            Filling::Full => Filling::Empty,
            Filling::Empty => Filling::Full,
        };
        let (slot, held) = self.count_of(&place, side, Count::Held);
        let barrier = self.barrier(ring, &place, filling, &held);
        let own = self.is_of_warps(data.making(filling));
        self.when(Some(own), &mut |cx| {
            if place.has_copies && filling == Filling::Full {
                // It arrives when the copies are there that this thread has begun.
                cx.ptx("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];", &[&barrier]);
                return Ok(());
            }
            if place.arrives_by_lane(filling) {
                cx.ptx("mbarrier.arrive.shared::cta.b64 _, [$0];", &[&barrier]);
                return Ok(());
            }
            cx.arrive_by_warp(&barrier)
        })?;
        let (behind, _) = self.behind(&held, data.buffers);
        self.b.set_slot(slot, behind);
        if filling == Filling::Full
            && let Some(thread) = &mut self.thread
        {
            thread.filling = None;
        }
        Ok(())
    }

    /// Begins the copy of a box, by one thread of those around.
    pub(in super::super) fn copy_box(&mut self, copy: &BoxCopy) -> Result<(), EmitError> {
        let name = &self.kernel.mems[copy.to].name;
        let Some(barrier) = self.here()?.filling.clone() else {
            return Err(EmitError::malformed(format!("a box for `{name}`, of which no buffer is acquired")));
        };
        let none = || {
            EmitError::unsupported(format!(
                "a box for `{name}` whose origin may be negative, or its corners too far away"
            ))
        };
        let Cut { map, coordinates, offsets } = copy.cut(self.kernel).ok_or_else(none)?;
        let is_size = |sym: &Sym| self.kernel.sizes.contains(sym);
        if !map.dims.iter().all(|dim| [dim.step, dim.end].iter().all(|at| at.syms().iter().all(is_size))) {
            return Err(EmitError::unsupported(format!(
                "a box for `{name}` that ends elsewhere in each block"
            )));
        }
        let number = BoxMap::of(self.kernel).iter().position(|other| *other == map);
        let number = number.ok_or_else(|| EmitError::malformed("a box of no map"))?;
        let bytes = copy.elements() * self.kernel.mems[copy.to].dtype.size() as i64;
        let first = self.resolve(copy.first);
        let target = self.address_from(copy.to, &self.mems[copy.to].base.clone(), first)?;
        let target = self.shared_word(&target);
        let mut operands = vec![target, self.box_map(number)];
        for &at in &coordinates {
            let at = self.resolve(at);
            let at = self.scalar(at)?;
            operands.push(self.b.convert("trunc", &at, Prim::I32));
        }
        operands.push(barrier.clone());
        for &at in &offsets {
            let at = self.resolve(at);
            let at = self.scalar(at)?;
            operands.push(self.b.convert("trunc", &at, Prim::I16));
        }
        let names = |first: usize, count: usize| {
            (first..first + count).map(|at| format!("${at}")).collect::<Vec<_>>().join(", ")
        };
        let dims = coordinates.len();
        let (mode, tap) = match &map.windows {
            None => ("tile", String::new()),
            Some(_) => ("im2col", format!(", {{{}}}", names(3 + dims, offsets.len()))),
        };
        let text = format!(
            "cp.async.bulk.tensor.{dims}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes [$0], [$1, {{{}}}], [${}]{tap};",
            names(2, dims),
            2 + dims,
        );
        let storing = self.storing_where(copy.to, None);
        self.when(storing, &mut |cx| {
            cx.ptx(&format!("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [$0], {bytes};"), &[&barrier]);
            cx.ptx(&text, &operands.iter().collect::<Vec<_>>());
            Ok(())
        })?;
        self.touch(&[copy.to]);
        Ok(())
    }

    /// The generic address of a description of boxes, an i64.
    fn box_map(&mut self, number: usize) -> Value {
        self.b.pure(Ty::I64, &[], format!("ptrtoint ptr %box{number} to i64"))
    }

    /// An address in shared memory as a number of 32 bits.
    pub(super) fn shared_word(&mut self, address: &Value) -> Value {
        let address = self.shared(address);
        let text = format!("ptrtoint ptr addrspace(3) {} to i32", address.text);
        self.b.pure(Ty::scalar(Prim::I32), &[&address], text)
    }
}

impl Place {
    /// Whether every lane arrives at what counts a filling, and not one of each warp: for what it has itself stored or loaded. (One that arrives for all
    /// lanes of its warp, which have waited for each other, is as good, but `racecheck` of compute-sanitizer 2025.3 takes its arrival for its own.)
    fn arrives_by_lane(&self, filling: Filling) -> bool {
        filling == Filling::Full && self.has_copies || self.has_stores
    }
}
