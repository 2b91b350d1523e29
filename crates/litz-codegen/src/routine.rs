//! Makes kernels of GPUs for calls of routines that sort rows: `sort` and `topk`.
//!
//! Rows are lists of pairs ([`pairs`]) that differ by their positions, so that what comes first is one thing, whoever compares: results are those of
//! the routines of the host, bit by bit, in equal calls. `sort` wants all pairs of a row, `topk` some.
//!
//! | wanted | row | kernels |
//! |---|---|---|
//! | any | at most 2048 elements | a block sorts a row ([`select`], [`network`]) |
//! | at most 1024 | longer | blocks find the first of a segment, then of what those have found, until a block has a row |
//! | more | longer | blocks sort 2048 elements each, and runs are merged by twos ([`merge`]) |

mod ends;
mod merge;
mod network;
mod pairs;
mod select;
mod writer;

use crate::Names;
use crate::kernel::declare_sizes;
use crate::passes;
use litz_ir::kernel::Kernel;
use litz_ir::loops::{Callee, Extern, Loops, Routine, Stmt};
use litz_ir::schedule::{Schedule, ScheduleStep};
use litz_ir::target::{Gpu, Target};
use litz_ir::{Diags, Dtype};
use litz_sym::{Expr, Facts};

pub use ends::Arg;
use ends::{Line, List, Round};
use pairs::{Direction, MOST_ELEMENTS, POSITION, key_type};
use select::Segments;
use writer::Writer;

/// Threads of a block that selects.
const THREADS: i64 = 256;
/// Pairs that a block sorts as they are, a power of two.
const SORTED: i64 = 2048;
/// Pairs of the groups of a segment that a block sorts, at most: 32 to 48 KB.
const CANDIDATES: i64 = 4096;
/// Pairs of a segment that are found without sorting it, at most.
const MOST_FOUND: i64 = 1024;
/// Groups of a segment, at least: enough for threads to have several loads under way.
const GROUPS: i64 = 1024;
/// Blocks for each unit, below which rows are cut into segments.
const BLOCKS: i64 = 2;
/// Elements of a segment, at least, where rows are cut for want of blocks: what is found of a few of them is sorted at once.
const SHORTEST: i64 = 8192;

/// The calls of a schedule that kernels run instead of the host, in order.
#[derive(Default)]
pub struct Routines(Vec<Launches>);

/// A call of a routine as launches of kernels.
pub struct Launches {
    /// The statement that is the call.
    name: String,
    /// Kernels in order, with what their parameters stand for.
    pub kernels: Vec<(Kernel, Vec<Arg>)>,
    /// Pairs of each list.
    pub lists: Vec<Expr>,
    /// Type of the keys of pairs.
    pub key: Dtype,
    /// Type of the positions of pairs.
    pub position: Dtype,
}

impl Routines {
    /// Makes the kernels, where a schedule is for a GPU. What runs when the model is loaded, the host runs.
    ///
    /// # Errors
    /// When realization fails.
    pub fn of(loops: &Loops, names: &Names<'_>, schedule: &Schedule) -> Result<Routines, Diags> {
        let Target::Gpu(gpu) = &schedule.target else { return Ok(Routines::default()) };
        let mut routines = Vec::new();
        for step in &schedule.steps {
            let ScheduleStep::Extern { name, at_load: false } = step else { continue };
            let Some(Stmt::Extern(Extern { callee: Callee::Routine(routine), .. })) =
                names.stmts.get(name.as_str())
            else {
                continue;
            };
            let Some(mut launches) = launches(name, loops, routine, gpu) else { continue };
            for (kernel, _) in &mut launches.kernels {
                while schedule.steps.iter().any(|step| step.name() == kernel.name) {
                    kernel.name.push('_');
                }
                let passes = passes::realization(&schedule.target);
                passes::run(kernel, passes, &schedule.target).map_err(|diag| vec![diag])?;
                declare_sizes(kernel, &loops.facts);
            }
            routines.push(launches);
        }
        Ok(Routines(routines))
    }

    /// Their kernels, in order.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.0.iter().flat_map(|launches| &launches.kernels).map(|(kernel, _)| kernel)
    }

    /// What a statement launches; none where the host runs it.
    pub fn of_call(&self, name: &str) -> Option<&Launches> {
        self.0.iter().find(|launches| launches.name == name)
    }
}

/// What is sorted: rows along the middle of `[outer, length, inner]`, of which the first `wanted` are.
struct Call<'a> {
    facts: &'a Facts,
    dtype: Dtype,
    key: Dtype,
    direction: Direction,
    outer: Expr,
    length: Expr,
    inner: Expr,
    wanted: Expr,
}

