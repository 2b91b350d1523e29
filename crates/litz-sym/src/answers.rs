//! Remembers what was answered of facts: layers of a model ask what earlier ones asked, and so do the passes of a compiler.
//!
//! Facts that the same steps made are the same, whoever took them: of two programs, or of the kernels of two layers. So facts carry the
//! number of their [`State`], which a table finds for the state before and the step, and answers are found by that number.
//!
//! ```text
//! state 1: nothing     -- i in 8 -->     state 2     -- j in 4 -->     state 3
//! ```
//!
//! Numbers are never given twice, so that tables may forget: they do when they are full.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::bounds::Range;
use crate::expr::{Expr, Sym};
use crate::rel::{Clause, Known, Rel};

/// Tables of each kind; a power of two, as many as keep dozens of threads apart.
const SHARDS: usize = 64;
/// Entries of a table, after which it is emptied: all together are at most some tens of megabytes.
const MOST: usize = 2048;

/// Which facts they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State(u64);

/// Facts that are equal are so however they were made.
impl PartialEq for State {
    fn eq(&self, _: &State) -> bool {
        true
    }
}

impl Eq for State {}

/// That of no facts.
impl Default for State {
    fn default() -> State {
        State(1)
    }
}

/// What changes facts.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Declare(Sym, Range, Option<i64>),
    Index(Sym, Expr),
    Divisor(Sym, i64),
    Guard(Clause),
    Assume(Rel),
    Value(Sym, Expr),
}

static ANSWERS: LazyLock<Answers> = LazyLock::new(Answers::default);
static LAST_STATE: AtomicU64 = AtomicU64::new(1);

#[derive(Default)]
struct Answers {
    states: Table<Step, State>,
    simplest: Table<Expr, Expr>,
    known: Table<Rel, Known>,
    holds: Table<Rel, bool>,
    proved: Table<Expr, bool>,
}

impl State {
    /// Of facts that are being changed, or contradict each other: nothing is remembered of them.
    pub(crate) const CHANGING: State = State(0);

    /// The state behind a step.
    pub(crate) fn after(self, step: Step) -> State {
        let new = || State(LAST_STATE.fetch_add(1, Ordering::Relaxed) + 1);
        if self.0 == State::CHANGING.0 { self } else { ANSWERS.states.answer(self, step, new) }
    }

    /// The simplest form of an expression.
    pub(crate) fn simplest(self, e: Expr, answer: impl FnOnce() -> Expr) -> Expr {
        ANSWERS.simplest.answer(self, e, answer)
    }

    /// What is known of a relation.
    pub(crate) fn known(self, rel: Rel, answer: impl FnOnce() -> Known) -> Known {
        ANSWERS.known.answer(self, rel, answer)
    }

    /// Whether a relation is known to hold.
    pub(crate) fn holds(self, rel: Rel, answer: impl FnOnce() -> bool) -> bool {
        ANSWERS.holds.answer(self, rel, answer)
    }

    /// Whether an expression is proved to be at most zero.
    pub(crate) fn proved(self, e: Expr, answer: impl FnOnce() -> bool) -> bool {
        ANSWERS.proved.answer(self, e, answer)
    }
}

/// Answers to one kind of question.
struct Table<Q, A>(Vec<Mutex<FxHashMap<(u64, Q), A>>>);

