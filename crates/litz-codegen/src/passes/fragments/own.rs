//! Gives each thread the elements that it has of memory which threads hold together.
//!
//! Such memory is declared for all threads, and an index says whose element it is: of `acc[c + 2*l + 64*r]` with lanes `l` in 32, `c` in 2 and
//! `r` in 2, lane 3 has the elements 6, 7, 70 and 71. In mixed radix, some digits of the index are the thread's and the others say which of
//! its elements it is. All accesses of a memory have the same digits of threads, or they would be of each other's elements, which the
//! verifier of schedules does not let pass. So the digits of threads are dropped, and the others are counted anew: `own[c + 2*r]`.
//!
//! ```text
//! stride    1       2          64
//! digit     c in 2  l in 32    r in 2          =>  c in 2, r in 2 at strides 1 and 2
//! ```

use super::{PLACES, places};
use litz_analysis::apart::in_mixed_radix;
use litz_analysis::inside::longest;
use litz_ir::Diag;
use litz_ir::kernel::{
    Act, Fragment, Kernel, LaneReduction, Loop, Mem, MemData, MemorySpace, PartMut, Stmt, Touch, visit,
};
use litz_ir::loops::Axis;
use litz_ir::target::{Instruction, Side};
use litz_sym::{Expr, Facts, Sym};
use std::collections::{HashMap, HashSet};

/// Changes the memories that threads hold together, of a kernel that has threads.
///
/// # Errors
/// `no-fragments`, where an index has no such digits.
pub(super) fn spread(kernel: &mut Kernel, facts: Facts) -> Result<(), Diag> {
    let mut has_threads = false;
    visit(&kernel.body, &mut |stmt| {
        has_threads |= matches!(stmt, Stmt::Loop(inner) if inner.kind.level().is_some());
    });
    if !has_threads {
        return Ok(());
    }
    let mut body = std::mem::take(&mut kernel.body);
    let spread = layouts(kernel, &mut body, &facts).and_then(|layouts| {
        own_indices(kernel, &mut body, &facts, &layouts)?;
        Ok(layouts)
    });
    kernel.body = body;
    let layouts = spread.map_err(|(mem, at)| {
        let (kernel, name) = (&kernel.name, &kernel.mems[mem].name);
        Diag::new("no-fragments", format!("kernel @{kernel}: threads have no elements of `{name}` at {at}"))
    })?;
    for (mem, layout) in layouts {
        let (name, dtype) = (kernel.mems[mem].name.clone(), kernel.mems[mem].dtype);
        kernel.mems[mem] = MemData::flat(name, dtype, Expr::int(layout.count), MemorySpace::Own);
    }
    Ok(())
}

/// How each memory that threads hold together is spread over them, or one that is not, with an index.
fn layouts(kernel: &Kernel, body: &mut [Stmt], facts: &Facts) -> Result<HashMap<Mem, Layout>, (Mem, Expr)> {
    // For each memory, the digits of all indices, or one that has none.
    let mut found: HashMap<Mem, Result<Vec<Digit>, Expr>> = HashMap::new();
    // Those of which threads have elements each.
    let mut parted: HashSet<Mem> = HashSet::new();
    Walk { kernel, threads: Vec::new() }.block(body, facts, &mut |mem, at, here| {
        // What all threads store alike, each has all of, whichever it reads.
        let is_of_thread = || here.threads.iter().any(|thread| at.has_sym(thread.var));
        if here.lanes.is_some() || here.is_store && is_of_thread() {
            parted.insert(mem);
        }
        let all = found.entry(mem).or_insert_with(|| Ok(Vec::new()));
        let Ok(digits) = all else { return };
        match terms(*at, here) {
            Some((terms, _)) => {
                digits.extend(terms.into_iter().map(|term| term.digit));
                digits.extend(here.lanes.map(|lanes| Digit { stride: 1, end: lanes, is_thread: true }));
            }
            None => *all = Err(*at),
        }
    });
    let layout = |(mem, digits): (Mem, Result<Vec<Digit>, Expr>)| {
        let layout = match digits {
            // What each thread has all of stays as it is.
            _ if !parted.contains(&mem) => {
                kernel.mems[mem].span().as_int().map(Layout::whole).ok_or(Expr::zero())
            }
            Ok(digits) => Layout::of(digits).ok_or(Expr::zero()),
            Err(at) => Err(at),
        };
        layout.map(|layout| (mem, layout)).map_err(|at| (mem, at))
    };
    found.into_iter().map(layout).collect()
}

