//! Parts the text of a kernel by who runs it, where warps that only copy give registers to those that compute.
//!
//! All warps of a block run one text, and most of what it says is of some warps alone. Registers are moved between warpgroups, though, by an
//! instruction that each of them comes to, and what is behind it must need no more than it leaves: so there the text is there twice.
//!
//! ```text
//! for k in n {                                     // warps 0 to 7            // warps 8 to 11
//!   acquire empty ring 0 as f                                                 acquire empty ring 0 as f
//!   warp w in 1 from 8 { copy box a[..] to s }                                warp w in 1 from 8 { copy box a[..] to s }
//!   release full ring 0                                                       release full ring 0
//!   acquire full ring 0 as u                       acquire full ring 0 as u
//!   warpgroup g in 2 { .. products .. }            warpgroup g in 2 { .. }
//!   release empty ring 0                           release empty ring 0
//! }
//! ```
//!
//! Of a kernel whose blocks stay there may be two teams that compute, each with the text of all warps that do, for every other point. A ring's buffers come
//! to them in the order of points: a team begins to use buffers when the other one has had those of the point before, and counts these as well. While
//! it stores what it has summed, the other one sums.
//!
//! ```text
//! warps 0 to 3            warps 4 to 7            warp 8
//! sum point 0                                     copy for points 0, 1, 2, ..
//! store point 0           sum point 1
//! sum point 2             store point 1
//! store point 2           sum point 3
//! ```

use super::{Act, Kernel, Loop, Mem, MemData, MemorySpace, Stmt, Sync, Warps, visit};
use crate::target::{Gpu, Level};

/// Warps of a warpgroup.
const WARPS: u32 = Gpu::WARPGROUP / Gpu::LANES;

/// A kernel's text, parted.
#[derive(Clone, Debug)]
pub struct Roles {
    /// Threads of a team that computes, whole warpgroups. Those of one more warpgroup behind all teams copy, or do nothing.
    pub threads: u32,
    /// Teams, each of which takes every so many-th point.
    pub teams: u32,
    /// Registers of each of these.
    pub registers: u32,
    /// What warps that compute run.
    pub computing: Vec<Stmt>,
    /// What the warpgroup behind them runs.
    pub copying: Vec<Stmt>,
}

impl Roles {
    /// Those of a kernel that says how many registers a thread has, and in which warps behind all that compute fill all rings. None where a thread's
    /// registers are not moved, as what some warps do depends on what others have stored to memory of their own.
    pub fn of(kernel: &Kernel) -> Option<Roles> {
        let registers = kernel.registers?;
        let first = kernel.rings.values().map(|ring| ring.fills.first).min()?;
        let (computing, copying) = (Warps { first: 0, count: first }, Warps { first, count: WARPS });
        let is_behind =
            |(fills, empties): (Warps, Warps)| copying.contains(fills) && computing.contains(empties);
        let are_behind = kernel.rings.values().map(|ring| (ring.fills, ring.empties)).all(is_behind);
        if first == 0 || first % WARPS != 0 || !are_behind {
            return None;
        }
        let [computing, copying] =
            [computing, copying].map(|warps| Role { kernel, warps, copies: warps == copying });
        let roles = Roles {
            threads: first * Gpu::LANES,
            teams: kernel.persistent.map_or(1, |stays| stays.teams),
            registers,
            computing: computing.part(&kernel.body)?,
            copying: copying.part(&kernel.body)?,
        };
        let mut left_out = Vec::new();
        visit(&kernel.body, &mut |stmt| {
            if matches!(stmt, Stmt::Act(act) if !copying.runs(act)) {
                left_out.extend(stmt.stored().map(|(mem, _)| mem));
            }
        });
        let mut loads_them = false;
        visit(&roles.copying, &mut |stmt| {
            loads_them |= stmt.loaded().any(|(mem, _)| left_out.contains(&mem))
        });
        let meet_beside = roles.teams > 1 && has_meetings(&roles.copying);
        (!loads_them && !meet_beside).then_some(roles)
    }

