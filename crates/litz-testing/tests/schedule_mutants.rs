//! Changed schedules are refused, or give what a plain walk of the loops gives: on the reference device and as machine code.
//!
//! `LITZ_TEST_SAMPLE=100000` tries so many, and `LITZ_TEST_SEED` repeats a run. Every sixth is one for a GPU; `LITZ_TEST_THREADED=1`: each.

#![allow(missing_docs, reason = "a test")]

#[path = "schedule_mutants/judge.rs"]
mod judge;
#[path = "schedules/programs.rs"]
mod programs;
#[path = "schedules/random.rs"]
mod random;
#[path = "schedule_mutants/shrink.rs"]
mod shrink;
#[path = "schedule_mutants/subject.rs"]
mod subject;

use judge::{Judge, Outcome};
use litz_ir::schedule::Schedule;
use litz_testing::choices::{self, Choices};
use litz_testing::mutation::KINDS;
use litz_testing::subject::Subject;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// Mutants of a run; `LITZ_TEST_SAMPLE` says another number.
const SAMPLE: u64 = 500;

/// Bytes that decide on a mutant.
const BYTES: usize = 336;

/// Every so many-th is one for a GPU; `LITZ_TEST_THREADED` says another number, of at most 256.
const THREADED: usize = 6;

/// Of mutants every so many-th has several changes.
const SEVERAL: usize = 5;

/// Different things that are wrong, at most, before a run ends.
const MOST_FINDINGS: usize = 12;

/// Mutants between two lines that say how many there were.
const PROGRESS: u64 = 1000;

/// Mutants of a kind whose shares of legal and refused ones are looked at: each is one in fifty at least.
const ENOUGH: u64 = 500;

/// The kind of change that the language of schedules has no legal one of: a nest stands in it once.
const NEVER_LEGAL: &str = "duplicate-leaf";

/// What is changed.
struct Bases {
    /// Programs that the scheduler has schedules for.
    kernels: Vec<Subject>,
    /// Programs with schedules for the threads of a GPU.
    threaded: Vec<(Subject, Schedule)>,
    /// Every so many-th mutant is one for a GPU.
    every: usize,
}

/// A changed schedule.
pub struct Mutant<'k> {
    pub subject: std::borrow::Cow<'k, Subject>,
    pub kind: &'static str,
    pub schedule: Schedule,
}

/// The mutant that bytes decide on. None where there is nothing to change in the way that they say.
fn mutant<'k>(bases: &'k Bases, bytes: &[u8]) -> Option<Mutant<'k>> {
    let Bases { kernels, threaded, every } = bases;
    let (head, rest) = bytes.split_at(64);
    let (program, decisions) = rest.split_at(96);
    let mut head = Choices::new(head);
    let is_threaded = head.once_in(*every);
    let (subject, mut schedule) = if is_threaded && !head.once_in(2) {
        let (subject, given) = threaded.get(head.below(256) % threaded.len().max(1))?;
        (std::borrow::Cow::Borrowed(subject), given.clone())
    } else {
        let is_random = kernels.is_empty() || head.below(2) == 0;
        let subject = if is_random {
            std::borrow::Cow::Owned(subject::random(&mut Choices::new(program)))
        } else {
            std::borrow::Cow::Borrowed(&kernels[(head.below(256) * 256 + head.below(256)) % kernels.len()])
        };
        let schedule = match is_threaded {
            true => subject::of_threads(&subject, &mut head),
            false => {
                let is_random = is_random && head.below(3) < 2;
                subject::schedule(&subject, is_random, &mut head, &mut Choices::new(decisions))
            }
        };
        (subject, schedule)
    };
    let first = head.below(KINDS.len());
    let several = head.once_in(SEVERAL);
    let mut kind = KINDS[first];
    schedule = kind.of(&schedule, &subject.loops, &mut head)?;
    let mut name = kind.name;
    if several {
        for _ in 0..1 + head.below(2) {
            kind = KINDS[head.below(KINDS.len())];
            schedule = kind.of(&schedule, &subject.loops, &mut head)?;
        }
        name = "several";
    }
    Some(Mutant { subject, kind: name, schedule })
}

/// What became of the mutants of a kind.
#[derive(Default)]
struct Counts {
    right: u64,
    unsupported: u64,
    refused: u64,
    /// Of those refused, how many gave right results when they ran all the same, and how many could.
    right_unchecked: u64,
    unchecked: u64,
    wrong: u64,
}

