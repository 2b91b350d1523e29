//! Checks each rule of the verifier of schedules: canonical texts pass, and an edit that breaks one rule is reported under its
//! slug alone.

use std::collections::BTreeSet;
use std::path::Path;

use litz_analysis::legality;
use litz_ir::{Diags, text};

/// The programs that have a schedule among the canonical texts.
const PROGRAMS: [&str; 6] = ["convolution", "product", "rows", "scatter", "softmax", "total"];

/// A canonical text without its comments.
fn canonical(name: &str) -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../litz-ir/tests/text").join(name).with_extension("litz");
    let text = std::fs::read_to_string(path).expect("readable");
    text.lines().filter(|line| !line.starts_with("//")).map(|line| format!("{line}\n")).collect()
}

fn schedule(name: &str) -> String {
    canonical(&format!("schedule_{name}"))
}

/// What is wrong with a schedule of the program that it names.
fn problems(schedule: &str) -> Diags {
    let schedule = match text::schedule::parse(schedule) {
        Ok(schedule) => schedule,
        Err(diags) => return diags,
    };
    let loops = canonical(&format!("loops_{}", schedule.name));
    legality::verify(&schedule, &text::loops::parse(&loops).expect("canonical text parses"))
}

fn slugs(diags: &Diags) -> BTreeSet<&'static str> {
    diags.iter().map(|diag| diag.slug).collect()
}

/// For each (slug, from, to), checks that replacing `from` by `to` in a canonical text breaks exactly that rule.
#[track_caller]
fn breaks(name: &str, rules: &[(&str, &str, &str)]) {
    let text = schedule(name);
    let mut failures = String::new();
    for &(slug, from, to) in rules {
        assert!(text.contains(from), "{name} has no `{from}`");
        let diags = problems(&text.replacen(from, to, 1));
        if slugs(&diags).into_iter().ne([slug]) {
            failures += &format!("expected only `{slug}` from `{from}` => `{to}`\n");
            failures.extend(diags.iter().map(|diag| format!("    {diag}\n")));
        }
    }
    assert!(failures.is_empty(), "{name}\n{failures}");
}

#[test]
fn canonical_schedules_are_proved() {
    for name in PROGRAMS {
        let diags = problems(&schedule(name));
        assert!(diags.is_empty(), "{name}: {}", diags[0]);
    }
}

/// Words of a schedule put elsewhere, left out or doubled: whatever it says, it is accepted or refused.
#[test]
fn no_schedule_makes_the_verifier_panic() {
    let programs = PROGRAMS.map(|name| canonical(&format!("loops_{name}")));
    let programs = programs.map(|loops| text::loops::parse(&loops).expect("canonical text parses"));
    let mut state = 1u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let mut read = 0;
    for round in 0..4000 {
        let text = schedule(PROGRAMS[round % PROGRAMS.len()]);
        let mut words: Vec<&str> = text.split_inclusive([' ', '[', ']', ',', '\n']).collect();
        for _ in 0..1 + below(2) {
            let (from, to) = (below(words.len()), below(words.len()));
            match below(3) {
                0 => drop(words.remove(from)),
                1 => words[to] = words[from],
                _ => words.swap(from, to),
            }
        }
        if let Ok(schedule) = text::schedule::parse(&words.concat()) {
            read += 1;
            programs.iter().for_each(|loops| drop(legality::verify(&schedule, loops)));
        }
    }
    assert!(read > 500, "{read} texts are schedules");
}

