//! Assigns offsets in memory pools to buffers that outlive a kernel, so that buffers whose lifetimes do not overlap share memory.

use crate::heuristics::MemoryPool;
use litz_analysis::Dependences;
use litz_ir::graph::Queue;
use litz_ir::loops::{Buf, BufData, BufKind, Loops, Stmt};
use litz_ir::schedule::{Pool, ScheduleStep};
use litz_sym::{Expr, Rel};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Alignment of every place: a cache line and a full vector.
const ALIGN: i64 = 64;

/// Steps during which a buffer holds something: first write to last use. Inputs hold something from the first step on.
#[derive(Clone, Copy, Debug)]
struct Life {
    buf: Buf,
    first: usize,
    last: usize,
}

impl Life {
    fn overlaps(&self, other: &Life) -> bool {
        other.first <= self.last && self.first <= other.last
    }

    /// Whether the memory of a host may be another buffer's for as long as that lives: before a result is written, or behind all
    /// that reads an input.
    fn is_free(&self, other: &Life, loops: &Loops) -> bool {
        match loops.bufs[self.buf].kind {
            BufKind::Input => self.last < other.first,
            BufKind::Temp | BufKind::Const(_) => other.last < self.first,
        }
    }
}

/// Plans pools. Buffers of constant size are packed by first fit of the largest first; those of run-time size get one
/// place for each size class. Before they open a pool of their own, buffers take what fits of the memory of hosts: buffers that
/// are returned and not yet written, and inputs that are donated and not read any more. Results of steps at load get memory of
/// their own. Of `reuses`, in order of steps, the second buffer is where the first one is. Each stream of a device has two pools. Buffers that
/// are first used when another size has become known have pools of their own: no memory is planned before all sizes in it are
/// there. `mode` says which of all this there is.
pub fn pools(
    loops: &Loops,
    deps: &Dependences,
    steps: &[ScheduleStep],
    reuses: &[(Buf, Buf)],
    mode: MemoryPool,
) -> Vec<Pool> {
    if mode == MemoryPool::None {
        return Vec::new();
    }
    // What several streams use has memory of its own: nothing says there when its life ends.
    let mut lives = lifetimes(loops, steps, reuses);
    lives.retain(|life| !loops.crosses_streams(life.buf, &deps.users[life.buf]));
    let late: HashSet<&str> =
        loops.late_sizes().into_iter().map(|(_, defined)| loops.stmts[defined].name()).collect();
    let mut known = 0;
    let mut sizes_before: Vec<usize> = Vec::with_capacity(steps.len());
    for step in steps {
        sizes_before.push(known);
        known += usize::from(late.contains(step.name()));
    }
    let place = |life: &Life| {
        let BufData { device, stream, .. } = loops.bufs[life.buf];
        (Queue { device, stream }, sizes_before[life.first])
    };
    let mut places: Vec<(Queue, usize)> = Vec::new();
    for place in lives.iter().map(place) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let of_place = |(at, there): (usize, (Queue, usize))| {
        let lives = lives.iter().filter(|&life| place(life) == there).copied();
        // Inputs that are not donated, and constants, have no lives here.
        let (mut hosts, lives): (Vec<_>, Vec<_>) = lives.partition(|life| deps.escapes[life.buf]);
        if mode != MemoryPool::Combined {
            hosts.clear();
        }
        pools_of(loops, hosts, lives, [2 * at, 2 * at + 1].map(|at| format!("pool{at}")))
    };
    places.into_iter().enumerate().flat_map(of_place).collect()
}

/// The pools of one device for buffers that are first used between two sizes.
fn pools_of(loops: &Loops, hosts: Vec<Life>, lives: Vec<Life>, names: [String; 2]) -> Vec<Pool> {
    let ((fixed_hosts, symbolic_hosts), (fixed, symbolic)) = (sized(loops, hosts), sized(loops, lives));
    let [fixed_name, symbolic_name] = names;
    let fixed = fixed_pools(loops, fixed_hosts, fixed, &fixed_name);
    fixed.into_iter().chain(symbolic_pools(loops, symbolic_hosts, symbolic, symbolic_name)).collect()
}

