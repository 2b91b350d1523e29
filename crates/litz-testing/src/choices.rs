//! Turns bytes into decisions: one stream that a generator draws from, so that shrinking the bytes shrinks what it makes.

/// Decisions still to come. The first option is the simplest, and what an exhausted stream chooses.
pub struct Choices<'a> {
    rest: &'a [u8],
}

impl Choices<'_> {
    /// Decisions that the bytes make, in order.
    pub fn new(bytes: &[u8]) -> Choices<'_> {
        Choices { rest: bytes }
    }

    /// A number below `limit`, which is at least 1.
    pub fn below(&mut self, limit: usize) -> usize {
        let Some((&first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        usize::from(first) % limit
    }

    /// Whether to do something that is the less simple option, once in `of` times.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    /// One of the options, of which there is at least one.
    pub fn pick<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len())]
    }

    /// Whether all bytes are used up.
    pub fn is_exhausted(&self) -> bool {
        self.rest.is_empty()
    }
}

/// `count` bytes that the seed gives, always the same.
pub fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..count).map(|_| (random.next() >> 56) as u8).collect()
}

/// Numbers in which nobody sees a pattern (SplitMix64, by Steele, Lea and Flood, 2014).
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence that the seed gives.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "a sequence that never ends is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is at least 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