#[test]
fn schedule_rules() {
    breaks(
        "product",
        &[
            ("wrong-program", "of @product", "of @other"),
            ("duplicate-name", "kernel k0", "kernel pack"),
            ("duplicate-name", "register h", "register h scratch h"),
            ("duplicate-symbol", "jo in 96 grain", "jo in 96, io in 1 grain"),
            ("undeclared-symbol", "ceildiv(s0, 13), jo", "ceildiv(s1, 13), jo"),
            ("undeclared-symbol", "j = ji + 32*jo", "j = ji + 32*t"),
            ("negative-size", "9437184 { wp at 0 }", "-1 { }"),
            ("zero-grain", "grain 4", "grain 0"),
            ("zero-lanes", "by 16 { pack", "by 0 { pack"),
            ("symbolic-unroll", "ii in 13", "ii in s0"),
            (
                "unknown-nest",
                "n1 [i = ii + 13*io, j = ji + 32*jo] masked",
                "n1 [i = ii + 13*io, j = ji + 32*jo] masked n9",
            ),
            ("unknown-statement", "pool", "extern sort pool"),
            ("unknown-statement", "pool", "extern n1 pool"),
            ("wrong-part", "n1 [", "n1.final ["),
            ("missing-nest", "n1 [i = ii + 13*io, j = ji + 32*jo] masked", ""),
            ("wrong-part", "n1 [", "n1.init [i = ii + 13*io, j = ji + 32*jo] masked n1 ["),
            ("missing-part", "n0.final [i = ii + 13*io, jo = jo, ji = ji] masked", ""),
            ("missing-part", "n0.init [i = ii + 13*io, jo = jo, ji = ji] masked", ""),
            ("missing-accumulator", "register accumulator of n0", ""),
            ("accumulator-scope", "{ n0.init", "{ register accumulator of n0 n0.init"),
            (
                "unknown-nest",
                "register accumulator of n0",
                "register accumulator of n0 register accumulator of n1",
            ),
            ("duplicate-leaf", "n1 [", "n1 [i = ii + 13*io, j = ji + 32*jo] masked n1 ["),
            ("unknown-axis", "ji = ji, k = k] masked", "ji = ji, k = k, z = 0] masked"),
            ("unbound-axis", "n1 [i = ii + 13*io, j = ji + 32*jo] masked", "n1 [i = ii + 13*io]"),
            ("axis-coverage", "ii in 13", "ii in 12"),
            ("axis-coverage", "io in ceildiv(s0, 13)", "io in floordiv(s0, 13) - 1"),
            ("axis-coverage", "n1 [i = ii + 13*io", "n1 [i = ii + 13*io + 1"),
            ("axis-coverage", "n1 [i = ii + 13*io", "n1 [i = 2*ii + 13*io"),
            ("axis-coverage", "j = ji + 32*jo", "j = 32*ji + 32*jo"),
            ("axis-coverage", "for k in 768 {\n        unroll", "for k in 767 {\n        unroll"),
            (
                "unmasked-point",
                "n1 [i = ii + 13*io, j = ji + 32*jo] masked",
                "n1 [i = ii + 13*io, j = ji + 32*jo]",
            ),
            (
                "repeated-leaf",
                "n0.init [i = ii + 13*io, jo = jo, ji = ji] masked",
                "for again in 2 { n0.init [i = ii + 13*io, jo = jo, ji = ji] masked }",
            ),
            ("load-order", "kernel k0 {", "kernel k0 at load {"),
            ("load-order", "pool", "kernel late at load { } pool"),
            ("unknown-buffer", "register h", "register nothing register h"),
            ("unknown-buffer", "wp at 0", "wp at 0, nothing at 0"),
            ("local-escapes", "register h", "register y register h"),
            ("local-escapes", "wp at 0", "wp at 0, x at 0"),
            (
                "local-scope",
                "register h\n      register accumulator of n0",
                "register accumulator of n0 for one in 1 { register h }",
            ),
            ("placed-twice", "wp at 0", "wp at 0, h at 0"),
            ("pool-overflow", "wp at 0", "wp at 4"),
            ("pool-overflow", "wp at 0", "wp at -4"),
            ("pool-memory", "pool weights at load = 9437184", "pool weights at load"),
            ("pool-memory", "pool weights at load = 9437184", "pool x"),
        ],
    );
    breaks(
        "rows",
        &[
            ("placed-twice", "a at 0", "a at 0, b at 0"),
            ("unknown-buffer", "reuse a as b", "reuse nothing as b"),
            ("unknown-buffer", "reuse a as b", "reuse a as nothing"),
            ("reuse-escapes", "reuse a as b", "reuse x as b"),
            ("reuse-escapes", "reuse a as b", "reuse m as b"),
            ("reuse-escapes", "reuse a as b", "reuse a as b reuse c as y"),
            ("reuse-life", "reuse a as b\n  reuse b as c", "reuse a as c"),
        ],
    );
    breaks(
        "scatter",
        &[
            (
                "unordered-store",
                "parallel p in 2 {\n      for i in 4,",
                "parallel p in 2, i in 4 {\n      for",
            ),
            ("unordered-store", "for i in 4, a in 2, b in 3 {", "for a in 2, b in 3, i in 4 {"),
            ("unordered-store", "k = 3*a + b", "k = a + 2*b"),
            ("block-coverage", "into p by 256", "into p by 248"),
            ("undeclared-symbol", "into p by 256", "into p by 256*z"),
            (
                "repeated-leaf",
                "put [i = i, k = 3*a + b, j = j] into p by 256",
                "put [i = i, k = 3*a + b, j = j]",
            ),
        ],
    );
    let elsewhere = schedule("product").replace("wp at 0", "").replace("register h", "scratch wp register h");
    assert_eq!(slugs(&problems(&elsewhere)), BTreeSet::from(["local-escapes"]));
    breaks("softmax", &[("repeated-leaf", "n2.final [i = i]", "for again in 2 { n2.final [i = i] }")]);
    for (line, after) in [
        ("n2.final [i = i]\n", "n3 [i = i, r = r] }\n"),
        ("n0.update [i = i, r = r] }", "n0.final [i = i]\n"),
    ] {
        let whole = if line.starts_with("n0") {
            format!("vector r in s1 by 8 copies 4 {{ {line}")
        } else {
            line.into()
        };
        let reordered = schedule("softmax").replace(&whole, "").replace(after, &format!("{after} {whole}"));
        assert_eq!(slugs(&problems(&reordered)), BTreeSet::from(["statement-order"]), "{reordered}");
    }
}

