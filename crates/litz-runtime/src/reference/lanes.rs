//! Combines what the lanes of a vector loop have combined, in the order that a kernel prescribes.

use super::code::Lanes;
use super::races::Touch;
use super::run::{Fault, Machine, is_better};
use crate::number::{Bits, cast};

/// A value and its position.
pub(super) type Part = (Bits, i64);

impl Lanes {
    pub(super) fn combined(&self, a: Part, b: Part) -> Part {
        match self.positions {
            None => ((self.combine)(a.0, b.0, 0), 0),
            Some(_) if is_better(self.max, self.ty, b, a) => b,
            Some(_) => a,
        }
    }

    /// Neighbouring copies in pairs until there is one, then its halves until there is one lane.
    pub(super) fn total(&self, parts: &[Part]) -> Part {
        let lane_by_lane = |a: &[Part], b: &[Part]| -> Vec<Part> {
            a.iter().zip(b).map(|(&a, &b)| self.combined(a, b)).collect()
        };
        let mut copies: Vec<Vec<Part>> = parts.chunks(self.lanes).map(<[Part]>::to_vec).collect();
        while copies.len() > 1 {
            let pairs = copies.chunks(2);
            copies = pairs
                .map(|pair| match pair {
                    [a, b] => lane_by_lane(a, b),
                    alone => alone.concat(),
                })
                .collect();
        }
        let mut lanes = copies.concat();
        while lanes.len() > 1 {
            let (low, high) = lanes.split_at(lanes.len() / 2);
            lanes = lane_by_lane(low, high);
        }
        lanes[0]
    }
}

impl Machine<'_, '_> {
    pub(super) fn lanes(&mut self, reduction: &Lanes) -> Result<(), Fault> {
        let Lanes { into, from, positions, ty, .. } = reduction;
        if self.code.mems[from.mem].is_own() {
            return self.own_lanes(reduction);
        }
        let first = self.position(from)?;
        let mut parts = Vec::new();
        for lane in 0..(reduction.lanes * reduction.copies) as i64 {
            let value = self.load_as(Touch::Exchange, from.mem, first + lane)?;
            let position = positions
                .map(|[_, places]| self.load_as(Touch::Exchange, places, first + lane))
                .transpose()?;
            parts.push((value, position.unwrap_or(0) as i64));
        }
        let total = reduction.total(&parts);
        let index = self.position(into)?;
        let [reads, writes] = match reduction.atomic {
            true => [Touch::Combine; 2],
            false => [Touch::Fetch, Touch::Write],
        };
        let old = cast(into.dtype, *ty, self.load_as(reads, into.mem, index)?);
        let old_position = positions.map(|[at, _]| self.load_as(reads, at, index)).transpose()?;
        let (value, position) = reduction.combined((old, old_position.unwrap_or(0) as i64), total);
        self.store_as(writes, into.mem, index, cast(*ty, into.dtype, value))?;
        match positions {
            Some([at, _]) => self.store(*at, index, Bits::from(position as u64)),
            None => Ok(()),
        }
    }
}