#[test]
fn changed_schedules_are_refused_or_right() {
    let given = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seed = given("LITZ_TEST_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let sample = given("LITZ_TEST_SAMPLE").unwrap_or(SAMPLE);
    let every = given("LITZ_TEST_THREADED").map_or(THREADED, |every| every.clamp(1, 256) as usize);
    let bases = Bases { kernels: subject::kernels(), threaded: subject::threaded(), every };
    let judge = Judge::new();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
    let (mut refusals, mut unsupported): (BTreeMap<String, u64>, BTreeMap<String, u64>) = Default::default();
    let (mut tried, mut number) = (0, 0u64);
    // By what is wrong, but for names and numbers: the first mutant, and how many there are.
    let mut findings: BTreeMap<String, (u64, Vec<u8>, u64)> = BTreeMap::new();
    while tried < sample && number < 20 * sample && findings.len() < MOST_FINDINGS {
        let bytes = choices::bytes(seed.wrapping_mul(0x1_0000_0001).wrapping_add(number), BYTES);
        number += 1;
        let Some(Mutant { subject, kind, schedule }) = mutant(&bases, &bytes) else { continue };
        tried += 1;
        if tried % PROGRESS == 0 {
            println!("{tried} tried, {} wrong", findings.len());
        }
        let of_kind = counts.entry(kind).or_default();
        match judge.outcome(&subject, &schedule) {
            Outcome::Refused { slug, unchecked } => {
                *refusals.entry(slug).or_default() += 1;
                of_kind.refused += 1;
                of_kind.unchecked += u64::from(unchecked.is_some());
                of_kind.right_unchecked += u64::from(unchecked == Some(true));
            }
            Outcome::Right => of_kind.right += 1,
            Outcome::Unsupported(message) => {
                of_kind.unsupported += 1;
                *unsupported.entry(message).or_default() += 1;
            }
            Outcome::Wrong(why) => {
                of_kind.wrong += 1;
                findings.entry(judge::general(&why)).or_insert((number - 1, bytes, 0)).2 += 1;
            }
        }
    }
    let findings: Vec<String> = findings
        .into_values()
        .map(|(number, bytes, times)| {
            let small = shrink::bytes(&bytes, &|bytes| {
                mutant(&bases, bytes).is_some_and(|it| judge.is_wrong(&it.subject, &it.schedule))
            });
            let Mutant { subject, kind, schedule } = mutant(&bases, &small).expect("it was there");
            let schedule = shrink::schedule(&schedule, &|schedule| judge.is_wrong(&subject, schedule));
            let Outcome::Wrong(why) = judge.outcome(&subject, &schedule) else {
                unreachable!("it was wrong")
            };
            format!(
                "mutant {number}, {kind}, {}; {times} alike\n{why}\n{}{schedule}",
                subject.name, subject.loops
            )
        })
        .collect();
    std::panic::set_hook(hook);
    println!("{tried} mutants of LITZ_TEST_SEED={seed}");
    println!(
        "{:20} {:>7} {:>12} {:>8} {:>6}  refused ones that ran: right",
        "kind", "right", "unsupported", "refused", "wrong"
    );
    for (kind, of) in &counts {
        let Counts { right, unsupported, refused, right_unchecked, unchecked, wrong } = of;
        println!(
            "{kind:20} {right:7} {unsupported:12} {refused:8} {wrong:6}  {right_unchecked} of {unchecked}"
        );
    }
    println!("refused for: {refusals:?}");
    unsupported.iter().for_each(|(message, times)| println!("{times:6} {message}"));
    // Of few mutants of a kind shares say nothing.
    let one_sided = counts.iter().filter(|(kind, of)| {
        let (accepted, all) =
            (of.right + of.unsupported + of.wrong, of.refused + of.right + of.unsupported + of.wrong);
        all >= ENOUGH && (50 * accepted < all && **kind != NEVER_LEGAL || 50 * of.refused < all)
    });
    for (kind, _) in one_sided {
        println!("{kind}: less than 2 % are accepted, or refused");
    }
    assert!(findings.is_empty(), "of LITZ_TEST_SEED={seed}\n{}", findings.join("\n\n"));
}

/// As a mutant, the schedule in the file that `LITZ_TEST_FILE` names, behind its program and a line `//---`.
#[test]
fn a_given_schedule_is_refused_or_right() {
    let Ok(path) = std::env::var("LITZ_TEST_FILE") else { return };
    for sizes in subject::SIZES {
        let (subject, schedule) = subject::given(path.as_ref(), &sizes);
        match Judge::new().outcome(&subject, &schedule) {
            Outcome::Refused { slug, unchecked } => println!("refused: {slug}; right: {unchecked:?}"),
            Outcome::Right => println!("right"),
            Outcome::Unsupported(why) => println!("unsupported: {why}"),
            Outcome::Wrong(why) => panic!("wrong: {why}"),
        }
    }
}
