//! Defines rings: what orders warps that store to buffers in rotation and warps that read them, with no meeting of both.
//!
//! ```text
//! ring 0 of 3 filled by warp 8, emptied by warps 0 to 7
//! ..
//! for k in n {
//!   acquire empty ring 0 as f        // warp 8 waits for a buffer that nobody reads any more: f is its number
//!   warp w in 1 from 8 { copy async 8 a[..] to s[512*f + ..] }
//!   release full ring 0              // what warp 8 has stored there, and what its copies will
//!   acquire full ring 0 as u         // warps 0 to 7 wait for the next one
//!   warpgroup g in 2 { .. load s[512*u + ..] }
//!   release empty ring 0
//! }
//! ```
//!
//! Each side takes the buffers in the order of their numbers, again and again: the third `acquire full` of a warp waits for the third `release full`
//! of all that fill. So the warps that fill are up to as many iterations ahead of those that empty as there are buffers. Where the text
//! of a kernel comes to such an act, all threads of the block do, but only the warps of its side take notice.
//!
//! A ring is two `mbarrier`s a buffer (PTX ISA), one of which counts what is full, the other one what is empty. All buffers of a ring are
//! empty where a grid point begins and where it ends, so that blocks that take several points go on counting.

use std::fmt;

use super::{Act, Kernel, Loop, Stmt, Sync, visit};
use crate::entity;
use crate::target::{Gpu, Level, Team};
use litz_sym::Expr;

entity!(
    /// A ring of a kernel.
    Ring,
    "ring "
);

/// A ring of buffers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RingData {
    /// Buffers in rotation, at least one.
    pub buffers: u32,
    /// The warps that store to them.
    pub fills: Warps,
    /// The warps that read them, of which none stores.
    pub empties: Warps,
}

/// Neighbouring warps of a block, at least one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Warps {
    /// The first one.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// What a buffer of a ring is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Filling {
    /// It has what those that read it wait for.
    Full,
    /// Nobody reads it any more.
    Empty,
}

impl Filling {
    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            Filling::Full => "full",
            Filling::Empty => "empty",
        }
    }
}

impl Warps {
    /// The number behind the last one.
    pub fn end(self) -> u32 {
        self.first.saturating_add(self.count)
    }

    /// Whether one is in both.
    pub fn overlaps(self, other: Warps) -> bool {
        self.first < other.end() && other.first < self.end()
    }

    /// Whether all of others are among them.
    pub fn contains(self, other: Warps) -> bool {
        self.first <= other.first && other.end() <= self.end()
    }

    /// Those from the first to the last of both.
    pub fn join(self, other: Warps) -> Warps {
        let first = self.first.min(other.first);
        Warps { first, count: self.end().max(other.end()) - first }
    }
}

impl Warps {
    /// Those of a block that run the iterations of a loop over warpgroups, warps or threads. None where these are no whole warps, or how many
    /// there are is not known.
    pub fn of(inner: &Loop) -> Option<Warps> {
        let Team { level, from, each } = inner.kind.team()?;
        let extent = u32::try_from(inner.extent.as_int()?).ok().filter(|&extent| extent > 0)?;
        let threads = match level {
            Level::Warpgroup => Gpu::WARPGROUP,
            Level::Warp => Gpu::LANES,
            Level::Thread => 1,
            Level::Grid | Level::Block | Level::Lane => return None,
        };
        let (first, count) = (from.checked_mul(threads)?, extent.checked_mul(each)?.checked_mul(threads)?);
        let is_whole = first % Gpu::LANES == 0 && count % Gpu::LANES == 0;
        is_whole.then_some(Warps { first: first / Gpu::LANES, count: count / Gpu::LANES })
    }

    /// From the first to the last of those that run the acts among statements which `is_meant` says. None where there are no such acts,
    /// or one that all threads of a block come to.
    pub fn that_run(stmts: &[Stmt], is_meant: &dyn Fn(&Stmt) -> bool) -> Option<Warps> {
        let mut found = Ok(None);
        join_all(stmts, is_meant, &mut found);
        found.ok().flatten()
    }
}

/// All threads of a block run something, or nobody knows which do.
#[derive(Clone, Copy)]
struct AllThreads;

/// Adds the warps that run such acts to those found.
fn join_all(stmts: &[Stmt], is_meant: &dyn Fn(&Stmt) -> bool, found: &mut Result<Option<Warps>, AllThreads>) {
    for stmt in stmts {
        match stmt {
            Stmt::Loop(inner) if inner.kind.level().is_some_and(Level::has_threads) => {
                let mut is_in = false;
                visit(&inner.body, &mut |stmt| is_in |= matches!(stmt, Stmt::Act(_)) && is_meant(stmt));
                if is_in {
                    let own = Warps::of(inner).ok_or(AllThreads);
                    *found = found.and_then(|found| {
                        let own = own?;
                        Ok(Some(found.map_or(own, |found| found.join(own))))
                    });
                }
            }
            Stmt::Loop(_) | Stmt::If { .. } => {
                stmt.blocks().into_iter().for_each(|block| join_all(block, is_meant, found));
            }
            Stmt::Act(_) if is_meant(stmt) => *found = Err(AllThreads),
            Stmt::Act(_) => {}
        }
    }
}

/// How many buffers of a ring are used at a point, if that is the same at all points: what comes behind it in a kernel whose blocks stay begins with the
/// next one. None where it is not known.
pub fn used_at_point(kernel: &Kernel, ring: Ring) -> Option<Expr> {
    let used = used(&kernel.body, ring)?;
    used.syms().iter().all(|sym| kernel.sizes.contains(sym)).then_some(used)
}

fn used(stmts: &[Stmt], of: Ring) -> Option<Expr> {
    let mut all = Expr::zero();
    for stmt in stmts {
        let here = match stmt {
            Stmt::Loop(inner) => inner.extent * used(&inner.body, of)?,
            Stmt::If { then, other, .. } => {
                let [then, other] = [then, other].map(|body| used(body, of));
                then.filter(|&then| Some(then) == other)?
            }
            Stmt::Act(Act::Sync(Sync::Acquire { ring, filling: Filling::Full, .. })) if *ring == of => {
                Expr::one()
            }
            Stmt::Act(_) => Expr::zero(),
        };
        all = all + here;
    }
    Some(all)
}

impl RingData {
    /// The warps that wait for buffers to be such.
    pub fn waiting(&self, filling: Filling) -> Warps {
        match filling {
            Filling::Full => self.empties,
            Filling::Empty => self.fills,
        }
    }

    /// The warps that make buffers such.
    pub fn making(&self, filling: Filling) -> Warps {
        match filling {
            Filling::Full => self.fills,
            Filling::Empty => self.empties,
        }
    }
}

impl fmt::Display for Warps {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.count {
            1 => write!(f, "warp {}", self.first),
            _ => write!(f, "warps {} to {}", self.first, i64::from(self.end()) - 1),
        }
    }
}

impl fmt::Display for RingData {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "of {} filled by {}, emptied by {}", self.buffers, self.fills, self.empties)
    }
}