/// Gives all accesses the indices of threads' own elements.
fn own_indices(
    kernel: &Kernel,
    body: &mut [Stmt],
    facts: &Facts,
    layouts: &HashMap<Mem, Layout>,
) -> Result<(), (Mem, Expr)> {
    let mut wrong = None;
    Walk { kernel, threads: Vec::new() }.block(body, facts, &mut |mem, at, here| match layouts[&mem]
        .own(*at, here)
    {
        Some(own) => *at = here.facts.simplify(own),
        None => wrong = Some((mem, *at)),
    });
    if wrong.is_none() {
        fragments(body, layouts, &mut |mem, at| wrong = Some((mem, at)));
    }
    wrong.map_or(Ok(()), Err)
}

/// Says of fragments how their pieces lie, which their first elements are indices of so far.
fn fragments(stmts: &mut [Stmt], layouts: &HashMap<Mem, Layout>, wrong: &mut dyn FnMut(Mem, Expr)) {
    let mut set = |fragment: &mut Fragment| {
        if !layouts.contains_key(&fragment.mem) {
            return;
        }
        let [along, down, inner] = [1, 2, 3].map(|at| Sym::new(PLACES[at]));
        let parted = || {
            let (along, rest) = fragment.first.linear(along)?;
            let (down, rest) = rest.linear(down)?;
            let (inner, first) = rest.linear(inner)?;
            Some((first, [along, down, inner]))
        };
        match parted() {
            Some((first, steps)) => (fragment.first, fragment.steps) = (first, steps),
            None => wrong(fragment.mem, fragment.first),
        }
    };
    litz_ir::kernel::visit_mut(stmts, &mut |stmt| match stmt {
        Stmt::Act(Act::FragmentLoad(load)) => set(&mut load.into),
        Stmt::Act(Act::FragmentProduct(product)) => {
            product.fragments_mut().into_iter().for_each(|(_, own)| set(own));
        }
        Stmt::Act(_) | Stmt::Loop(_) | Stmt::If { .. } => {}
    });
}

/// What is known at an access.
struct Here<'a> {
    facts: &'a Facts,
    /// The variables that say which thread it is.
    threads: &'a [Axis],
    is_store: bool,
    /// How many lanes have an element each from there on, where a reduction combines these.
    lanes: Option<i64>,
}

/// Goes through the accesses of memory that threads hold together.
struct Walk<'a> {
    kernel: &'a Kernel,
    threads: Vec<Axis>,
}

/// What is done with an index, which may be changed.
type Visit<'v> = dyn FnMut(Mem, &mut Expr, &Here<'_>) + 'v;

