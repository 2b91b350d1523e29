//! Changes where buffers live: in a kernel, at a place in a pool, or in the memory of another one.

use litz_ir::loops::{Buf, BufKind, Loops, Nest, Stmt};
use litz_ir::schedule::{Holds, Local, LocalSpace, Pool, Reuse, Schedule, Step};
use litz_sym::{Expr, Sym};

use super::tree::{each_axis_mut, kernel_mut, kernels, pick};
use crate::choices::Choices;

/// All locals: step and position.
fn locals(schedule: &Schedule) -> Vec<(usize, usize)> {
    let of = |(step, plan): (usize, &litz_ir::schedule::KernelPlan)| {
        (0..plan.locals.len()).map(|at| (step, at)).collect::<Vec<_>>()
    };
    kernels(schedule).into_iter().flat_map(of).collect()
}

/// Whatever a local buffer may belong to: the kernel's point, or a loop.
fn scopes(schedule: &mut Schedule, step: usize) -> Vec<Option<Sym>> {
    let Some(plan) = kernel_mut(schedule, step) else { return Vec::new() };
    let mut scopes = vec![None];
    scopes.extend(plan.grid.iter().map(|axis| Some(axis.var)));
    each_axis_mut(&mut plan.body, &mut |axis| scopes.push(Some(axis.var)));
    scopes
}

/// Buffers that statements hand on.
fn temps(loops: &Loops) -> Vec<String> {
    let temps = loops.bufs.values().filter(|data| data.kind == BufKind::Temp);
    temps.map(|data| data.name.clone()).collect()
}

pub(super) fn change_scope(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (step, at) = pick(choices, &locals(schedule))?;
    let scope = pick(choices, &scopes(schedule, step))?;
    kernel_mut(schedule, step)?.locals[at].scope = scope;
    Some(())
}

pub(super) fn change_space(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (step, at) = pick(choices, &locals(schedule))?;
    let to = choices.pick(&[LocalSpace::Register, LocalSpace::Scratch, LocalSpace::Shared]);
    kernel_mut(schedule, step)?.locals[at].space = to;
    Some(())
}

pub(super) fn make_local(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (flat, _) = loops.flat();
    // Those that one kernel alone uses, most of the time.
    let mut options = Vec::new();
    for (step, plan) in kernels(schedule) {
        let mut nests = Vec::new();
        plan.body.iter().for_each(|tree| tree.each_leaf(&mut |leaf| nests.push(&*leaf.nest)));
        for (buf, data) in flat.bufs.iter().filter(|(_, data)| data.kind == BufKind::Temp) {
            let uses = |stmt: &&Stmt| stmt.reads().contains(&buf) || stmt.writes().contains(&buf);
            let users: Vec<&str> = flat.stmts.iter().filter(uses).map(|stmt| stmt.name()).collect();
            let is_inside = users.iter().all(|user| nests.contains(user));
            let is_local = plan.locals.iter().any(|local| local.buffer() == Some(&data.name));
            if !is_local && (is_inside && !users.is_empty() && flat.is_internal(buf)) {
                options.push((step, data.name.clone()));
            }
        }
    }
    let (step, buf) = match pick(choices, &options) {
        Some(option) if !choices.once_in(4) => option,
        _ => {
            let steps: Vec<usize> = kernels(schedule).iter().map(|k| k.0).collect();
            (pick(choices, &steps)?, pick(choices, &temps(loops))?)
        }
    };
    let scope = pick(choices, &scopes(schedule, step))?;
    let space = choices.pick(&[LocalSpace::Scratch, LocalSpace::Register]);
    for pool in &mut schedule.pools {
        pool.places.retain(|place| place.0 != buf);
    }
    schedule.reuses.retain(|reuse| reuse.from != buf && reuse.to != buf);
    kernel_mut(schedule, step)?.locals.push(Local { holds: Holds::Buffer(buf), scope, space });
    Some(())
}

pub(super) fn drop_local(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (step, at) = pick(choices, &locals(schedule))?;
    let local = kernel_mut(schedule, step)?.locals.remove(at);
    // Once in a while a buffer takes the place of another one in a pool.
    if let Holds::Buffer(name) = local.holds
        && choices.once_in(2)
    {
        let data = loops.bufs.values().find(|data| data.name == name)?;
        let bytes = data.span() * data.dtype.size() as i64;
        match schedule.pools.first_mut() {
            Some(pool) => pool.places.push((name, Expr::zero())),
            None => schedule.pools.push(Pool {
                name: "pool".to_owned(),
                bytes: Some(bytes),
                places: vec![(name, Expr::zero())],
                at_load: false,
            }),
        }
    }
    Some(())
}

