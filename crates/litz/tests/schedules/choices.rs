//! Draws decisions from bytes: one random stream for every generator, so that shrinking the bytes shrinks all.

/// Decisions still to come. The first option is the simplest, and what an exhausted stream chooses.
pub struct Choices<'a> {
    rest: &'a [u8],
}

impl Choices<'_> {
    pub fn new(bytes: &[u8]) -> Choices<'_> {
        Choices { rest: bytes }
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        let Some((&first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        usize::from(first) % limit
    }

    /// Whether to do something that is the less simple option, once in `of` times.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    pub fn pick<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len())]
    }
}