/// Those of constant size and those of symbolic size, with their bytes. What has none needs no place.
fn sized(loops: &Loops, lives: Vec<Life>) -> (Vec<(Life, i64)>, Vec<(Life, Expr)>) {
    let (mut fixed, mut symbolic) = (Vec::new(), Vec::new());
    for life in lives {
        let data = &loops.bufs[life.buf];
        let bytes = data.span() * data.dtype.size() as i64;
        match bytes.as_int() {
            Some(bytes) if bytes > 0 => fixed.push((life, bytes)),
            Some(_) => {}
            None => symbolic.push((life, bytes)),
        }
    }
    (fixed, symbolic)
}

/// Buffers written and read by the steps of a call, in order of first use. One that another reuses in place lives as long
/// as that.
fn lifetimes(loops: &Loops, steps: &[ScheduleStep], reuses: &[(Buf, Buf)]) -> Vec<Life> {
    let mut owner: HashMap<Buf, Buf> = HashMap::new();
    for (from, to) in reuses {
        owner.insert(*to, owner.get(from).copied().unwrap_or(*from));
    }
    let by_name: HashMap<&str, &Stmt> = loops.stmts.iter().map(|s| (s.name(), s)).collect();
    let mut lives: Vec<Life> = Vec::new();
    let mut life_of: HashMap<Buf, usize> = HashMap::new();
    let mut kept: HashSet<Buf> = HashSet::new();
    let results: HashSet<Buf> = loops.results().collect();
    for &buf in loops.donated.iter().filter(|&&buf| loops.is_given_up(buf) && !steps.is_empty()) {
        life_of.insert(buf, lives.len());
        lives.push(Life { buf, first: 0, last: 0 });
    }
    for (at, step) in steps.iter().enumerate() {
        let mut names: Vec<&str> = Vec::new();
        let locals = match step {
            ScheduleStep::Kernel(plan) => {
                names = plan.nests();
                plan.locals()
            }
            ScheduleStep::Extern { name, .. } => {
                names.push(name);
                Vec::new()
            }
        };
        for stmt in names.iter().filter_map(|n| by_name.get(n)) {
            for buf in stmt.writes().into_iter().chain(stmt.reads()) {
                let data = &loops.bufs[buf];
                if locals.iter().any(|l| l.buffer() == Some(&data.name)) {
                    continue;
                }
                let owner = owner.get(&buf).copied().unwrap_or(buf);
                // A result in the memory of an input stays there.
                let last = if owner != buf && results.contains(&buf) { usize::MAX } else { at };
                match life_of.get(&owner) {
                    Some(&i) => lives[i].last = lives[i].last.max(last),
                    None if loops.bufs[owner].kind == BufKind::Temp => {
                        life_of.insert(owner, lives.len());
                        lives.push(Life { buf: owner, first: at, last });
                        if step.at_load() {
                            kept.insert(owner);
                        }
                    }
                    None => {}
                }
            }
        }
    }
    lives.retain(|l| !kept.contains(&l.buf));
    lives
}

