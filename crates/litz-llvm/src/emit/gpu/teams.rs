//! Prints who runs what in a block whose warps have parts: those that compute, in one team or several, and those that copy for them.
//!
//! ```text
//! if number < 256 {                            two teams of 128 threads
//!   team = number / 128
//!   skip what the points before are fed        team 1: the buffers of the point of team 0
//!   for each second point from the own one {
//!     await turn                               a parity of barrier `turns + 8*team`
//!     sum                                      acquires and releases buffers of rings
//!     pass turn                                each warp arrives at the barrier of the other team
//!     store
//!     skip                                     the buffers of the other team's point
//!   }
//! } else { copy for all points }
//! ```
//!
//! Teams use the buffers of rings one after another: a barrier tells odd rounds from even ones alone, so that a team which is more than one of them ahead
//! would take the other one's buffers for its own. At its first point team 0 waits for the phase before the first, which is over.

use litz_ir::ids::Id;
use litz_ir::kernel::{Act, Filling, Ring, Roles, Shape, Stmt, Sync, used_at_point, visit};
use litz_ir::target::Gpu;

use super::super::block::{Slot, Value};
use super::super::ty::{Prim, Ty};
use super::super::{EmitError, Emitter};
use super::rings::TURN;

/// One of the teams of a block.
#[derive(Clone, Debug)]
pub(super) struct Team {
    /// Its number, an i32.
    pub(super) number: Value,
    /// Threads of it.
    pub(super) threads: u32,
    /// Where the barriers of teams begin in shared memory, an i32.
    turns: Value,
}

impl Emitter<'_> {
    /// Has warps do what their part is.
    pub(super) fn roles(&mut self, roles: &Roles, first: &Value, shape: &Shape) -> Result<(), EmitError> {
        let (around, mems) = (self.thread.clone(), self.mems.clone());
        let all = self.b.int(Prim::I32, roles.computing_threads().into());
        let number = self.special("tid.x");
        let computes = self.b.compare("icmp ult", &number, &all);
        self.choose(
            &computes,
            &mut |cx| {
                cx.has_registers("inc", roles.registers);
                match roles.teams {
                    1 => {
                        cx.count_threads(number.clone(), roles.threads);
                        cx.points(&roles.computing, first, shape)
                    }
                    _ => cx.team(roles, first, shape),
                }
            },
            &mut |cx| {
                (cx.thread, cx.mems) = (around.clone(), mems.clone());
                cx.has_registers("dec", Gpu::COPYING_REGISTERS);
                // Behind one team, as far as the text says.
                let others = cx.b.int(Prim::I32, (roles.computing_threads() - roles.threads).into());
                let number = cx.b.binary("sub", &number, &others);
                cx.count_threads(number, roles.threads + Gpu::WARPGROUP);
                cx.points(&roles.copying, first, shape)
            },
        )
    }

    /// Does every other point of a block, as the team that the thread is of.
    fn team(&mut self, roles: &Roles, first: &Value, shape: &Shape) -> Result<(), EmitError> {
        let threads = self.b.int(Prim::I32, roles.threads.into());
        let number = self.special("tid.x");
        let own = self.b.binary("urem", &number, &threads);
        let number = self.b.binary("udiv", &number, &threads);
        self.count_threads(own, roles.threads);
        for &(mem, bytes) in shape.of_teams() {
            let bytes = self.b.int(Prim::I32, bytes);
            let bytes = self.b.binary("mul", &number, &bytes);
            let bytes = self.b.convert("zext", &bytes, Prim::I64);
            let base = self.mems[mem].base.clone();
            self.mems[mem].base = self.advance(Ty::scalar(Prim::I8), &base, &bytes);
        }
        let turns = self.address_of_barriers(shape.turns());
        let team = Team { number: number.clone(), threads: roles.threads, turns };
        if let Some(thread) = &mut self.thread {
            thread.team = Some(team);
        }
        self.skip(&number)?;
        self.points(&roles.computing, first, shape)
    }

    /// One point of a team: it waits for its turn to use buffers, and passes that on.
    pub(super) fn point_of_team(&mut self, body: &[Stmt]) -> Result<(), EmitError> {
        let uses = |stmt: &Stmt| {
            let mut found = false;
            visit(std::slice::from_ref(stmt), &mut |stmt| {
                let full = Filling::Full;
                found |=
                    matches!(stmt, Stmt::Act(Act::Sync(Sync::Acquire { filling, .. })) if *filling == full);
            });
            found
        };
        let from = body.iter().position(uses).unwrap_or(0);
        let to = body.iter().rposition(uses).map_or(0, |last| last + 1);
        self.body(&body[..from])?;
        self.await_team()?;
        self.body(&body[from..to])?;
        self.pass_to_team()?;
        self.body(&body[to..])?;
        let one = self.b.int(Prim::I32, 1);
        self.skip(&one)
    }

    fn own_team(&self) -> Result<Team, EmitError> {
        self.here()?.team.clone().ok_or_else(|| EmitError::malformed("a turn of no team"))
    }

    /// Waits until the other team has used its buffers of the point before.
    fn await_team(&mut self) -> Result<(), EmitError> {
        let team = self.own_team()?;
        let [zero, one] = [0, 1].map(|value| self.b.int(Prim::I32, value));
        let slot = self.turn_slot()?;
        let parity = self.b.slot(slot, &zero);
        let is_second = self.b.binary("xor", &team.number, &one);
        let awaited = self.b.binary("xor", &parity, &is_second);
        let barrier = self.barrier_of_team(&team, &team.number);
        self.wait_for_parity(&barrier, &awaited);
        let parity = self.b.binary("xor", &parity, &one);
        self.b.set_slot(slot, parity);
        let mems = self.seen_by_others();
        self.touch(&mems);
        Ok(())
    }

    /// Lets the other team use the buffers of its next point.
    fn pass_to_team(&mut self) -> Result<(), EmitError> {
        let team = self.own_team()?;
        let one = self.b.int(Prim::I32, 1);
        let other = self.b.binary("xor", &team.number, &one);
        let barrier = self.barrier_of_team(&team, &other);
        self.arrive_by_warp(&barrier)
    }

    /// Where a thread counts its turns: beside what it counts of the first ring.
    fn turn_slot(&self) -> Result<Slot, EmitError> {
        let counts = self.here()?.rings.first().map(|place| place.counts);
        let mem = counts.ok_or_else(|| EmitError::malformed("teams without a ring"))?;
        Ok(Slot { mem, group: TURN })
    }

    fn barrier_of_team(&mut self, team: &Team, number: &Value) -> Value {
        let bytes = self.b.int(Prim::I32, Shape::BARRIER_BYTES.into());
        let own = self.b.binary("mul", number, &bytes);
        self.b.binary("add", &team.turns, &own)
    }

    /// Counts the buffers of so many points, 0 or 1, as had.
    fn skip(&mut self, points: &Value) -> Result<(), EmitError> {
        let kernel = self.kernel;
        for (ring, data) in kernel.rings.iter() {
            let used = used_at_point(kernel, ring).ok_or_else(|| {
                EmitError::unsupported(format!("teams for whose points {ring} has different buffers"))
            })?;
            let used = self.resolve(used);
            let buffers = i64::from(data.buffers);
            let [rounds, more] = [used.floordiv(buffers), used.modulo(buffers)].map(|count| {
                let count = self.scalar(count)?;
                let count = self.b.convert("trunc", &count, Prim::I32);
                Ok(self.b.binary("mul", &count, points))
            });
            self.skip_buffers(Ring::new(ring.index()), (&rounds?, &more?))?;
        }
        Ok(())
    }
}
