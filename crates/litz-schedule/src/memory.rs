//! Where buffers that cross kernels live: places in pools, shared by those whose lifetimes do not overlap.

use crate::deps::Deps;
use litz_ir::loops::{Buf, BufKind, Loops, Stmt};
use litz_ir::schedule::{Pool, Step};
use litz_sym::{Expr, Known, Rel};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Alignment of every place: a cache line and a full vector.
const ALIGN: i64 = 64;

/// Steps during which a buffer holds something: first write to last use.
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
}

/// Plans pools: one for buffers of constant size, packed by first fit of the largest first, and one place for each
/// run-time size class. Returned buffers and those that live as long as the model get memory of their own.
pub fn pools(loops: &Loops, deps: &Deps, steps: &[Step]) -> Vec<Pool> {
    let (mut fixed, mut symbolic) = (Vec::new(), Vec::new());
    for life in lifetimes(loops, deps, steps) {
        let data = &loops.bufs[life.buf];
        let bytes = data.span() * data.dtype.size() as i64;
        match bytes.as_int() {
            Some(0) => {}
            Some(bytes) => fixed.push((life, (bytes + ALIGN - 1) / ALIGN * ALIGN)),
            None => symbolic.push((life, bytes)),
        }
    }
    fixed_pool(loops, fixed).into_iter().chain(symbolic_pool(loops, symbolic)).collect()
}

/// Buffers written and read by the steps of a call, in order of first use.
fn lifetimes(loops: &Loops, deps: &Deps, steps: &[Step]) -> Vec<Life> {
    let by_name: HashMap<&str, &Stmt> = loops.stmts.iter().map(|s| (s.name(), s)).collect();
    let mut lives: Vec<Life> = Vec::new();
    let mut life_of: HashMap<Buf, usize> = HashMap::new();
    let mut kept: HashSet<Buf> = HashSet::new();
    for (at, step) in steps.iter().enumerate() {
        let mut names: Vec<&str> = Vec::new();
        let (at_load, locals) = match step {
            Step::Kernel(plan) => {
                plan.body.iter().for_each(|t| t.each_leaf(&mut |l| names.push(&l.nest)));
                (plan.at_load, plan.locals.as_slice())
            }
            Step::Extern { name, at_load } => {
                names.push(name);
                (*at_load, [].as_slice())
            }
        };
        for stmt in names.iter().filter_map(|n| by_name.get(n)) {
            for buf in stmt.writes().into_iter().chain(stmt.reads()) {
                let data = &loops.bufs[buf];
                if data.kind != BufKind::Temp
                    || deps.escapes[buf]
                    || locals.iter().any(|l| l.buf == data.name)
                {
                    continue;
                }
                match life_of.get(&buf) {
                    Some(&i) => lives[i].last = at,
                    None => {
                        life_of.insert(buf, lives.len());
                        lives.push(Life { buf, first: at, last: at });
                        if at_load {
                            kept.insert(buf);
                        }
                    }
                }
            }
        }
    }
    lives.retain(|l| !kept.contains(&l.buf));
    lives
}

/// First fit, largest first: each buffer takes the lowest offset that is free for all of its life.
fn fixed_pool(loops: &Loops, mut lives: Vec<(Life, i64)>) -> Option<Pool> {
    lives.sort_by_key(|(life, bytes)| (Reverse(*bytes), life.first, life.buf));
    let mut placed: Vec<(Life, i64, i64)> = Vec::new();
    for (life, bytes) in lives {
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
        placed.push((life, offset, offset + bytes));
    }
    let total = placed.iter().map(|p| p.2).max()?;
    placed.sort_by_key(|(life, ..)| (life.first, life.buf));
    let places = placed
        .iter()
        .map(|(life, offset, _)| (loops.bufs[life.buf].name.clone(), Expr::int(*offset)))
        .collect();
    Some(Pool { name: "pool0".to_owned(), bytes: Expr::int(total), places, at_load: false })
}

/// Places of run-time size: a buffer takes one that is free and known to be large enough, or opens another.
fn symbolic_pool(loops: &Loops, mut lives: Vec<(Life, Expr)>) -> Option<Pool> {
    struct Place {
        bytes: Expr,
        last: usize,
        bufs: Vec<Buf>,
    }
    lives.sort_by_key(|(life, _)| (life.first, life.buf));
    let mut open: Vec<Place> = Vec::new();
    for (life, bytes) in lives {
        let fits =
            |p: &Place| p.last < life.first && loops.facts.known(&Rel::le(bytes, p.bytes)) == Known::Yes;
        match open.iter_mut().find(|p| fits(p)) {
            Some(place) => {
                place.last = life.last;
                place.bufs.push(life.buf);
            }
            None => open.push(Place { bytes, last: life.last, bufs: vec![life.buf] }),
        }
    }
    let mut offset = Expr::zero();
    let mut places = Vec::new();
    for place in &open {
        places.extend(place.bufs.iter().map(|&b| (loops.bufs[b].name.clone(), offset)));
        offset = offset + place.bytes.ceildiv(ALIGN) * ALIGN;
    }
    (!places.is_empty()).then(|| Pool { name: "pool1".to_owned(), bytes: offset, places, at_load: false })
}
