//! Changes where buffers live: in a kernel, at a place in a pool, or in the memory of another one.

use litz_ir::loops::{Buf, BufKind, Loops, Nest, Stmt};
use litz_ir::schedule::{Holds, Layout, Local, LocalSpace, Pool, Reuse, Schedule, Tree};
use litz_sym::Expr;

use super::tree::{TreePath, kernels, list_mut, lists, pick, trees};
use crate::choices::Choices;

fn is_local(tree: &Tree) -> bool {
    matches!(tree, Tree::Local(_))
}

/// Declares a memory in some block of a kernel: in the beginning of it, most of the time.
fn declare(schedule: &mut Schedule, step: usize, local: Local, choices: &mut Choices<'_>) -> Option<()> {
    let mut places: Vec<TreePath> = lists(schedule, 0).into_iter().map(|list| list.0).collect();
    places.retain(|place| place.0 == step);
    let list = list_mut(schedule, &pick(choices, &places)?)?;
    let at = if choices.once_in(4) { choices.below(list.len() + 1) } else { 0 };
    list.insert(at, Tree::Local(local));
    Some(())
}

fn local_mut<'s>(schedule: &'s mut Schedule, (place, at): &(TreePath, usize)) -> Option<&'s mut Local> {
    match list_mut(schedule, place)?.get_mut(*at)? {
        Tree::Local(local) => Some(local),
        Tree::Loop { .. } | Tree::If { .. } | Tree::Leaf(_) => None,
    }
}

/// Buffers that statements hand on.
fn temps(loops: &Loops) -> Vec<String> {
    let temps = loops.bufs.values().filter(|data| data.kind == BufKind::Temp);
    temps.map(|data| data.name.clone()).collect()
}

pub(super) fn change_scope(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let found = pick(choices, &trees(schedule, is_local))?;
    let local = local_mut(schedule, &found)?.clone();
    list_mut(schedule, &found.0)?.remove(found.1);
    declare(schedule, found.0.0, local, choices)
}

pub(super) fn change_space(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let found = pick(choices, &trees(schedule, is_local))?;
    let to = choices.pick(&LocalSpace::ALL);
    local_mut(schedule, &found)?.space = to;
    Some(())
}

pub(super) fn change_layout(schedule: &mut Schedule, _: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let found = pick(choices, &trees(schedule, is_local))?;
    let number = choices.pick(&[4, 16, 1, 8, 0, 3]);
    let to = choices.pick(&[
        Layout::Padded(number),
        Layout::Swizzled { unit: number, pairs: false },
        Layout::Swizzled { unit: number, pairs: true },
        Layout::Dense,
    ]);
    local_mut(schedule, &found)?.layout = to;
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
            if !plan.has_local(&data.name) && (is_inside && !users.is_empty() && flat.is_internal(buf)) {
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
    let space = match schedule.target.cpu() {
        Some(_) => choices.pick(&[LocalSpace::Scratch, LocalSpace::Register]),
        None => {
            choices.pick(&[LocalSpace::Global, LocalSpace::Shared, LocalSpace::Register, LocalSpace::Scratch])
        }
    };
    for pool in &mut schedule.pools {
        pool.places.retain(|place| place.0 != buf);
    }
    schedule.reuses.retain(|reuse| reuse.from != buf && reuse.to != buf);
    let layout = choices.pick(&[Layout::Dense, Layout::Padded(16)]);
    declare(schedule, step, Local { holds: Holds::Buffer(buf), space, layout }, choices)
}

pub(super) fn drop_local(schedule: &mut Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<()> {
    let found = pick(choices, &trees(schedule, is_local))?;
    let local = local_mut(schedule, &found)?.clone();
    list_mut(schedule, &found.0)?.remove(found.1);
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
        let own: Vec<&Nest> = plan
            .nests()
            .into_iter()
            .filter_map(|name| flat.stmts.iter().flat_map(|stmt| stmt.nests()).find(|nest| nest.name == name))
            .collect();
        // What the kernel makes itself is nobody's memory before it.
        let is_given = |from: Buf| own.iter().all(|nest| !nest.writes().contains(&from));
        plan.body.iter().for_each(|tree| {
            tree.each_leaf(&mut |leaf| {
                let Some(nest) = own.iter().find(|nest| nest.name == leaf.nest) else { return };
                for (from, to) in nest
                    .reads()
                    .into_iter()
                    .flat_map(|from| nest.writes().into_iter().map(move |to| (from, to)))
                {
                    let is_free =
                        flat.is_internal(from) && flat.is_internal(to) && from != to && is_given(from);
                    if is_free && is_last_user(&flat, from, nest) && alike(from, to) {
                        pairs.extend(name(from).zip(name(to)));
                    }
                }
            });
        });
    }
    let (from, to) = match pick(choices, &pairs) {
        Some(pair) if !choices.once_in(4) => pair,
        None if !choices.once_in(16) => return None,
        _ => (pick(choices, &temps(loops))?, pick(choices, &temps(loops))?),
    };
    for pool in &mut schedule.pools {
        pool.places.retain(|place| place.0 != to);
    }
    if !choices.once_in(4) {
        for (place, _) in lists(schedule, 1) {
            let holds = |tree: &Tree| match tree {
                Tree::Local(local) => local.buffer() == Some(&to) || local.buffer() == Some(&from),
                Tree::Loop { .. } | Tree::If { .. } | Tree::Leaf(_) => false,
            };
            list_mut(schedule, &place)?.retain(|tree| !holds(tree));
        }
    }
    schedule.reuses.push(Reuse { from, to });
    Some(())
}