impl Walk<'_> {
    fn block(&mut self, stmts: &mut [Stmt], facts: &Facts, f: &mut Visit<'_>) {
        for stmt in stmts {
            self.stmt(stmt, facts, f);
        }
    }

    fn stmt(&mut self, stmt: &mut Stmt, facts: &Facts, f: &mut Visit<'_>) {
        match stmt {
            Stmt::Loop(Loop { kind, var, extent, body }) => {
                let (mut inside, depth) = (facts.clone(), self.threads.len());
                inside.declare_index(*var, *extent);
                // A variable of a loop elsewhere may have the name.
                let outer = std::mem::take(&mut self.threads);
                self.threads = outer.iter().copied().filter(|thread| thread.var != *var).collect();
                self.threads.extend(kind.level().map(|_| Axis { var: *var, extent: longest(*extent) }));
                self.block(body, &inside, f);
                self.threads = outer;
                debug_assert_eq!(self.threads.len(), depth, "loops are left as they were entered");
            }
            Stmt::If { then, other, .. } => {
                self.block(then, facts, f);
                self.block(other, facts, f);
            }
            Stmt::Act(act) => self.act(act, facts, f),
        }
    }

    fn act(&mut self, act: &mut Act, facts: &Facts, f: &mut Visit<'_>) {
        let kernel = self.kernel;
        let is_held =
            |mem: Mem| matches!(kernel.mems[mem].space, MemorySpace::Register | MemorySpace::Scratch);
        let (threads, is_loaded) = (self.threads.clone(), matches!(act, Act::FragmentLoad(_)));
        let fragment = |(side, own): (Side, &mut Fragment), by: &Instruction, columns, f: &mut Visit<'_>| {
            if !is_held(own.mem) {
                return;
            }
            let thread = Axis { var: Sym::new(PLACES[0]), extent: Expr::int(by.threads().into()) };
            let threads: Vec<Axis> = threads.iter().copied().chain([thread]).collect();
            let facts = places(facts, side, (by, columns));
            let is_store = is_loaded || side == Side::Sums;
            f(own.mem, &mut own.first, &Here { facts: &facts, threads: &threads, is_store, lanes: None });
        };
        if let Act::FragmentLoad(load) = act {
            return fragment((load.side, &mut load.into), load.by, load.by.columns, f);
        }
        if let Act::FragmentProduct(product) = act {
            let (by, columns) = (product.by, product.columns);
            return product.fragments_mut().into_iter().for_each(|own| fragment(own, by, columns, f));
        }
        let mut lanes = None;
        if let Act::Lanes(LaneReduction { from, lanes: count, copies, .. }) = act {
            lanes = Some((*from, i64::from(*count) * i64::from(*copies)));
        }
        let count = if let Act::Copy { count, .. } = act { i64::from(*count) } else { 1 };
        act.each_part_mut(&mut |part| {
            let PartMut::Access { touch, mem, beside, index: [at], .. } = part else { return };
            if !is_held(*mem) {
                return;
            }
            let lanes = lanes.filter(|(from, _)| from == mem).map(|lanes| lanes.1);
            let here = Here { facts, threads: &threads, is_store: touch == Touch::Store, lanes };
            let mut flat = *at * count;
            if let Some(beside) = beside {
                // Both are accessed at one index, and have one layout.
                f(*beside, &mut flat.clone(), &here);
            }
            f(*mem, &mut flat, &here);
            *at = facts.simplify(flat.floordiv(count));
        });
    }
}

/// A digit of an index: its stride, and what all that it says is below.
#[derive(Clone, Copy, Debug)]
struct Digit {
    stride: i64,
    end: i64,
    is_thread: bool,
}

/// A term of an index.
struct Term {
    digit: Digit,
    value: Expr,
}

/// The terms of an index, and its constant. Variables of threads are taken for their digits where it has quotients and remainders of them.
/// None where a term has no least value of zero, or is of threads and of other things at once.
fn terms(at: Expr, here: &Here<'_>) -> Option<(Vec<Term>, i64)> {
    let (at, threads) = match in_mixed_radix(&[at], here.threads, here.facts) {
        Some(digits) => (digits.sums[0], digits.axes),
        None => (at, here.threads.to_vec()),
    };
    let mut facts = here.facts.clone();
    threads.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let term = |(stride, value): (i64, Expr)| {
        let range = facts.bounds(value);
        let syms = value.syms();
        let is_of_thread = |sym: &Sym| threads.iter().any(|axis| axis.var == *sym);
        let of_threads = syms.iter().filter(|sym| is_of_thread(sym)).count();
        let is_digit = stride > 0
            && range.lo >= 0
            && range.hi < i64::MAX / stride.max(1) - 1
            && (of_threads == 0 || of_threads == syms.len());
        let digit = || Digit { stride, end: stride * (range.hi + 1), is_thread: of_threads > 0 };
        is_digit.then(|| Term { digit: digit(), value })
    };
    Some((at.terms().map(term).collect::<Option<_>>()?, at.constant()))
}

/// How the elements of a memory are spread over threads.
struct Layout {
    /// Digits, the one of the smallest stride first, and the strides of those that are no thread's among a thread's own elements.
    digits: Vec<(Digit, i64)>,
    /// Elements of a thread.
    count: i64,
    /// Whether each thread has all of them.
    is_whole: bool,
}

impl Layout {
    /// That of memory of which each thread has all.
    fn whole(count: i64) -> Layout {
        Layout { digits: Vec::new(), count, is_whole: true }
    }