/// First fit, largest first: each buffer takes the lowest offset that is free for all of its life, in the smallest host
/// that has one, else in a pool.
fn fixed_pools(
    loops: &Loops,
    mut hosts: Vec<(Life, i64)>,
    mut lives: Vec<(Life, i64)>,
    name: &str,
) -> Vec<Pool> {
    /// A buffer's life, and from where to where it lies.
    type Placed = (Life, i64, i64);
    let first_fit = |placed: &[Placed], life: &Life, bytes: i64| {
        let mut taken: Vec<(i64, i64)> = placed
            .iter()
            .filter(|(other, ..)| life.overlaps(other))
            .map(|&(_, from, to)| (from, to))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (from, to) in taken {
            if from - offset >= bytes {
                break;
            }
            offset = offset.max(to);
        }
        offset
    };
    hosts.sort_by_key(|(life, bytes)| (*bytes, life.buf));
    lives.sort_by_key(|(life, bytes)| (Reverse(*bytes), life.first, life.buf));
    let mut hosted: Vec<Vec<Placed>> = vec![Vec::new(); hosts.len()];
    let mut pooled: Vec<Placed> = Vec::new();
    for (life, bytes) in lives {
        let rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
        let host = hosts.iter().zip(&mut hosted).find_map(|((host, room), placed)| {
            let offset = first_fit(placed, &life, rounded);
            (host.is_free(&life, loops) && offset + bytes <= *room).then_some((placed, offset))
        });
        let (placed, offset) = host.unwrap_or_else(|| {
            let offset = first_fit(&pooled, &life, rounded);
            (&mut pooled, offset)
        });
        placed.push((life, offset, offset + rounded));
    }
    let pool = |name: &str, bytes: Option<Expr>, mut placed: Vec<Placed>| {
        placed.sort_by_key(|(life, ..)| (life.first, life.buf));
        let place = |(life, offset, _): &Placed| (loops.bufs[life.buf].name.clone(), Expr::int(*offset));
        let places: Vec<_> = placed.iter().map(place).collect();
        (!places.is_empty()).then(|| Pool { name: name.to_owned(), bytes, places, at_load: false })
    };
    let total = pooled.iter().map(|p| p.2).max().map(Expr::int);
    let hosted =
        hosts.iter().zip(hosted).filter_map(|((host, _), p)| pool(&loops.bufs[host.buf].name, None, p));
    hosted.chain(pool(name, total, pooled)).collect()
}

/// Places of run-time size: a buffer takes one that is free and known to be large enough, or opens another where there
/// is known to be room: in a host, else in a pool.
fn symbolic_pools(
    loops: &Loops,
    hosts: Vec<(Life, Expr)>,
    mut lives: Vec<(Life, Expr)>,
    name: String,
) -> Vec<Pool> {
    struct PoolBlock {
        offset: Expr,
        bytes: Expr,
        last: usize,
        bufs: Vec<Buf>,
    }
    struct Slab {
        /// When it is needed for itself, and its size. None: a pool.
        host: Option<(Life, Expr)>,
        open: Vec<PoolBlock>,
        end: Expr,
    }
    let is_le = |a: Expr, b: Expr| loops.facts.holds(&Rel::le(a, b));
    let take = |slab: &mut Slab, (life, bytes): (Life, Expr)| {
        if slab.host.as_ref().is_some_and(|(host, _)| !host.is_free(&life, loops)) {
            return false;
        }
        if let Some(place) = slab.open.iter_mut().find(|p| p.last < life.first && is_le(bytes, p.bytes)) {
            place.last = life.last;
            place.bufs.push(life.buf);
            return true;
        }
        let offset = slab.end;
        if slab.host.as_ref().is_some_and(|&(_, room)| !is_le(offset + bytes, room)) {
            return false;
        }
        slab.open.push(PoolBlock { offset, bytes, last: life.last, bufs: vec![life.buf] });
        slab.end = offset + bytes.ceildiv(ALIGN) * ALIGN;
        true
    };
    let slab = |host| Slab { host, open: Vec::new(), end: Expr::zero() };
    let mut slabs: Vec<Slab> = hosts.into_iter().map(Some).chain([None]).map(slab).collect();
    lives.sort_by_key(|(life, _)| (life.first, life.buf));
    for life in lives {
        let is_placed = slabs.iter_mut().any(|slab| take(slab, life));
        assert!(is_placed, "invariant: a pool takes all");
    }
    let pool = |slab: Slab| {
        let (name, bytes) = match slab.host {
            Some((host, _)) => (loops.bufs[host.buf].name.clone(), None),
            None => (name.clone(), Some(slab.end)),
        };
        let place = |place: &PoolBlock| {
            let offset = place.offset;
            place.bufs.iter().map(|&b| (loops.bufs[b].name.clone(), offset)).collect::<Vec<_>>()
        };
        let places: Vec<_> = slab.open.iter().flat_map(place).collect();
        (!places.is_empty()).then_some(Pool { name, bytes, places, at_load: false })
    };
    slabs.into_iter().filter_map(pool).collect()
}
