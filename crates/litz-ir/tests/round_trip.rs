//! The laws of the text forms: canonical text prints as it was read, what is printed reads back equal, and no text
//! makes a parser panic.

mod texts;

use std::sync::Arc;

use litz_ir::graph::{Arg, Device, Float, Form, Graph, Node, OpName, Origin, TensorType, Type};
use litz_ir::{Dtype, text, verify};
use litz_sym::{Clause, Expr, Range, Rel, Sym};
use proptest::prelude::*;
use texts::{Item, text, texts};

#[test]
fn canonical_texts_print_as_they_were_read() {
    for (name, text) in texts() {
        let item = Item::parse(&text).unwrap_or_else(|diags| panic!("{name}: {}", diags[0]));
        assert_eq!(item.to_string(), text, "{name}");
    }
}

#[test]
fn what_is_printed_reads_back_equal() {
    for (name, text) in texts() {
        let (Ok(first), Ok(second)) = (Item::parse(&text), Item::parse(&text)) else { panic!("{name}") };
        let again = Item::parse(&first.to_string()).expect("printed text parses");
        assert!(again.is_same(&second), "{name}");
    }
}

#[test]
fn every_ir_has_a_text() {
    let kinds: std::collections::BTreeSet<_> =
        texts().iter().map(|(name, _)| name.split('_').next().expect("a kind").to_owned()).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["graph", "kernel", "loops", "program", "schedule"]);
}

#[test]
fn examples_in_the_documentation_parse() {
    for (name, source) in [
        ("graph", include_str!("../src/graph.rs")),
        ("loops", include_str!("../src/loops.rs")),
        ("schedule", include_str!("../src/schedule.rs")),
        ("kernel", include_str!("../src/kernel.rs")),
        ("program", include_str!("../src/program.rs")),
    ] {
        let lines = source.lines().skip_while(|line| *line != "//! ```text").skip(1);
        let example: Vec<&str> = lines.take_while(|line| *line != "//! ```").map(|line| &line[4..]).collect();
        assert!(example[0].starts_with(name), "{name}");
        let parsed = Item::parse(&example.join("\n"));
        assert!(
            parsed.is_ok(),
            "{name}: {}",
            parsed.err().into_iter().flatten().map(|d| d.to_string()).collect::<String>()
        );
    }
}

#[test]
fn spelling_does_not_matter() {
    let text = "graph@g on cpu{// comment\n%x:f32[(2+1)*2]{1}=input return %x,1.50}";
    let canonical = "graph @g on cpu {\n  %x: f32[6] = input\n  return %x, 1.5\n}\n";
    assert_eq!(text::graph::parse(text).expect("parses").to_string(), canonical);
}

#[test]
fn numbers_keep_their_kind_and_bits() {
    let values =
        [0.0, -0.0, 1.0, 0.1, 1e-5, 1e16, 5e-324, f64::MAX, f64::MIN, f64::INFINITY, f64::NEG_INFINITY];
    let mut graph = Graph::new("g", Device::Cpu);
    graph.outputs.extend(values.map(|value| Arg::Float(Float(value))));
    graph.outputs.extend([i64::MIN, -1, 0, i64::MAX].map(|value| Arg::Int(Expr::int(value))));
    graph.outputs.push(Arg::Float(Float(f64::NAN)));
    let again = text::graph::parse(&graph.to_string()).expect("printed text parses");
    assert_eq!(again.outputs, graph.outputs);
}