    fn of(mut all: Vec<Digit>) -> Option<Layout> {
        // What has one value says nothing.
        all.retain(|digit| digit.end > digit.stride);
        all.sort_by_key(|digit| (digit.stride, digit.end));
        let mut digits: Vec<Digit> = Vec::new();
        for digit in all {
            match digits.last_mut() {
                Some(last) if digit.stride < last.end => {
                    if last.is_thread != digit.is_thread || digit.stride % last.stride != 0 {
                        return None;
                    }
                    last.end = last.end.max(digit.end);
                }
                _ => digits.push(digit),
            }
        }
        let (mut count, mut placed) = (1, Vec::new());
        for digit in digits {
            placed.push((digit, count));
            if !digit.is_thread {
                count *= (digit.end + digit.stride - 1) / digit.stride;
            }
        }
        Some(Layout { digits: placed, count, is_whole: false })
    }

    /// The index of a thread's own element. None where terms of one digit add up to more than it has.
    fn own(&self, at: Expr, here: &Here<'_>) -> Option<Expr> {
        if self.is_whole {
            return Some(at);
        }
        let mut own = Expr::zero();
        let mut most: Vec<i64> = vec![0; self.digits.len()];
        let (terms, constant) = terms(at, here)?;
        let all = terms.into_iter().map(|term| (term.digit, term.value));
        let constants = self.constants(constant)?;
        for (digit, value) in all.chain(constants) {
            if digit.end <= digit.stride {
                continue;
            }
            let holds = |(own, _): &(Digit, i64)| own.stride <= digit.stride && digit.stride < own.end;
            let number = self.digits.iter().position(holds)?;
            let (whole, stride) = self.digits[number];
            most[number] += digit.end - digit.stride;
            if whole.is_thread || digit.stride % whole.stride != 0 {
                if whole.is_thread == digit.is_thread && whole.is_thread {
                    continue;
                }
                return None;
            }
            own = own + value * (digit.stride / whole.stride * stride);
        }
        let fits = |(most, (digit, _)): (&i64, &(Digit, i64))| *most < digit.end;
        most.iter().zip(&self.digits).all(fits).then_some(own)
    }

    /// A constant as terms. None where it is another thread's element.
    fn constants(&self, constant: i64) -> Option<Vec<(Digit, Expr)>> {
        let (mut rest, mut found) = (constant, Vec::new());
        if rest < 0 {
            return None;
        }
        for (digit, _) in self.digits.iter().rev() {
            let value = rest / digit.stride;
            rest %= digit.stride;
            if value == 0 {
                continue;
            }
            if digit.is_thread {
                return None;
            }
            // The digit of a value counts as far as the value.
            let end = digit.stride * (value + 1);
            found.push((Digit { end, ..*digit }, Expr::int(value)));
        }
        (rest == 0).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digit(stride: i64, count: i64, is_thread: bool) -> Digit {
        Digit { stride, end: stride * count, is_thread }
    }

    #[test]
    fn digits_of_threads_are_dropped_and_the_others_counted_anew() {
        let layout =
            Layout::of(vec![digit(64, 2, false), digit(2, 32, true), digit(1, 2, false)]).expect("digits");
        assert_eq!(layout.count, 4);
        let mut facts = Facts::new();
        let [c, l, r] = ["c", "l", "r"].map(Sym::new);
        for (sym, extent) in [(c, 2), (l, 32), (r, 2)] {
            facts.declare_index(sym, Expr::int(extent));
        }
        let threads = [Axis { var: l, extent: Expr::int(32) }];
        let here = Here { facts: &facts, threads: &threads, is_store: true, lanes: None };
        let own = |at: Expr| layout.own(at, &here);
        let [c, l, r] = [c, l, r].map(Expr::sym);
        assert_eq!(own(c + l * 2 + r * 64), Some(c + r * 2));
        assert_eq!(own(c + l.modulo(4) * 2 + l.floordiv(4) * 8 + 64), Some(c + 2));
        assert_eq!(own(l * 2 + 6), None, "the constant is another thread's");
        assert_eq!(own(r * 2 + l * 2), None, "an element of another thread");
        assert_eq!(own(c + r * 128), None, "there is no such digit");
    }

    #[test]
    fn digits_that_overlap_belong_to_threads_or_to_none() {
        assert!(Layout::of(vec![digit(1, 8, false), digit(4, 4, true)]).is_none());
        let joined = Layout::of(vec![digit(1, 8, false), digit(4, 4, false)]).expect("one digit");
        assert_eq!((joined.digits.len(), joined.count), (1, 16));
    }
}
