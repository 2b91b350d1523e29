//! Says what a kernel of a GPU needs to be launched: threads, blocks, shared memory, and memory of its own.

use super::{
    Act, Blocks, BoxMap, Kernel, KernelLoopKind, Mem, MemorySpace, Op, Ring, Roles, Stmt, Sync, visit,
};
use crate::Diag;
use crate::ids::Id;
use crate::target::{Gpu, Level};
use litz_sym::{Expr, Facts, Sym};

/// How a kernel is launched on a GPU: `@k` with 128 threads a block, `ceildiv(s0, 4)` blocks a point, 2048 shared bytes. Code is made for
/// it, and the same kernel always has the same.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Threads of a block, whole warps; whole warpgroups, where registers are moved between them.
    pub threads: u32,
    /// Registers that a thread is launched with, at most, if the kernel says so.
    pub registers: Option<u32>,
    /// Blocks that run a grid point together.
    pub blocks: Blocks,
    /// How many they are.
    pub blocks_of_point: Expr,
    /// Bytes that the threads of a block share.
    pub shared_bytes: u32,
    /// Bytes of global memory that the threads of a grid point share, a multiple of [`Shape::ALIGNMENT`].
    pub global_bytes: Expr,
    /// Whether the blocks of a grid point count those that have come somewhere, in a word for each point that is zero between launches.
    pub counts_blocks: bool,
    /// Whether its blocks may start before the kernel in front of it has ended, on GPUs that can do so. What such a kernel reads others may be storing
    /// when it starts, so that no load of it may be taken ahead of barriers and stores as one of a constant may. One that has loads behind such starts late.
    pub starts_early: bool,
    /// Whether it loads constants before the kernel in front of it has ended: what is in front has to be one that began when these were there.
    pub loads_early: bool,
    /// What boxes are cut out of: descriptions that code is launched with.
    pub boxes: Vec<BoxMap>,
    /// Where each memory begins in what it is a part of: of those of the kernel that are shared or global.
    places: Vec<(Mem, Expr)>,
    /// Bytes from what one team of a block has of a memory to what the next one has.
    of_teams: Vec<(Mem, i64)>,
    /// Where the barriers of each ring begin in what threads share.
    rings: Vec<u32>,
    /// Where those begin at which teams wait for each other, one for each team.
    turns: u32,
}

impl Shape {
    /// Of the addresses of all memories: as many bytes as one instruction loads.
    pub const ALIGNMENT: i64 = Gpu::VECTOR_BYTES as i64;
    /// Of memories that boxes are copied to, whose units change places. (PTX ISA, swizzle modes of tensors.)
    const BOX_ALIGNMENT: i64 = 1024;
    /// Bytes of a description of what boxes are cut out of. (CUDA driver API, `CUtensorMap`.)
    pub const MAP_BYTES: usize = 128;
    /// Bytes of a barrier of a ring. (PTX ISA, `mbarrier`.)
    pub const BARRIER_BYTES: u32 = 8;