#[test]
fn any_name_survives() {
    for name in
        ["x", "return", "", "a b", "\"", "\\", "%", "@x", "\u{e9}\u{0}\n", "n0.body", "1", "//", "true", "-"]
    {
        let mut graph = Graph::new(name, Device::Cpu);
        let value = graph.value(name, Type::Tensor(TensorType::contiguous(Dtype::F32, vec![])));
        graph.consts.push((value, name.into()));
        graph.nodes.push(Node {
            op: OpName::new(name),
            form: Form::Plain,
            args: vec![Arg::Str(name.into()), Arg::Graph(name.into()), Arg::Value(value)],
            outputs: vec![None],
            origin: Some(Arc::new(Origin {
                line: Some(name.into()),
                module: Some(name.into()),
                name: Some(name.into()),
                stack: vec![name.into(), name.into()],
            })),
        });
        let again =
            text::graph::parse(&graph.to_string()).unwrap_or_else(|diags| panic!("{name:?}: {}", diags[0]));
        assert_eq!(
            (&again.name, &again.consts, &again.nodes),
            (&graph.name, &graph.consts, &graph.nodes),
            "{name:?}"
        );
        let schedule = text("schedule_softmax").replace("n2", &format!("{:?}", name.replace('\0', "")));
        let schedule = schedule.replace("\\u{e9}", "\u{e9}");
        let parsed =
            text::schedule::parse(&schedule).unwrap_or_else(|diags| panic!("{schedule}: {}", diags[0]));
        let again = text::schedule::parse(&parsed.to_string())
            .unwrap_or_else(|diags| panic!("{name:?}: {}", diags[0]));
        assert_eq!(again, parsed, "{name:?}");
    }
}

#[test]
fn facts_survive() {
    let mut graph = Graph::new("g", Device::Cpu);
    let (s0, s1) = (Sym::new("s0"), Sym::new("s1"));
    graph.facts.declare(s0, Range::new(0, 1024), Some(16));
    graph.facts.declare(s1, Range::ALL, None);
    graph.facts.declare_divisor(s0, 8);
    let (a, b) = (Expr::sym(s0), Expr::sym(s1));
    graph.facts.require(Rel::le(a, 64), "view").expect("can hold");
    graph.facts.require(Rel::eq(b, a * 2), "add").expect("can hold");
    let either = Clause::new([Rel::eq(a, 8), Rel::eq(a.modulo(3), 1)]);
    graph.facts.require(either, "mul").expect("can hold");
    let again = text::graph::parse(&graph.to_string()).expect("printed text parses").facts;
    assert_eq!(again.range_of(s0), Range::new(0, 64));
    assert_eq!((again.hint_of(s0), again.divisor_of(s0)), (Some(16), 8));
    assert_eq!(again.guards(), graph.facts.guards());
    assert_eq!(again.simplify(b), a * 2);
}

#[test]
fn errors_say_where() {
    for (text, at, slug) in [
        ("graph @g on tpu {", (1, 13), "syntax"),
        ("graph @g on cpu {\n  %x: f32[2] = aten.neg.default(%y)\n", (2, 33), "undefined-value"),
        ("graph @g on cpu {\n  %x: f32[2] = aten.neg.default(%x)\n", (2, 33), "undefined-value"),
        ("graph @g on cpu {\n  sym s in [1, 99999999999999999999]\n", (2, 16), "number-range"),
        ("graph @g on cpu {\n  sym s in [1, 2]\n  guard s == 3 for \"me\"\n", (3, 3), "contradiction"),
        ("graph @g on cpu {\n  %x: f32[1.5] = input\n", (2, 11), "syntax"),
        ("graph @g on cpu {\n  %x: f32[2 +] = input\n", (2, 14), "syntax"),
        ("graph @g on cpu {\n  %x: f32[2] on = input\n", (2, 17), "syntax"),
        ("graph @g on cpu {\n  %x: f32[2] on cuda = input\n", (2, 22), "syntax"),
        ("graph @g on cpu {\n  %n: int(2) on cpu = input\n", (2, 14), "syntax"),
        ("graph @g on cpu {\n  return \"\\q\"\n}", (2, 10), "syntax"),
        ("graph @g on cpu {\n  return 3 - inf\n}", (3, 1), "symbol-name"),
        ("graph @g on cpu {\n  return 3 + %x\n}", (3, 1), "symbol-name"),
        ("graph @g on cpu {\n  return\n} }", (3, 3), "syntax"),
        ("loops @g on cpu {\n  nest n [] {\n    store x[0] = %0\n", (3, 11), "undefined-buffer"),
        ("loops @g on cpu {\n  buf x: f32[2] on host = input\n", (2, 20), "syntax"),
        ("kernel @k {\n  read x: f32[2] on cuda:0\n", (2, 18), "undefined-memory"),
        ("kernel @k {\n  x[0] = %0\n", (2, 3), "undefined-memory"),
        ("program @p on cpu {\n  free x\n", (2, 8), "undefined-slot"),
        ("program @p on cpu {\n  alloc x: u8[4] on cuda:-1\n", (2, 26), "number-range"),
        ("schedule @s of @s for {", (1, 23), "syntax"),
        ("schedule @s of @s\nfor cpu(isa=avx3, threads=2) {}", (2, 5), "target-syntax"),
        ("schedule @s of @s for any {}", (1, 23), "target-syntax"),
    ] {
        let Err(diags) = Item::parse(text) else { panic!("{text}") };
        assert_eq!((diags[0].at, diags[0].slug), (Some(at), slug), "{text}: {}", diags[0]);
    }
}