impl<Q, A> Default for Table<Q, A> {
    fn default() -> Table<Q, A> {
        Table((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl<Q: Hash + Eq, A: Copy> Table<Q, A> {
    /// What was answered before, or is now. Answers take other answers, so that nothing is locked meanwhile.
    fn answer(&self, of: State, asked: Q, answer: impl FnOnce() -> A) -> A {
        if of.0 == State::CHANGING.0 {
            return answer();
        }
        let key = (of.0, asked);
        // The tables' own hash begins with the bits at the other end.
        let shard = &self.0[FxBuildHasher.hash_one(&key) as usize & (SHARDS - 1)];
        let known = locked(shard).get(&key).copied();
        known.unwrap_or_else(|| {
            let found = answer();
            let mut shard = locked(shard);
            if shard.len() >= MOST {
                shard.clear();
            }
            shard.insert(key, found);
            found
        })
    }
}

/// A panic while it is locked can only come from allocation; the table is whole between statements.
fn locked<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::text::{parse, parse_rel};
    use proptest::prelude::*;

    const QUESTIONS: [&str; 12] = [
        "mod(i, 8)",
        "floordiv(8*j + i, 8)",
        "mod(4*s + i, s)",
        "i - s",
        "min(i, s)",
        "s*j + i",
        "mod(s, 4)",
        "floordiv(s, 4)*4",
        "max(j, i)",
        "i + j - s",
        "mod(i + 3, 4)",
        "2*s - i - 1",
    ];
    const ASSUMED: [&str; 8] =
        ["i < s", "j < i", "s <= 12", "i == j", "4 <= s", "i + j < s", "mod(s, 4) == 0", "s != 7"];

    /// Changes facts in one way of those that there are; whether they may still hold.
    fn change(facts: &mut Facts, (way, sym, number): (usize, usize, i64)) -> bool {
        let sym = Sym::new(["i", "j", "s"][sym]);
        let rel = parse_rel(ASSUMED[number as usize % ASSUMED.len()]).expect("a relation");
        match way {
            0 => facts.declare(sym, Range::new(number - 4, number + 9), None),
            1 => facts.declare_index(sym, Expr::int(number + 1)),
            2 if sym.name() != "s" => facts.declare_index(sym, Expr::named("s")),
            3 => facts.declare_divisor(sym, number % 5 + 1),
            4 => return facts.assume(rel),
            5 => return facts.require(rel, "test").is_ok(),
            _ if facts.is_symbol_declared(sym) => return facts.assume_value(sym, Expr::int(number)),
            _ => {}
        }
        true
    }

    fn answers(facts: &Facts) -> Vec<(Expr, Known, bool, bool)> {
        let answer = |text: &&str| {
            let e = parse(text).expect("an expression");
            let rel = Rel::le(e, 7);
            (facts.simplify(e), facts.known(&rel), facts.holds(&rel), facts.proves(&rel))
        };
        QUESTIONS.iter().map(answer).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

        /// Facts are asked everything after each step, so that an answer of the step before, or of other facts, would be found for the next.
        #[test]
        fn what_is_remembered_is_what_would_be_answered(
            steps in prop::collection::vec((0usize..7, 0usize..3, 0i64..8), 1..7),
        ) {
            let mut facts = Facts::new();
            for step in steps {
                let is_possible = change(&mut facts, step);
                prop_assert_eq!(answers(&facts), answers(&facts.forgetful()), "after {:?}", step);
                prop_assert_eq!(answers(&facts), answers(&facts.forgetful()), "asked again after {:?}", step);
                if !is_possible {
                    break;
                }
            }
        }
    }

    fn index(facts: &Facts, name: &str, extent: i64) -> Facts {
        let mut facts = facts.clone();
        facts.declare_index(Sym::new(name), Expr::int(extent));
        facts
    }

    #[test]
    fn the_same_steps_lead_to_the_same_state_and_others_to_others() {
        let [one, again] = [0, 0].map(|_| index(&Facts::new(), "i", 8));
        let number = |facts: &Facts| facts.state().0;
        assert_eq!(number(&one), number(&again));
        let (other, longer) = (index(&Facts::new(), "j", 8), index(&Facts::new(), "i", 9));
        let mut numbers =
            [&one, &other, &longer, &index(&one, "j", 8), &index(&other, "i", 8)].map(number).to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(
            numbers.len(),
            5,
            "facts that differ, or were made in another order, have numbers of their own"
        );
    }

    #[test]
    fn full_tables_forget() {
        let table: Table<i64, i64> = Table::default();
        for number in 0..(2 * SHARDS * MOST) as i64 {
            assert_eq!(table.answer(State(1), number, || number + 1), number + 1);
        }
        let entries: usize = table.0.iter().map(|shard| locked(shard).len()).sum();
        assert!(entries <= SHARDS * MOST, "{entries}");
        let last = (2 * SHARDS * MOST - 1) as i64;
        assert_eq!(table.answer(State(1), last, || 0), last + 1, "the last answer is still known");
    }
}