    /// Threads of a block that compute.
    pub fn computing_threads(&self) -> u32 {
        self.threads * self.teams
    }

    /// Whether each team has such memory for itself: what warps that copy touch is there for all.
    pub fn has_each(&self, data: &MemData, mem: Mem) -> bool {
        let mut is_fed = false;
        visit(&self.copying, &mut |stmt| is_fed |= stmt.accesses().any(|(other, _)| other == mem));
        self.teams > 1 && data.space == MemorySpace::Shared && !is_fed
    }
}

/// Whether some warps wait for each other: barriers have numbers for each team, and none for warps behind them, or for both.
fn has_meetings(stmts: &[Stmt]) -> bool {
    let mut found = false;
    visit(stmts, &mut |stmt| {
        let meets = |sync: Sync| matches!(sync, Sync::Warps(_) | Sync::Barrier(Level::Warpgroup));
        found |= matches!(stmt, Stmt::Act(Act::Sync(sync)) if meets(*sync));
    });
    found
}

/// Some warps of a kernel, and whether they copy for the others.
#[derive(Clone, Copy)]
struct Role<'a> {
    kernel: &'a Kernel,
    warps: Warps,
    copies: bool,
}

impl Role<'_> {
    /// What of statements these warps run. None where others have to run it as well, or nobody knows who does.
    fn part(&self, stmts: &[Stmt]) -> Option<Vec<Stmt>> {
        let mut own = Vec::new();
        for stmt in stmts {
            match stmt {
                Stmt::Loop(inner) => match inner.kind.level() {
                    Some(Level::Warpgroup | Level::Warp | Level::Thread | Level::Lane) => {
                        let warps = Warps::of(inner)?;
                        if self.warps.contains(warps) {
                            own.push(stmt.clone());
                        } else if self.warps.overlaps(warps) {
                            return None;
                        }
                    }
                    None | Some(Level::Grid | Level::Block) => {
                        let body = self.part(&inner.body)?;
                        if !body.is_empty() {
                            own.push(Stmt::Loop(Loop { body, ..inner.clone() }));
                        }
                    }
                },
                Stmt::If { cond, then, other } => {
                    let (then, other) = (self.part(then)?, self.part(other)?);
                    if !then.is_empty() || !other.is_empty() {
                        own.push(Stmt::If { cond: cond.clone(), then, other });
                    }
                }
                Stmt::Act(Act::Sync(Sync::Elect | Sync::Await | Sync::Pass | Sync::Cluster)) => return None,
                // Teams come there at different points.
                Stmt::Act(Act::Sync(Sync::Barrier(Level::Block | Level::Grid))) if self.has_teams() => {
                    return None;
                }
                Stmt::Act(act) => own.extend(self.runs(act).then(|| stmt.clone())),
            }
        }
        Some(own)
    }

    fn has_teams(&self) -> bool {
        self.kernel.persistent.is_some_and(|stays| stays.teams > 1)
    }

    /// Whether they run an act that all threads come to. Of those that change memory one thread does, which computes.
    fn runs(&self, act: &Act) -> bool {
        match act {
            Act::Sync(Sync::Acquire { ring, filling, .. }) => {
                self.warps.overlaps(self.kernel.rings[*ring].waiting(*filling))
            }
            Act::Sync(Sync::Release { ring, filling }) => {
                self.warps.overlaps(self.kernel.rings[*ring].making(*filling))
            }
            Act::Sync(Sync::Warps(warps)) => self.warps.overlaps(*warps),
            Act::Sync(Sync::CommitProducts | Sync::Products { .. }) => !self.copies,
            Act::Sync(_) | Act::Let { .. } | Act::Bind { .. } => true,
            Act::Store { .. }
            | Act::MulAdd { .. }
            | Act::Lanes(_)
            | Act::Dot(_)
            | Act::MatrixProduct(_)
            | Act::FragmentLoad(_)
            | Act::FragmentProduct(_)
            | Act::Copy { .. }
            | Act::BoxCopy(_)
            | Act::Prefetch { .. }
            | Act::ArgStore { .. } => !self.copies,
        }
    }
}