#[test]
fn deep_nesting_is_refused() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    for text in [
        format!("graph @g on cpu {{ return {} }}", deep("[", "]")),
        deep("graph @g on cpu { ", "return }"),
        format!(
            "schedule @s of @s for cpu(isa=avx2, threads=2) {{ kernel k {{ {} }} }}",
            deep("for i in 2 { ", "}")
        ),
        format!("kernel @k {{ {} }}", deep("for i in 2 { ", "}")),
        format!("kernel @k {{ {} }}", deep("if true { ", "}")),
        format!("graph @g on cpu {{ return {} }}", deep("(", ")")),
        format!("graph @g on cpu {{ return {} }}", "-".repeat(100_000)),
    ] {
        let Err(diags) = Item::parse(&text) else { panic!("{}", &text[..60]) };
        assert_eq!(diags[0].slug, "syntax", "{}", diags[0]);
    }
}

/// Verifies what parses, prints it and reads it again.
fn exercise(text: &str) -> Result<(), TestCaseError> {
    let Ok(item) = Item::parse(text) else { return Ok(()) };
    match &item {
        Item::Graph(graph) => drop(verify::graph::verify(graph)),
        Item::Loops(loops) => drop(verify::loops::verify(loops)),
        Item::Kernel(kernel) => drop(verify::kernel::verify(kernel)),
        Item::Program(program) => drop(verify::program::verify(program)),
        // What a schedule says is checked against loops, by litz-analysis.
        Item::Schedule(_) => {}
    }
    let printed = item.to_string();
    let again = Item::parse(&printed);
    prop_assert!(again.is_ok(), "{printed}");
    prop_assert_eq!(again.map(|item| item.to_string()).unwrap_or_default(), printed);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_a_parser_panic(text in "(graph|loops|schedule|kernel|program)?( |@[a-z]|\\PC|[%\"{}\\[\\]=,:0-9.e-]|if|in|\n){0,40}") {
        exercise(&text)?;
    }

    #[test]
    fn mutated_texts_neither_panic_nor_print_wrongly(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..4), 1..4),
    ) {
        let texts = texts();
        let (_, text) = which.get(&texts);
        let mut words = split(text);
        for (at, other, how) in edits {
            let (at, other) = (at.index(words.len()), other.index(words.len()));
            let word = words[other].clone();
            match how {
                0 => words[at] = word,
                1 => words.insert(at, word),
                2 => drop(words.remove(at)),
                _ => words.swap(at, other),
            }
            if words.is_empty() {
                break;
            }
        }
        exercise(&words.concat())?;
    }

    #[test]
    fn mutated_bytes_do_not_panic(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let texts = texts();
        let mut bytes = which.get(&texts).1.clone().into_bytes();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        exercise(&String::from_utf8_lossy(&bytes))?;
    }
}

/// Runs of letters and digits, and all else character by character.
fn split(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut in_word = false;
    for c in text.chars() {
        match words.last_mut() {
            Some(word) if in_word && c.is_alphanumeric() => word.push(c),
            _ => words.push(c.to_string()),
        }
        in_word = c.is_alphanumeric();
    }
    words
}