    /// That of a kernel.
    ///
    /// # Errors
    /// When the threads of a block share memory of which the size has no bound.
    pub fn of(kernel: &Kernel) -> Result<Shape, Diag> {
        let mut facts = kernel.facts.clone();
        kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
        let mut teams = Teams { facts: facts.clone(), threads: 1, blocks: Expr::one() };
        teams.visit(&kernel.body);
        let (mut places, mut of_teams) = (Vec::new(), Vec::new());
        let (mut shared, mut global) = (0, Expr::zero());
        let roles = Roles::of(kernel);
        if roles.is_none() && kernel.persistent.is_some_and(|stays| stays.teams > 1) {
            return Err(Diag::new("no-teams", "teams of a block for which no warps behind them copy alone"));
        }
        let boxes = copied_as_boxes(kernel);
        for (mem, data) in kernel.mems.iter() {
            let bytes = data.span() * data.dtype.size() as i64;
            match data.space {
                MemorySpace::Shared => {
                    let most = facts.bounds(bytes).hi;
                    let alignment =
                        if boxes.contains(&mem) { Shape::BOX_ALIGNMENT } else { Shape::ALIGNMENT };
                    shared = next_multiple(shared, alignment);
                    places.push((mem, Expr::int(shared)));
                    let mut bytes = most.clamp(0, 1 << 32);
                    if let Some(roles) = roles.as_ref().filter(|roles| roles.has_each(data, mem)) {
                        let step = next_multiple(bytes, alignment);
                        of_teams.push((mem, step));
                        bytes = step * i64::from(roles.teams);
                    }
                    shared += bytes;
                }
                MemorySpace::Global => {
                    places.push((mem, global));
                    global = global + bytes.ceildiv(Shape::ALIGNMENT) * Shape::ALIGNMENT;
                }
                MemorySpace::Read
                | MemorySpace::Constant
                | MemorySpace::Number
                | MemorySpace::Write
                | MemorySpace::Update
                | MemorySpace::Register
                | MemorySpace::Scratch
                | MemorySpace::Own
                | MemorySpace::Cluster => {}
            }
        }
        let mut rings = Vec::new();
        for ring in kernel.rings.values() {
            shared = next_multiple(shared, Shape::BARRIER_BYTES.into());
            rings.push(shared);
            shared += i64::from(2 * ring.buffers * Shape::BARRIER_BYTES);
        }
        let turns = shared as u32;
        if let Some(Roles { teams: teams @ 2.., .. }) = roles {
            shared += i64::from(teams * Shape::BARRIER_BYTES);
        }
        let mut counts_blocks = false;
        visit(&kernel.body, &mut |stmt| {
            counts_blocks |= matches!(stmt, Stmt::Act(Act::Sync(Sync::Elect | Sync::Await | Sync::Pass)));
        });
        let shared_bytes = u32::try_from(shared).ok().filter(|&bytes| bytes < 1 << 20);
        let shared_bytes = shared_bytes.ok_or_else(|| {
            Diag::new("unbounded-memory", "threads share memory of which the size has no bound")
        })?;
        let rings = rings.into_iter().map(|place| place as u32).collect();
        let (threads, registers) = match &roles {
            Some(roles) => {
                let threads = roles.computing_threads();
                (threads + Gpu::WARPGROUP, Some(Gpu::registers_at_launch(threads, roles.registers)))
            }
            None => (teams.threads.next_multiple_of(Gpu::LANES), kernel.registers),
        };
        Ok(Shape {
            threads,
            registers,
            blocks: kernel.blocks(),
            blocks_of_point: teams.blocks,
            shared_bytes,
            global_bytes: global,
            counts_blocks,
            // What it has under way by then is worth more than what loads of constants are, and those may not stay ahead of the wait.
            starts_early: kernel.waits_late() || !Waits::default().have_loads(kernel, &kernel.body),
            loads_early: kernel.waits_late(),
            boxes: BoxMap::of(kernel),
            places,
            of_teams,
            rings,
            turns,
        })
    }

    /// Where the barriers begin at which teams of a block wait for each other, in bytes of what threads share.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// What each team of a block has for itself: memories, with the bytes from what one team has to what the next one has.
    pub fn of_teams(&self) -> &[(Mem, i64)] {
        &self.of_teams
    }

    /// Where the barriers of a ring begin, in bytes of what threads share: those that count what is full, one for each buffer, then those that
    /// count what is empty.
    pub fn ring(&self, ring: Ring) -> u32 {
        self.rings[ring.index()]
    }

    /// Where a memory begins, in bytes; none where it is no part of what threads share.
    pub fn place(&self, mem: Mem) -> Option<Expr> {
        self.places.iter().find(|(own, _)| *own == mem).map(|(_, place)| *place)
    }
}

/// Looks for loads behind barriers of what is no constant.
#[derive(Default)]
struct Waits {
    is_behind: bool,
}

impl Waits {
    /// Whether statements load what the kernel only reads, to where a thread has it, behind a barrier, or in a loop that has one or stores what others
    /// see: there loads of constants are taken ahead of stores of the iterations before. What all blocks load is near, and not worth the
    /// registers that it takes until then.
    fn have_loads(&mut self, kernel: &Kernel, stmts: &[Stmt]) -> bool {
        stmts.iter().any(|stmt| match stmt {
            Stmt::Loop(inner) => {
                let repeats = is_repeated(inner.kind);
                visit(&inner.body, &mut |stmt| {
                    self.is_behind |= is_barrier(stmt) || repeats && is_store(kernel, stmt);
                });
                self.have_loads(kernel, &inner.body)
            }
            Stmt::If { then, other, .. } => {
                let mut beside = Waits { is_behind: self.is_behind };
                let have = self.have_loads(kernel, then) || beside.have_loads(kernel, other);
                self.is_behind |= beside.is_behind;
                have
            }
            Stmt::Act(act) => {
                self.is_behind |= is_barrier(stmt);
                let from = if let Act::Let { op: Op::Load { mem, index, .. }, .. } = act {
                    Some((*mem, index))
                } else if let Act::Copy { from, is_async: false, .. } = act {
                    Some((from.mem, &from.index))
                } else {
                    None
                };
                let is_far = |(mem, index): (Mem, &Vec<Expr>)| {
                    kernel.mems[mem].space == MemorySpace::Read && !is_of_all(kernel, index)
                };
                self.is_behind && from.is_some_and(is_far)
            }
        })
    }
}

