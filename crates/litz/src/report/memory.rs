//! Says what a call allocates, and what lies in it from which step to which, by the sizes that the model was exported with.

use litz_ir::program::{Program, ProgramStep, Slot};
use litz_sym::Expr;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Places that are listed at most, the largest first; all are counted in what is in use.
const MOST_PLACES: usize = 4000;

/// Something that lies in memory from one step to another, both included.
struct Place<'a> {
    name: &'a str,
    /// Position of the allocation that it lies in.
    pool: usize,
    offset: i64,
    bytes: i64,
    from: usize,
    to: usize,
}

/// An allocation.
struct Pool<'a> {
    slot: Slot,
    name: &'a str,
    bytes: i64,
    from: usize,
    /// The first step that does without it.
    end: Option<usize>,
}

/// `steps`: how many a call has that run something; `pools`; `places`; `in_use` and `reserved`: bytes at each step. Memory of the caller's,
/// and what was computed when the model was loaded, is none of it; nor is that of functions that the program calls.
pub(super) fn memory(program: &Program) -> Value {
    let number = |expr: Expr| program.facts.hint(expr).unwrap_or(0);
    let bytes_of = |slot: Slot| {
        program.slots.get(slot).map_or(0, |data| number(data.extent).saturating_mul(data.dtype.size() as i64))
    };
    let name_of = |slot: Slot| program.slots.get(slot).map_or("?", |data| data.name.as_str());
    let mut pools: Vec<Pool<'_>> = Vec::new();
    let mut inside: HashMap<Slot, (Slot, i64)> = HashMap::new();
    let mut lives: Vec<(Slot, usize, usize)> = Vec::new();
    let mut life_at: HashMap<Slot, usize> = HashMap::new();
    let mut at = 0;
    for step in &program.steps {
        match step {
            ProgramStep::Alloc { slot } => {
                let (name, bytes) = (name_of(*slot), bytes_of(*slot));
                pools.push(Pool { slot: *slot, name, bytes, from: at, end: None });
            }
            ProgramStep::View { slot, base, offset } => {
                inside.insert(*slot, (*base, number(*offset)));
            }
            ProgramStep::Free { slot } => {
                if let Some(pool) = pools.iter_mut().find(|pool| pool.slot == *slot) {
                    pool.end = Some(at);
                }
            }
            ProgramStep::Check { .. } | ProgramStep::Record { .. } | ProgramStep::Wait { .. } => {}
            ProgramStep::Launch { .. }
            | ProgramStep::Copy { .. }
            | ProgramStep::Extern { .. }
            | ProgramStep::Size { .. }
            | ProgramStep::Control { .. }
            | ProgramStep::Call { .. } => {
                for slot in program.touches(step).uses.into_iter().map(|used| used.slot) {
                    let life = *life_at.entry(slot).or_insert(lives.len());
                    if life == lives.len() {
                        lives.push((slot, at, at));
                    }
                    lives[life].2 = at;
                }
                at += 1;
            }
        }
    }
    for slot in program.read_at_end() {
        if let Some(&life) = life_at.get(&slot) {
            lives[life].2 = at.saturating_sub(1);
        }
    }
    let pool_at: HashMap<Slot, usize> = pools.iter().enumerate().map(|(at, pool)| (pool.slot, at)).collect();
    let place = |&(slot, from, to): &(Slot, usize, usize)| {
        let (mut base, mut offset) = (slot, 0i64);
        // No chain is longer than there are views.
        for _ in 0..=inside.len() {
            let Some(&(around, by)) = inside.get(&base) else { break };
            (base, offset) = (around, offset.saturating_add(by));
        }
        let pool = *pool_at.get(&base)?;
        Some(Place { name: name_of(slot), pool, offset, bytes: bytes_of(slot), from, to })
    };
    let mut places: Vec<Place<'_>> = lives.iter().filter_map(place).collect();
    let in_use = sums(at, places.iter().map(|place| (place.from, place.to + 1, place.bytes)));
    let reserved = sums(at, pools.iter().map(|pool| (pool.from, pool.end.unwrap_or(at), pool.bytes)));
    places.sort_by_key(|place| std::cmp::Reverse(place.bytes));
    let left_out = places.len().saturating_sub(MOST_PLACES);
    places.truncate(MOST_PLACES);
    json!({
        "steps": at, "in_use": in_use, "reserved": reserved, "left_out": left_out,
        "pools": pools.iter().map(|pool| json!({ "name": pool.name, "bytes": pool.bytes })).collect::<Vec<_>>(),
        "places": places.iter().map(Place::to_json).collect::<Vec<_>>(),
    })
}

impl Place<'_> {
    fn to_json(&self) -> Value {
        json!({
            "name": self.name, "pool": self.pool, "offset": self.offset, "bytes": self.bytes,
            "from": self.from, "to": self.to,
        })
    }
}

/// For each of so many steps, the bytes of what is there: of each one its first step, the first without it, and its bytes.
fn sums(steps: usize, what: impl Iterator<Item = (usize, usize, i64)>) -> Vec<i64> {
    let mut changes = vec![0i64; steps + 1];
    for (from, end, bytes) in what {
        changes[from.min(steps)] += bytes;
        changes[end.min(steps)] -= bytes;
    }
    let mut bytes = 0;
    changes[..steps]
        .iter()
        .map(|change| {
            bytes += change;
            bytes
        })
        .collect()
}
