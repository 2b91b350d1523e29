//! Says why statements do not share a kernel.

use std::fmt;

/// Why two statements do not share a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NoFuse {
    /// One of them is a routine of the runtime.
    Extern,
    /// One of them is a region, which has its kernel to itself.
    Recurrence,
    /// One runs when the model is loaded, the other at every call.
    LoadTime,
    /// They run on different devices, or streams of one.
    Elsewhere,
    /// The kernel runs before another that the consumer depends on.
    RunsEarly,
    /// The consumer reads, at one point, elements that the producer writes at others.
    OtherPoints,
    /// Together they would have too few points to run on all threads.
    LessParallel,
    /// What they would share does not fit in the cache.
    Footprint,
    /// They would share points that each have elements of many lines of the cache, and lines that each have elements of many points.
    SplitLines,
    /// The whole intermediate fits in the cache: fusing by blocks of rows would only reread the right operand.
    NothingGained,
    /// A product takes no consumer that is neither elementwise nor row by row.
    NotAnEpilogue,
    /// The consumer is a product, and not one of the rows of a product: it wants its operands in memory.
    ProductConsumer,
    /// Stores that combine, or that may meet, may write anywhere.
    Scatter,
    /// One of them was in a kernel that is not proved.
    Unproved,
    /// They read the same data over the same points, with their axes in another order.
    OrderOfAxes,
    /// They read the same data, one of them more of it along some axis.
    OtherSize,
    /// They read the same data, one of them several times over along an axis of its own.
    Broadcast,
    /// They read the same data, one of them with several axes for one of the other's.
    SplitAxis,
    /// They read the same data over points that differ in another way.
    OtherShape,
    /// They share next to nothing, or another kernel that takes the statement shares more with it.
    Score,
    /// The kernel has as many statements as one may have.
    Members,
    /// More memory would be in use at once than what they would save is worth.
    Memory,
}

impl NoFuse {
    /// Stable name, for tests and reports.
    pub fn slug(self) -> &'static str {
        match self {
            NoFuse::Extern => "extern",
            NoFuse::Recurrence => "region",
            NoFuse::LoadTime => "load-time",
            NoFuse::Elsewhere => "elsewhere",
            NoFuse::RunsEarly => "runs-early",
            NoFuse::OtherPoints => "other-points",
            NoFuse::LessParallel => "less-parallel",
            NoFuse::Footprint => "footprint",
            NoFuse::SplitLines => "split-lines",
            NoFuse::NothingGained => "nothing-gained",
            NoFuse::NotAnEpilogue => "not-an-epilogue",
            NoFuse::ProductConsumer => "product-consumer",
            NoFuse::Scatter => "scatter",
            NoFuse::Unproved => "unproved",
            NoFuse::OrderOfAxes => "order-of-axes",
            NoFuse::OtherSize => "other-size",
            NoFuse::Broadcast => "broadcast",
            NoFuse::SplitAxis => "split-axis",
            NoFuse::OtherShape => "other-shape",
            NoFuse::Score => "score",
            NoFuse::Members => "members",
            NoFuse::Memory => "memory",
        }
    }

    /// The reason in a sentence, for reports.
    pub fn sentence(self) -> &'static str {
        match self {
            NoFuse::Extern => "One of them is a routine of the runtime or an operator of the host.",
            NoFuse::Recurrence => "One of them is a region, which has its kernel to itself.",
            NoFuse::LoadTime => "One runs when the model is loaded, the other at every call.",
            NoFuse::Elsewhere => "They run on different devices, or streams of one.",
            NoFuse::RunsEarly => "The kernel runs before another that the consumer depends on.",
            NoFuse::OtherPoints => {
                "The consumer reads, at one point, elements that the producer writes at others."
            }
            NoFuse::LessParallel => "Together they would have too few points to run on all threads.",
            NoFuse::Footprint => "What they would share does not fit in the cache.",
            NoFuse::SplitLines => {
                "At each point one of them would write parts of many lines of the cache, which other points write other parts of."
            }
            NoFuse::NothingGained => {
                "The whole intermediate fits in the cache: fusing by blocks of rows would only read the right operand again."
            }
            NoFuse::NotAnEpilogue => {
                "A product takes no consumer that is neither elementwise nor row by row."
            }
            NoFuse::ProductConsumer => {
                "The consumer is a product, and not one of the rows of a product: it wants its operands in memory."
            }
            NoFuse::Scatter => "Stores that combine, or that may meet, may write anywhere.",
            NoFuse::Unproved => "One of them was in a kernel that is not proved.",
            NoFuse::OrderOfAxes => {
                "They read the same data over the same points, with their axes in another order."
            }
            NoFuse::OtherSize => "They read the same data, one of them more of it along some axis.",
            NoFuse::Broadcast => {
                "They read the same data, one of them several times over along an axis of its own."
            }
            NoFuse::SplitAxis => {
                "They read the same data, one of them with several axes for one of the other's."
            }
            NoFuse::OtherShape => "They read the same data over points that differ in another way.",
            NoFuse::Score => {
                "They share next to nothing, or another kernel that takes the statement shares more with it."
            }
            NoFuse::Members => "The kernel has as many statements as one may have.",
            NoFuse::Memory => {
                "What the one reads would wait for what the other reads: memory in use at once would grow by more than they save is worth."
            }
        }
    }
}

impl NoFuse {
    /// Whether they differ in points over which they read the same data.
    pub fn is_of_shape(self) -> bool {
        match self {
            NoFuse::OrderOfAxes
            | NoFuse::OtherSize
            | NoFuse::Broadcast
            | NoFuse::SplitAxis
            | NoFuse::OtherShape => true,
            NoFuse::Extern
            | NoFuse::Elsewhere
            | NoFuse::Recurrence
            | NoFuse::LoadTime
            | NoFuse::RunsEarly
            | NoFuse::OtherPoints
            | NoFuse::LessParallel
            | NoFuse::Footprint
            | NoFuse::SplitLines
            | NoFuse::NothingGained
            | NoFuse::NotAnEpilogue
            | NoFuse::ProductConsumer
            | NoFuse::Scatter
            | NoFuse::Unproved
            | NoFuse::Score
            | NoFuse::Members
            | NoFuse::Memory => false,
        }
    }
}

impl fmt::Display for NoFuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.slug())
    }
}
