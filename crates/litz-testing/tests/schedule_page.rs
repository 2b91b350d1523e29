//! Checks `docs/schedule.md`: it has a section for each word of the parser, each section an example with the words of its title, and each
//! example is proved and gives what its loops give.

#![allow(missing_docs, reason = "a test")]

use litz::Device;
use litz_analysis::legality;
use litz_ir::schedule::{LocalSpace, Part};
use litz_ir::target::Level;
use litz_ir::{Dtype, text, verify};
use litz_runtime::program::{Executable, RunOptions};
use litz_runtime::reference::DistantDevice;
use litz_sym::Sym;
use litz_testing::choices::Random;
use litz_testing::compare;
use litz_testing::subject::Subject;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

const PAGE: &str = include_str!("../../../docs/schedule.md");
const PARSER: &str = include_str!("../../litz-ir/src/text/schedule.rs");
const CURSOR: &str = include_str!("../../litz-ir/src/text/cursor.rs");

/// Sizes that the examples run with: less than a tile, a tile and a part of the next one, many.
const SIZES: [i64; 4] = [1, 3, 37, 150];

/// A section: the words of its title between backquotes, and its examples.
struct Section<'p> {
    title: &'p str,
    words: BTreeSet<&'p str>,
    examples: Vec<&'p str>,
}

fn sections() -> Vec<Section<'static>> {
    let sections = PAGE.split("\n## ").skip(1).map(|section| {
        let (title, body) = section.split_once('\n').expect("a title is a line");
        let words = title.split('`').skip(1).step_by(2).flat_map(words).collect();
        let blocks = body.split("```litz\n").skip(1);
        let examples = blocks.map(|block| block.split_once("```").expect("a block has an end").0).collect();
        Section { title, words, examples }
    });
    sections.collect()
}

/// Words in small letters.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase()))
}

/// What stands between quotes and is one word in small letters: what the code of a parser compares with.
fn quoted(code: &str) -> impl Iterator<Item = &str> {
    let quoted = code.split('"').skip(1).step_by(2);
    quoted.filter(|text| words(text).next() == Some(text))
}

/// The words that the parser knows, by its code and that of the methods of the cursor that it calls.
fn words_of_parser() -> BTreeSet<&'static str> {
    let at = PARSER.find("\nfn schedule(").expect("the parser begins there");
    let parser = &PARSER[at..];
    let calls = parser.split("cx.").skip(1).filter_map(|call| call.split(['(', ':']).next());
    let methods: BTreeSet<&str> =
        calls.chain(parser.split("Cursor::").skip(1).filter_map(|call| words(call).next())).collect();
    let bodies = methods.into_iter().filter_map(|method| {
        let at = CURSOR
            .find(&format!("pub fn {method}("))
            .or_else(|| CURSOR.find(&format!("pub fn {method}<")))?;
        CURSOR[at..].split_once("\n    }\n").map(|(body, _)| body)
    });
    let mut found: BTreeSet<&str> = quoted(parser).chain(bodies.flat_map(quoted)).collect();
    // That is what an error is called.
    assert!(found.remove("syntax"));
    found.extend(Level::LOOPS.map(Level::name));
    found.extend(LocalSpace::ALL.map(LocalSpace::name));
    found.extend(Part::ALL.into_iter().filter_map(Part::name));
    found
}

#[test]
fn each_word_of_the_parser_has_a_section() {
    let known = words_of_parser();
    for word in ["persistent", "copies", "from", "swizzled", "box", "lane", "cluster", "merge"] {
        assert!(known.contains(word), "the words of the parser are looked for in the wrong places: {word}");
    }
    let titled: BTreeSet<&str> = sections().into_iter().flat_map(|section| section.words).collect();
    let missing: Vec<&&str> = known.iter().filter(|word| !titled.contains(**word)).collect();
    assert!(missing.is_empty(), "docs/schedule.md has no section for {missing:?}");
    let unknown: Vec<&&str> = titled.iter().filter(|word| !known.contains(**word)).collect();
    assert!(unknown.is_empty(), "docs/schedule.md has sections for {unknown:?}, which no schedule says");
}

