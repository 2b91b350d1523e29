//! Where buffers that cross kernels live: places in pools, shared by those whose lifetimes do not overlap.

use litz_ir::loops::{Buf, BufKind, Loops, Stmt};
use litz_ir::schedule::{Pool, Step};
use litz_sym::{Expr, Known, Rel};
use std::collections::HashMap;

/// Alignment of every place: a cache line and a full vector.
const ALIGN: i64 = 64;

/// Steps during which a buffer holds something: first write to last use.
#[derive(Clone, Copy, Debug)]
struct Life {
    buf: Buf,
    first: usize,
    last: usize,
    at_load: bool,
}

/// Plans pools: one for buffers of constant size, packed by first fit of the largest first, and one place for each
/// run-time size class. Returned buffers and those that live as long as the model get memory of their own.
pub fn pools(loops: &Loops, steps: &[Step]) -> Vec<Pool> {
    let lives = lifetimes(loops, steps);
    let call: Vec<Life> = lives.iter().filter(|l| !l.at_load).copied().collect();
    let (fixed, symbolic): (Vec<Life>, Vec<Life>) = call.into_iter().partition(|l| bytes(loops, l.buf).as_int().is_some());
    let mut pools = Vec::new();
    pools.extend(fixed_pool(loops, fixed));
    pools.extend(symbolic_pool(loops, symbolic));
    pools
}

fn bytes(loops: &Loops, buf: Buf) -> Expr {
    let data = &loops.bufs[buf];
    (data.span() * data.dtype.size() as i64).ceildiv(ALIGN) * ALIGN
}

fn lifetimes(loops: &Loops, steps: &[Step]) -> Vec<Life> {
    let by_name: HashMap<&str, &Stmt> = loops.stmts.iter().map(|s| (s.name(), s)).collect();
    let mut lives: Vec<Life> = Vec::new();
    let mut of: HashMap<Buf, usize> = HashMap::new();
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
                if data.kind != BufKind::Temp || locals.iter().any(|l| l.buf == data.name) {
                    continue;
                }
                match of.get(&buf) {
                    Some(&i) => lives[i].last = at,
                    None => {
                        of.insert(buf, lives.len());
                        lives.push(Life { buf, first: at, last: at, at_load });
                    }
                }
            }
        }
    }
    lives.retain(|l| !crate::deps::escapes(loops, l.buf));
    lives
}

/// First fit, largest first: each buffer takes the lowest offset that is free for all of its life.
fn fixed_pool(loops: &Loops, mut lives: Vec<Life>) -> Option<Pool> {
    let size = |l: &Life| bytes(loops, l.buf).as_int().unwrap_or(0);
    lives.retain(|l| size(l) > 0);
    lives.sort_by_key(|l| (std::cmp::Reverse(size(l)), l.first, l.buf));
    let mut placed: Vec<(Life, i64)> = Vec::new();
    for life in lives {
        let mut taken: Vec<(i64, i64)> = placed
            .iter()
            .filter(|(other, _)| other.first <= life.last && life.first <= other.last)
            .map(|(other, offset)| (*offset, offset + size(other)))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (from, to) in taken {
            if from - offset >= size(&life) {
                break;
            }
            offset = offset.max(to);
        }
        placed.push((life, offset));
    }
    let total = placed.iter().map(|(l, o)| o + size(l)).max()?;
    placed.sort_by_key(|(l, _)| (l.first, l.buf));
    let places = placed.iter().map(|(l, o)| (loops.bufs[l.buf].name.clone(), Expr::int(*o))).collect();
    Some(Pool { name: "pool0".to_owned(), bytes: Expr::int(total), places, at_load: false })
}

/// Places of run-time size: a buffer takes one that is free and known to be large enough, or opens another.
fn symbolic_pool(loops: &Loops, mut lives: Vec<Life>) -> Option<Pool> {
    struct Place {
        bytes: Expr,
        free_after: usize,
        bufs: Vec<Buf>,
    }
    lives.sort_by_key(|l| (l.first, l.buf));
    let mut open: Vec<Place> = Vec::new();
    for life in &lives {
        let need = bytes(loops, life.buf);
        let fits = |p: &Place| p.free_after < life.first && loops.facts.known(&Rel::le(need, p.bytes)) == Known::Yes;
        match open.iter_mut().find(|p| fits(p)) {
            Some(place) => {
                place.free_after = life.last;
                place.bufs.push(life.buf);
            }
            None => open.push(Place { bytes: need, free_after: life.last, bufs: vec![life.buf] }),
        }
    }
    let mut offset = Expr::zero();
    let mut places = Vec::new();
    for place in &open {
        places.extend(place.bufs.iter().map(|&b| (loops.bufs[b].name.clone(), offset)));
        offset = offset + place.bytes;
    }
    (!places.is_empty()).then(|| Pool { name: "pool1".to_owned(), bytes: offset, places, at_load: false })
}