/// All places in pools: pool and position.
fn places(schedule: &Schedule) -> Vec<(usize, usize)> {
    let pools = schedule.pools.iter().enumerate();
    pools.flat_map(|(at, pool)| (0..pool.places.len()).map(move |place| (at, place))).collect()
}

pub(super) fn change_offset(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (pool, at) = pick(choices, &places(schedule))?;
    let places = schedule.pools[pool].places.clone();
    let other = pick(choices, &places)?.1;
    let offset = &mut schedule.pools[pool].places[at].1;
    *offset = match choices.below(6) {
        0 => other,
        1 => *offset + 64,
        2 => *offset - 64,
        3 => *offset + 4,
        4 => *offset * 2,
        _ => Expr::zero(),
    };
    Some(())
}

/// A pool gets another size, or serves another time.
pub(super) fn change_pool(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let at = pick(choices, &(0..schedule.pools.len()).collect::<Vec<_>>())?;
    let pool = &mut schedule.pools[at];
    let how = choices.below(6);
    if how == 5 {
        pool.at_load = !pool.at_load;
        return Some(());
    }
    let bytes = pool.bytes?;
    pool.bytes = Some(match how {
        0 => bytes + 64,
        1 => bytes - 64,
        2 => bytes * 2,
        3 => bytes.floordiv(2),
        _ => bytes - 4,
    });
    Some(())
}

/// A buffer leaves its pool, or goes to another place or pool.
pub(super) fn change_place(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (pool, at) = pick(choices, &places(schedule))?;
    match choices.below(3) {
        0 => drop(schedule.pools[pool].places.remove(at)),
        1 => {
            let buf = pick(choices, &temps(loops))?;
            schedule.pools[pool].places[at].0 = buf;
        }
        _ => {
            let place = schedule.pools[pool].places.remove(at);
            let to = choices.below(schedule.pools.len());
            schedule.pools[to].places.push(place);
        }
    }
    Some(())
}

pub(super) fn change_reuse(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let at = pick(choices, &(0..schedule.reuses.len()).collect::<Vec<_>>())?;
    let buf = pick(choices, &temps(loops))?;
    match choices.below(4) {
        0 => drop(schedule.reuses.remove(at)),
        1 => schedule.reuses[at].to = buf,
        2 => schedule.reuses[at].from = buf,
        _ => {
            let Reuse { from, to } = &mut schedule.reuses[at];
            std::mem::swap(from, to);
        }
    }
    Some(())
}

/// Whether no statement after a nest uses a buffer.
fn is_last_user(loops: &Loops, buf: Buf, nest: &Nest) -> bool {
    let uses = |stmt: &Stmt| stmt.reads().contains(&buf) || stmt.writes().contains(&buf);
    let last = loops.stmts.iter().rev().find(|stmt| uses(stmt));
    last.is_some_and(|stmt| stmt.name() == nest.name)
}

/// A buffer takes the memory of another one: in the kernel that reads the one and writes the other, most of the time.
pub(super) fn add_reuse(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let (flat, _) = loops.flat();
    let name = |buf| flat.bufs.get(buf).map(|data| data.name.clone());
    let alike = |from: Buf, to: Buf| {
        let (from, to) = (&flat.bufs[from], &flat.bufs[to]);
        (from.dtype, from.span()) == (to.dtype, to.span())
    };
    let mut pairs = Vec::new();
    for (_, plan) in kernels(schedule) {
        plan.body.iter().for_each(|tree| {
            tree.each_leaf(&mut |leaf| {
                let nest =
                    flat.stmts.iter().flat_map(|stmt| stmt.nests()).find(|nest| nest.name == leaf.nest);
                let Some(nest) = nest else { return };
                for (from, to) in nest
                    .reads()
                    .into_iter()
                    .flat_map(|from| nest.writes().into_iter().map(move |to| (from, to)))
                {
                    let is_free = flat.is_internal(from) && flat.is_internal(to) && from != to;
                    if is_free && is_last_user(&flat, from, nest) && alike(from, to) {
                        pairs.extend(name(from).zip(name(to)));
                    }
                }
            });
        });
    }
    let (from, to) = match pick(choices, &pairs) {
        Some(pair) if !choices.once_in(4) => pair,
        _ => (pick(choices, &temps(loops))?, pick(choices, &temps(loops))?),
    };
    for pool in &mut schedule.pools {
        pool.places.retain(|place| place.0 != to);
    }
    if !choices.once_in(4) {
        for step in &mut schedule.steps {
            if let Step::Kernel(plan) = step {
                plan.locals.retain(|local| local.buffer() != Some(&to) && local.buffer() != Some(&from));
            }
        }
    }
    schedule.reuses.push(Reuse { from, to });
    Some(())
}