/// What the verifier says of a schedule of two nests, the first of which stores what the second one loads reversed.
fn reversed(kernel: &str) -> Vec<String> {
    let loops = "loops @l on cpu {
        buf x: f32[8] = input
        buf t: f32[8]
        buf y: f32[8]
        nest a [i in 8] { %0: f32 = load x[i] store t[i] = %0 }
        nest b [i in 8] { %0: f32 = load t[-i + 7] store y[i] = %0 }
        return y }";
    let loops = text::loops::parse(loops).unwrap_or_else(|diags| panic!("{}", diags[0]));
    let schedule = format!("schedule @l of @l for cpu(isa=avx2, threads=2) {{\n{kernel}\n}}");
    let (schedule, positions) =
        text::schedule::parse_with_positions(&schedule).unwrap_or_else(|diags| panic!("{}", diags[0]));
    let diags = legality::verify_text(&schedule, &positions, &loops);
    diags.iter().map(ToString::to_string).collect()
}

#[test]
fn a_dependence_that_is_not_kept_is_named_with_its_place_and_an_example() {
    assert_eq!(reversed("kernel k0 {\n for i in 8 { a [i = i] }\n for i in 8 { b [i = i] }\n}"), [""; 0]);
    assert_eq!(
        reversed("kernel k0 {\n for i in 8 {\n  a [i = i]\n  b [i = i]\n }\n}"),
        [
            "5:3: error[dependence]: `a`: store t[i] and `b`: load t[-i + 7] may touch one element in different iterations \
          of i, such as i = 7 and i = 0"
        ]
    );
}

#[test]
fn problems_are_where_the_text_has_them() {
    let place = |kernel: &str| {
        reversed(kernel).iter().map(|diag| diag.split(" error").next().map(str::to_owned)).collect::<Vec<_>>()
    };
    let [local, loop_, leaf] = ["3:2:", "3:6:", "4:3:"].map(|place| vec![Some(place.to_owned())]);
    let kernel = "kernel k0 {\n for i in 8 {\n  a [i = i] }\n for i in 8 { b [i = i] }\n}";
    assert_eq!(place(kernel), []);
    assert_eq!(place(&format!("{kernel}\nextern c")), vec![Some("7:1:".to_owned())]);
    assert_eq!(place(&kernel.replace("i in 8 {\n", "i in -8 {\n")), loop_);
    assert_eq!(place(&kernel.replace("a [i = i]", "a [i = 2*i] masked")), leaf);
    assert_eq!(place(&kernel.replace("k0 {\n", "k0 {\n register y ")), local);
}
