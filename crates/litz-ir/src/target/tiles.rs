//! Says which tiles of products the threads of a block sum by multiply-adds, and how long a GPU takes for them.
//!
//! An instruction multiplies and adds in each of the 128 lanes of a unit in a clock. Beside it a thread loads a number from shared memory for each of its rows and
//! columns, which takes longer the fewer sums it has: with `u` rows and `v` columns of a thread about `1 + 1.5 * (u + v) / (u * v)` clocks for what 128 lanes do in
//! one. On an H200 (1.755 GHz, float32, 4096^3, operands that lie along the sum) a unit does so in a clock, of 128:
//!
//! | rows x columns of a thread | 16 x 8 | 8 x 8 | 8 x 4 | 4 x 4 | 4 x 2 | 2 x 1 |
//! |---|---|---|---|---|---|---|
//! | measured | 97 | 95 | 85 | 72 | 59 | 28 |
//! | by the formula | 100 | 93 | 82 | 73 | 60 | 39 |
//!
//! That is with eight warps of a unit or more, of which some go on while others wait for what they load, or for each other: blocks of few threads, of which a
//! unit has several, do so better than one of many. With four warps it takes 1.6 times as long.

use super::Gpu;

/// A tile of a product that the threads of a block sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadTile {
    /// Threads along the rows and along the columns. Warps have four rows and eight columns of them.
    pub threads: [i64; 2],
    /// Points of a thread along each.
    pub each: [i64; 2],
}

const fn tile(threads: [i64; 2], each: [i64; 2]) -> ThreadTile {
    ThreadTile { threads, each }
}

/// Lanes of a unit that multiply and add in a clock.
const LANES: i64 = 128;

/// Warps of a unit with which it is busy.
const WARPS: i64 = 8;

/// Registers of a thread besides its sums and what it multiplies.
const OTHER_REGISTERS: i64 = 32;

impl ThreadTile {
    /// Those that there are, the largest first.
    pub const ALL: [ThreadTile; 9] = [
        tile([16, 16], [16, 8]),
        tile([16, 16], [8, 8]),
        tile([16, 8], [8, 8]),
        tile([8, 16], [8, 8]),
        tile([8, 8], [8, 8]),
        tile([8, 16], [8, 4]),
        tile([8, 16], [4, 4]),
        tile([8, 16], [4, 2]),
        tile([8, 16], [2, 1]),
    ];

    /// Points along the rows and along the columns.
    pub fn sides(&self) -> [i64; 2] {
        [0, 1].map(|side| self.threads[side] * self.each[side])
    }

    /// Clocks that a GPU takes for so many tiles of 64 terms, of sums of so many registers at each point. A unit has as many blocks at a time as it has
    /// registers for; what is left over behind whole turns of these has the unit for itself.
    pub fn clocks(&self, gpu: &Gpu, tiles: i64, registers: i64) -> i64 {
        let [rows, columns] = self.each;
        let threads = self.threads.iter().product::<i64>();
        let (points, loaded) = (rows * columns, rows + columns);
        let of_thread = points * registers + 4 * loaded + OTHER_REGISTERS;
        let of_thread = of_thread.min(Gpu::REGISTERS.into());
        let most = (i64::from(gpu.unit.registers) / (of_thread * threads)).max(1);
        let most = most.min(i64::from(gpu.unit.threads) / threads);
        // Of tiles of half as many points for each number that is loaded, and so on: without fractions.
        let all = points * threads * registers * 64;
        let of_tile = (all + all * 3 * loaded / (2 * points)) / LANES;
        let of_tile_with = |blocks: i64| {
            let warps = (blocks * threads / i64::from(Gpu::LANES)).min(WARPS);
            // All warps of a block that is alone wait for each other.
            let alone = if blocks == 1 { of_tile / 16 } else { 0 };
            (of_tile + alone) * (WARPS + 3) / (warps + 3)
        };
        let turns = (tiles + i64::from(gpu.units) - 1) / i64::from(gpu.units);
        let left = turns % most;
        let (whole, rest) = (of_tile_with(most), if left == 0 { 0 } else { of_tile_with(left) });
        (turns - left).saturating_mul(whole).saturating_add(left * rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::GpuIsa;

    /// Microseconds of products of float32 on an H200: rows, columns, terms, then the tile's rows, columns and threads, and the time. What it takes to begin
    /// and to end a kernel is among it.
    const MEASURED: [([i64; 3], [i64; 3], f64); 20] = [
        ([2048, 2304, 768], [64, 64, 64], 194.5),
        ([2048, 2304, 768], [128, 64, 128], 198.5),
        ([2048, 2304, 768], [128, 128, 256], 244.9),
        ([2048, 2304, 768], [64, 64, 128], 192.7),
        ([2048, 2304, 768], [256, 128, 256], 301.8),
        ([2048, 2304, 768], [32, 64, 128], 221.5),
        ([2048, 768, 768], [64, 64, 64], 80.4),
        ([2048, 768, 768], [128, 64, 128], 86.1),
        ([2048, 768, 768], [64, 64, 128], 67.6),
        ([2048, 768, 3072], [128, 128, 256], 316.7),
        ([2048, 3072, 768], [128, 64, 128], 233.4),
        ([2048, 768, 768], [128, 128, 256], 82.7),
        ([2048, 768, 768], [32, 32, 128], 94.9),
        ([2048, 768, 3072], [64, 64, 128], 256.0),
        ([2048, 768, 3072], [64, 64, 64], 309.2),
        ([3152, 3072, 768], [64, 64, 64], 383.2),
        ([3152, 3072, 768], [128, 64, 128], 386.8),
        ([4096, 4096, 4096], [256, 128, 256], 3113.2),
        ([4096, 4096, 4096], [64, 64, 64], 3178.1),
        ([4096, 4096, 4096], [64, 64, 128], 3482.5),
    ];

    #[test]
    fn times_are_as_measured() {
        let gpu = Gpu::new(GpuIsa::Sm90, 132);
        for ([rows, columns, terms], [of_rows, of_columns, threads], measured) in MEASURED {
            let is_it = |tile: &&ThreadTile| {
                tile.sides() == [of_rows, of_columns] && tile.threads.iter().product::<i64>() == threads
            };
            let tile = ThreadTile::ALL.iter().find(is_it).expect("there is such a tile");
            let tiles = (rows + of_rows - 1) / of_rows * ((columns + of_columns - 1) / of_columns);
            let expected = tile.clocks(&gpu, tiles, 1) as f64 * terms as f64 / 64.0 / 1755.0 + 4.0;
            let ratio = expected / measured;
            assert!(
                (0.85..1.15).contains(&ratio),
                "{rows} x {columns} x {terms}, {tile:?}: {expected}, measured {measured}"
            );
        }
    }
}
