//! Finds sums of columns whose rows another statement reads as well, so that one pass over memory can serve both.

use litz_analysis::access::accesses;
use litz_analysis::{Contraction, Dependences};
use litz_ir::loops::{Loops, Nest, Stmt};
use litz_sym::Expr;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// What is asked for a program whose statements stay as they are; their dependences are found when they are first needed.
pub struct Swept {
    /// Bytes of the cache of one core: what stays there may be read twice.
    pub cache_bytes: i64,
    deps: OnceCell<Dependences>,
}

impl Swept {
    /// For a program of which nothing is known yet.
    pub fn new(cache_bytes: i64) -> Swept {
        Swept { cache_bytes, deps: OnceCell::new() }
    }

    /// Whether a statement that does not depend on the nest at that position reads or writes what this reduces row by row, at coordinates
    /// that are axes of its own where the nest has reduced ones, and all of it does not stay in the cache.
    pub fn is_swept(&self, loops: &Loops, at: usize, nest: &Nest) -> bool {
        let deps = self.deps.get_or_init(|| Dependences::of(loops, &[]));
        let mut shared: BTreeMap<usize, i64> = BTreeMap::new();
        for buf in deps.stmts[at].reads.iter().copied() {
            let data = &loops.bufs[buf];
            let elements = loops.facts.hint(data.elements()).unwrap_or(0);
            let size = elements.saturating_mul(data.dtype.size() as i64);
            for &user in deps.users[buf].iter().filter(|&&user| user != at) {
                let Stmt::Nest(other) = &loops.stmts[user] else { continue };
                let is_alike = deps.stmts[user].at_load == deps.stmts[at].at_load;
                let mut pairs = accesses(nest).flat_map(|own| accesses(other).map(move |there| (own, there)));
                let is_same_row = pairs.any(|(own, there)| {
                    own.buf == buf && there.buf == buf && meets(nest, own.index, other, there.index)
                });
                if is_alike && is_same_row {
                    *shared.entry(user).or_default() += size;
                }
            }
        }
        let is_product = |user: usize| match &loops.stmts[user] {
            Stmt::Nest(other) => Contraction::by_result(loops, other).is_some(),
            Stmt::Extern(_) | Stmt::Recurrence(_) => true,
        };
        // What takes a product's results as they come is in its kernel, which goes over tiles.
        let takes_product = |user: usize| {
            let info = &deps.stmts[user];
            let mut before = info.after.iter().filter(|&&other| is_product(other));
            before.any(|&other| deps.stmts[other].writes.iter().any(|buf| info.reads.contains(buf)))
        };
        let goes_over =
            |user: usize| !is_product(user) && !takes_product(user) && !depends_on(deps, user, at);
        let mut large =
            shared.into_iter().filter(|(_, shared)| *shared > self.cache_bytes).map(|(user, _)| user);
        large.any(goes_over)
    }
}

/// Whether the coordinates of an access that reduced axes of a nest are in are axes that another nest keeps.
fn meets(nest: &Nest, own: &[Expr], other: &Nest, there: &[Expr]) -> bool {
    let is_along = |at: &Expr| nest.reduced.iter().any(|axis| at.has_sym(axis.var));
    let is_kept = |at: &Expr| other.axes.iter().any(|axis| *at == Expr::sym(axis.var));
    let mut along = own.iter().zip(there).filter(|(own, _)| is_along(own)).peekable();
    along.peek().is_some() && along.all(|(_, there)| is_kept(there))
}

/// Whether a statement depends on another one, or on one that does.
fn depends_on(deps: &Dependences, at: usize, other: usize) -> bool {
    let (mut seen, mut waiting) = (vec![false; at + 1], vec![at]);
    while let Some(at) = waiting.pop() {
        if at == other {
            return true;
        }
        if at > other && !std::mem::replace(&mut seen[at], true) {
            waiting.extend(&deps.stmts[at].after);
        }
    }
    false
}