/// Whether all blocks load the same elements at an index, as weights of rows: all but the first find them near. Of what they come to one after
/// another each may have others.
fn is_of_all(kernel: &Kernel, index: &[Expr]) -> bool {
    let mut own: Vec<Sym> = kernel.grid.iter().map(|axis| axis.var).collect();
    visit(&kernel.body, &mut |stmt| match stmt {
        Stmt::Loop(inner) => {
            let is_of_blocks = matches!(inner.kind.level(), Some(Level::Block | Level::Grid));
            own.extend((is_of_blocks || is_repeated(inner.kind)).then_some(inner.var));
        }
        // Indices that data says.
        Stmt::Act(_) => own.extend(stmt.defined()),
        Stmt::If { .. } => {}
    });
    !index.iter().any(|at| own.iter().any(|&sym| at.has_sym(sym)))
}

/// Whether a thread runs several iterations of such loops, one after another.
fn is_repeated(kind: KernelLoopKind) -> bool {
    match kind {
        KernelLoopKind::For
        | KernelLoopKind::Pipeline { .. }
        | KernelLoopKind::Chain
        | KernelLoopKind::Search => true,
        KernelLoopKind::Level(_)
        | KernelLoopKind::Unroll
        | KernelLoopKind::Vector { .. }
        | KernelLoopKind::Mma { .. } => false,
    }
}

/// Whether a statement stores to global memory.
fn is_store(kernel: &Kernel, stmt: &Stmt) -> bool {
    let is_global = |space| matches!(space, MemorySpace::Write | MemorySpace::Update | MemorySpace::Global);
    stmt.stored().any(|(mem, _)| is_global(kernel.mems[mem].space))
}

/// Whether threads of several warps wait for each other there.
fn is_barrier(stmt: &Stmt) -> bool {
    let Stmt::Act(Act::Sync(sync)) = stmt else { return false };
    match sync {
        Sync::Barrier(Level::Warp | Level::Lane | Level::Thread)
        | Sync::Commit
        | Sync::Wait { .. }
        | Sync::Kernels
        | Sync::CommitProducts
        | Sync::Products { .. } => false,
        Sync::Barrier(Level::Warpgroup | Level::Block | Level::Grid)
        | Sync::Warps(_)
        | Sync::Cluster
        | Sync::Elect
        | Sync::Await
        | Sync::Pass
        | Sync::Acquire { .. }
        | Sync::Release { .. } => true,
    }
}

fn next_multiple(bytes: i64, alignment: i64) -> i64 {
    (bytes + alignment - 1) / alignment * alignment
}

/// The memories that boxes are copied to.
fn copied_as_boxes(kernel: &Kernel) -> Vec<Mem> {
    let mut mems = Vec::new();
    visit(&kernel.body, &mut |stmt| {
        if let Stmt::Act(Act::BoxCopy(copy)) = stmt {
            mems.push(copy.to);
        }
    });
    mems
}

/// Counts threads and blocks.
struct Teams {
    facts: Facts,
    threads: u32,
    blocks: Expr,
}

impl Teams {
    fn visit(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            if let Stmt::Loop(inner) = stmt {
                match inner.kind.team() {
                    Some(team) if matches!(team.level, Level::Block | Level::Grid) => {
                        let units = inner.extent * i64::from(team.each) + i64::from(team.from);
                        self.blocks = if self.blocks == Expr::one() { units } else { self.blocks.max(units) };
                    }
                    Some(team) => {
                        let most = self.facts.bounds(inner.extent).hi.clamp(0, i64::from(Gpu::THREADS));
                        let units = i64::from(team.from) + most * i64::from(team.each);
                        let threads = units.saturating_mul(threads_of(team.level).into());
                        let threads = if most > 0 { threads.min(Gpu::THREADS.into()) } else { 0 };
                        self.threads = self.threads.max(threads as u32);
                    }
                    None => {}
                }
                self.facts.declare_index(inner.var, inner.extent);
                if let KernelLoopKind::Vector { lane: Some(lane), .. } = inner.kind {
                    self.facts.declare_index(lane, inner.extent);
                }
            }
            stmt.blocks().into_iter().for_each(|block| self.visit(block));
        }
    }
}

/// Threads of each of a level, within a block.
pub fn threads_of(level: Level) -> u32 {
    match level {
        Level::Grid | Level::Block => Gpu::THREADS,
        Level::Warpgroup => Gpu::WARPGROUP,
        Level::Warp => Gpu::LANES,
        Level::Thread | Level::Lane => 1,
    }
}
