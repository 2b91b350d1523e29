//! Counts the rounds in which the threads of a warp come to memory that has banks.
//!
//! Banks are 4 bytes wide, and 32 of them serve a warp at once. Threads that access different words of one bank come one
//! after the other, and those that access one word come together. The interpreter runs threads one by one: what belongs together
//! are the accesses of one statement that threads of a warp come to for the same time.

use std::collections::HashMap;

use super::threads::ThreadRange;
use litz_ir::target::Gpu;

/// Bytes of a word, and banks.
const WORD: usize = 4;
const BANKS: usize = 32;

/// Rounds of accesses to shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rounds {
    /// Rounds that were taken.
    pub taken: u64,
    /// Rounds that as many words need at least, from whatever banks.
    pub needed: u64,
}

/// Accesses of the points of a grid, as far as they were counted.
#[derive(Default)]
pub(super) struct Banks {
    /// How often each thread came to each statement.
    times: HashMap<(usize, u32), u32>,
    /// Words that the threads of a warp access together: by statement, warp and time.
    words: HashMap<(usize, u32, u32), Vec<usize>>,
    rounds: Rounds,
}

impl Banks {
    /// A thread accesses an element at a position in bytes. `statement` names what it runs.
    pub(super) fn note(&mut self, statement: usize, threads: ThreadRange, byte: usize) {
        let Some(thread) = threads.single() else { return };
        let time = self.times.entry((statement, thread)).or_default();
        let together = (statement, thread / Gpu::LANES, *time);
        *time += 1;
        let words = self.words.entry(together).or_default();
        let word = byte / WORD;
        if !words.contains(&word) {
            words.push(word);
        }
    }

    /// A point of the grid ends.
    pub(super) fn end(&mut self) {
        for words in self.words.values() {
            let mut of_bank = [0_u64; BANKS];
            words.iter().for_each(|word| of_bank[word % BANKS] += 1);
            self.rounds.taken += of_bank.into_iter().max().unwrap_or(0);
            self.rounds.needed += (words.len() as u64).div_ceil(BANKS as u64);
        }
        self.times.clear();
        self.words.clear();
    }

    /// What was counted since this was asked last.
    pub(super) fn take(&mut self) -> Rounds {
        std::mem::take(&mut self.rounds)
    }
}
