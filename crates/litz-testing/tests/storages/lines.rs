//! Says what lines random graphs have.

use litz_testing::choices::Random;

/// A line of a graph: what it does to the tensors before it. `usize`s count tensors; a line that gives one adds it at the end.
#[derive(Clone, Debug)]
pub enum Line {
    Neg(usize),
    Add(usize),
    Clone(usize),
    Max(usize, usize),
    Slice {
        of: usize,
        dim: usize,
        start: usize,
        end: usize,
        step: usize,
    },
    Select {
        of: usize,
        dim: usize,
        at: usize,
    },
    Transpose {
        of: usize,
        dims: [usize; 2],
    },
    Diagonal(usize),
    SliceScatter {
        of: usize,
        from: usize,
        dim: usize,
        start: usize,
        end: usize,
        step: usize,
    },
    SelectScatter {
        of: usize,
        from: usize,
        dim: usize,
        at: usize,
    },
    /// Rows 0, 1 .. of `from`, as many as there are positions, to the positions.
    Put {
        of: usize,
        from: usize,
        in_place: bool,
    },
    NegInPlace(usize),
    AddInPlace(usize),
    Zero(usize),
    Copy {
        to: usize,
        from: usize,
    },
    /// Two elements along a dimension from the first position on.
    SliceAt {
        of: usize,
        dim: usize,
    },
    SliceScatterAt {
        of: usize,
        from: usize,
        dim: usize,
    },
    /// The sum of the positive elements, each plus 1: there are as many as data says.
    SumChosen(usize),
    /// One of two graphs runs on the two tensors, as the sign of the first one's sum says; each gives a tensor as the first one.
    Branch {
        of: usize,
        from: usize,
        arms: [Vec<Line>; 2],
    },
    /// A graph runs on the two tensors until there are three of the first position, and gives the first one anew each time.
    Repeat {
        of: usize,
        from: usize,
        body: Vec<Line>,
    },
    /// The host doubles a tensor.
    Twice(usize),
    /// The host adds 1 to a tensor where it is.
    Increment(usize),
}

/// A line, of a graph that is so deep inside of others.
pub fn line(random: &mut Random, views: usize, depth: usize) -> Line {
    let mut below = |limit: usize| random.below(limit as u64) as usize;
    // Late tensors are used more often than early ones.
    let of = views - 1 - below(views).min(below(views));
    let from = below(views);
    let (dim, start, step) = (below(3), below(4), 1 + below(2));
    let end = start + 1 + below(4);
    let kinds = if depth < 2 { 31 } else { 20 };
    match below(kinds) {
        0 => Line::Neg(of),
        1 => Line::Add(of),
        2 => Line::Clone(of),
        3 => Line::Max(of, from),
        4..=6 => Line::Slice { of, dim, start, end, step },
        7 | 8 => Line::Select { of, dim, at: start },
        9 => Line::Transpose { of, dims: [dim, below(3)] },
        10 => Line::Diagonal(of),
        11 => Line::SliceScatter { of, from, dim, start, end, step },
        12 => Line::SelectScatter { of, from, dim, at: start },
        13 | 14 => Line::Put { of, from, in_place: below(2) == 0 },
        15 => Line::NegInPlace(of),
        16 => Line::AddInPlace(of),
        17 => Line::Zero(of),
        18 | 19 => Line::Copy { to: of, from },
        20 | 21 => Line::SliceAt { of, dim },
        22 => Line::SliceScatterAt { of, from, dim },
        23 => Line::SumChosen(of),
        24..=26 => Line::Branch { of, from, arms: [lines(random, depth + 1), lines(random, depth + 1)] },
        27 | 28 => Line::Repeat { of, from, body: lines(random, depth + 1) },
        29 => Line::Twice(of),
        _ => Line::Increment(of),
    }
}

/// Lines of a graph inside of others, some of which will not fit.
fn lines(random: &mut Random, depth: usize) -> Vec<Line> {
    (0..1 + random.below(8)).map(|number| line(random, 2 + number as usize, depth)).collect()
}