#[test]
fn each_section_has_examples_of_its_words() {
    for Section { title, words: titled, examples } in sections() {
        let said: BTreeSet<&str> = examples.iter().flat_map(|example| words(example)).collect();
        let missing: Vec<&&str> = titled.iter().filter(|word| !said.contains(**word)).collect();
        assert!(missing.is_empty(), "{title}: no example says {missing:?}");
    }
}

#[test]
fn each_example_gives_what_its_loops_give() {
    let sections = sections();
    let is_program = |text: &&&str| text.starts_with("loops");
    let examples: Vec<&str> = sections.iter().flat_map(|section| section.examples.iter().copied()).collect();
    let programs =
        examples.iter().filter(is_program).map(|text| (words(text).nth(1).expect("a name"), *text));
    let programs: HashMap<&str, &str> = programs.collect();
    let mut used = BTreeSet::new();
    for example in examples.iter().filter(|text| !is_program(text)) {
        let schedule = whole(example);
        let parsed =
            text::schedule::parse(&schedule).unwrap_or_else(|diags| panic!("{}\n{schedule}", diags[0]));
        let program = programs.get(&*parsed.of).unwrap_or_else(|| panic!("no program @{}", parsed.of));
        used.insert(parsed.of.clone());
        for size in SIZES {
            let subject = subject(&parsed.of, program, size);
            if let Some(diag) = legality::verify(&parsed, &subject.loops).first() {
                panic!("{diag}\n{schedule}");
            }
            run(&subject, &parsed).unwrap_or_else(|why| panic!("{size}: {why}\n{schedule}"));
        }
    }
    assert!(programs.keys().all(|name| used.contains(*name)), "examples of {used:?}, of {programs:?}");
}

/// The schedule that an example stands for: the body of a kernel begins with the program's name and the instruction set.
fn whole(example: &str) -> String {
    let Some(rest) = example.strip_prefix("// @") else { return example.to_owned() };
    let (head, body) = rest.split_once('\n').expect("a body follows");
    let (program, isa) = head.split_once(", ").expect("a program and an instruction set");
    let target = match isa.starts_with("sm") {
        true => format!("gpu(isa={isa}, units=132)"),
        false => format!("cpu(isa={isa}, threads=2)"),
    };
    let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
    format!("schedule @s of @{program} for {target} {{\n  kernel k0 {{\n{body}  }}\n}}\n")
}

fn subject(name: &str, program: &str, size: i64) -> Subject {
    let symbols = program.lines().filter_map(|line| line.strip_prefix("  sym ")?.split(' ').next());
    let sizes = symbols.map(|symbol| (Sym::new(symbol), size)).collect();
    let element = |dtype: Dtype, random: &mut Random| match dtype.is_float() {
        true => random.below(33) as f64 / 8.0 - 2.0,
        false => random.below(8) as f64,
    };
    Subject::new(name, program, &sizes, &element, false).unwrap_or_else(|why| panic!("{why}"))
}

/// Runs kernels and program, which verify, on a device that shares no memory with the host.
fn run(subject: &Subject, schedule: &litz_ir::schedule::Schedule) -> Result<(), String> {
    let first = |diags: litz_ir::Diags| diags.first().map_or(Ok(()), |diag| Err(diag.to_string()));
    let realized = litz_codegen::realize(&subject.loops, schedule).map_err(|diags| diags[0].to_string())?;
    realized.kernels.iter().try_for_each(|kernel| first(verify::kernel::verify(kernel)))?;
    first(verify::program::verify(&realized.program))?;
    let device: Device = Arc::new(DistantDevice::new(&realized.kernels).map_err(|error| error.to_string())?);
    let (program, kernels) = (&realized.program, &realized.kernels);
    let executable =
        Executable::with_options(program, kernels, device, &subject.weights, &RunOptions::default());
    let outputs =
        executable.and_then(|executable| executable.run(&subject.inputs)).map_err(|e| e.to_string())?;
    compare::results(&outputs, &subject.expected).map(drop)
}