impl<'a> Call<'a> {
    /// None where no kernels are made for it.
    fn of(loops: &'a Loops, routine: &Routine) -> Option<Call<'a>> {
        let (&[outer, length, inner], rest) = routine.ints.split_first_chunk()?;
        let (wanted, is_descending) = match (&*routine.name, rest) {
            ("sort", &[is_descending]) => (length, is_descending),
            ("topk", &[wanted, is_largest]) => (wanted, is_largest),
            _ => return None,
        };
        let direction =
            if is_descending.as_int()? == 0 { Direction::Ascending } else { Direction::Descending };
        let dtype = loops.bufs[*routine.reads.first()?].dtype;
        let key = key_type(dtype)?;
        Some(Call { facts: &loops.facts, dtype, key, direction, outer, length, inner, wanted })
    }

    /// Declares the axes of the grid over rows.
    fn line(&self, w: &mut Writer) -> Line {
        Line { outer: w.axis("outer", self.outer), inner: w.axis("inner", self.inner) }
    }

    /// The number of a row.
    fn number(&self, line: Line) -> Expr {
        line.outer * self.inner + line.inner
    }

    /// How pairs are found of rows of `length` elements, `most` at most, where so many are `selected` of each, or all are sorted.
    fn segments(&self, (length, most): (Expr, i64), selected: Option<i64>, gpu: &Gpu) -> Segments {
        if most <= SORTED {
            let wanted = self.facts.bounds(self.wanted).hi.min(most);
            return Segments { count: Expr::one(), length: most, groups: None, wanted };
        }
        let Some(wanted) = selected else {
            return Segments { count: length.ceildiv(SORTED), length: SORTED, groups: None, wanted: SORTED };
        };
        let groups = GROUPS.max(2 * power_of_two(wanted));
        let longest = CANDIDATES / wanted * groups;
        let rows = self.facts.size_hint(self.outer * self.inner).max(1);
        let blocks = i64::from(gpu.units) * BLOCKS / rows;
        let share = match blocks {
            ..=1 => longest,
            2.. => (self.facts.size_hint(length) / blocks).max(SHORTEST).min(longest),
        };
        let segment = multiple(share.min(most), groups);
        let count = if segment >= most { Expr::one() } else { length.ceildiv(segment) };
        Segments { count, length: segment, groups: Some(groups), wanted }
    }
}

/// The kernels of a call of a routine; none where the host runs it: of elements without an order here, and of rows whose length has no bound
/// that positions of 32 bits reach.
fn launches(name: &str, loops: &Loops, routine: &Routine, gpu: &Gpu) -> Option<Launches> {
    let call = Call::of(loops, routine)?;
    let rows = call.outer * call.inner;
    let (mut length, mut most) = (call.length, call.facts.bounds(call.length).hi);
    if most > MOST_ELEMENTS {
        return None;
    }
    let selected = call.wanted.as_int().filter(|&wanted| wanted <= MOST_FOUND);
    let (kernels, lists, prefix) = (Vec::new(), Vec::new(), format!("{}_{name}", routine.name));
    let mut made = Launches { name: name.to_owned(), kernels, lists, key: call.key, position: POSITION };
    if most < 1 || selected == Some(0) {
        return Some(made);
    }
    let mut from = None;
    loop {
        let segments = call.segments((length, most), selected, gpu);
        let number = made.lists.len();
        let of_row = segments.count * segments.wanted;
        let to = (!segments.count.is_one()).then_some(List { number, length: of_row });
        let round = Round { from, to };
        let name = format!("{prefix}_{}", made.kernels.len());
        made.kernels.push((select::kernel(&name, &call, round, segments), round.args()));
        from = to;
        let Some(list) = to else { return Some(made) };
        made.lists.push(rows * of_row);
        (length, most) = (list.length, call.facts.bounds(list.length).hi);
        if selected.is_none() {
            break;
        }
    }
    // Two lists in turns.
    let mut run = SORTED;
    while run < most {
        let is_last = 2 * run >= most;
        let number = 1 - from.map_or(1, |list: List| list.number);
        let to = (!is_last).then_some(List { number, length });
        if number == made.lists.len() && !is_last {
            made.lists.push(rows * length);
        }
        let round = Round { from, to };
        let name = format!("{prefix}_{}", made.kernels.len());
        made.kernels.push((merge::kernel(&name, &call, round, run), round.args()));
        (from, run) = (to, 2 * run);
    }
    Some(made)
}

/// The smallest power of two that is no less.
fn power_of_two(number: i64) -> i64 {
    std::iter::successors(Some(1), |power| Some(2 * power)).find(|&power| power >= number).unwrap_or(number)
}

/// The smallest multiple of `unit` that is no less.
fn multiple(number: i64, unit: i64) -> i64 {
    (number + unit - 1) / unit * unit
}
