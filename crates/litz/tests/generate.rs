//! Tests that a language model goes on with a text as PyTorch does, in one compilation, with its state in place.

use litz::generate::{Generator, Sampling, Vocabulary};
use litz::{Compiled, Model, Options, tensors};
use std::path::{Path, PathBuf};
use std::process::Command;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn options() -> Options {
    Options { threads: 2, cache: None, ..Options::default() }
}

fn numbers(expected: &tensors::Named, name: &str) -> Vec<i64> {
    expected[name].to_vec().unwrap_or_else(|| panic!("`{name}` is of i64"))
}

/// The prompt, and what the model goes on with.
fn generated(
    model: &Model,
    compiled: &Compiled,
    sampling: Sampling,
    prompt: &[i64],
    count: usize,
) -> Vec<i64> {
    let mut generator = Generator::new(model, compiled, &sampling).expect("it is a step of a language model");
    let mut next = None;
    for &token in prompt {
        next = Some(generator.next(token).expect("it runs"));
    }
    let mut found = vec![next.expect("a prompt")];
    while found.len() < count {
        found.push(generator.next(found[found.len() - 1]).expect("it runs"));
    }
    found
}

#[test]
fn texts_are_those_that_pytorch_generates() {
    let expected = tensors::read(&example("text.safetensors")).expect("a file");
    let model = Model::open(example("text.pt2")).expect("a model");
    let prompt = numbers(&expected, "prompt");
    let vocabulary = Vocabulary::of(&model).expect("a description").expect("a vocabulary");
    let text: String = prompt.iter().map(|&token| vocabulary.text(token)).collect();
    assert_eq!(vocabulary.encode(&text).as_ref(), Ok(&prompt));

    for reference in [false, true] {
        let compiled = model.compile(&Options { reference, ..options() }).expect("it compiles");
        for (name, temperature) in [("likeliest", 0.0), ("drawn", 0.8)] {
            let tokens = numbers(&expected, name);
            // The reference device is slow.
            let count = if reference { 4 } else { tokens.len() };
            let sampling = Sampling { temperature: Some(temperature), seed: Some(7) };
            let found = generated(&model, &compiled, sampling, &prompt, count);
            assert_eq!(found, tokens[..count], "{name}");
        }
    }
}

#[test]
fn a_token_stores_one_row_of_each_cache() {
    let model = Model::open(example("text.pt2")).expect("a model");
    let compiled = model.compile(&options()).expect("it compiles");
    let after = |count: usize| {
        generated(&model, &compiled, Sampling::default(), &[1, 2, 3], count);
        compiled.statistics()
    };
    let (few, many) = (after(2), after(200));
    assert_eq!(model.compilations(), 1);
    assert_eq!((few.plans, few.peak_bytes), (many.plans, many.peak_bytes), "memory is flat");
    // Caches have 256 positions of 32 numbers each: a copy of one alone is as large.
    assert!(many.peak_bytes < 256 * 32 * 4, "{} bytes", many.peak_bytes);
}

#[test]
fn other_models_are_refused_by_what_they_take() {
    let model = Model::open(example("digits.pt2")).expect("a model");
    let compiled = model.compile(&options()).expect("it compiles");
    let error = Generator::new(&model, &compiled, &Sampling::default()).err().expect("it takes images");
    assert!(error.to_string().contains("expected a model that takes a token and its position"), "{error}");
}

#[test]
fn the_command_prints_the_text_and_names_what_is_wrong() {
    let litz = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        command.args(["generate", "text.pt2"]).args(args).env("LITZ_CACHE_DIR", "");
        command.current_dir(example("")).output().expect("litz starts")
    };
    let expected = tensors::read(&example("text.safetensors")).expect("a file");
    let model = Model::open(example("text.pt2")).expect("a model");
    let vocabulary = Vocabulary::of(&model).expect("a description").expect("a vocabulary");
    let text = |name: &str| -> String {
        numbers(&expected, name).iter().map(|&token| vocabulary.text(token)).collect()
    };
    let (prompt, count) = (text("prompt"), numbers(&expected, "likeliest").len().to_string());
    let output = litz(&["--prompt", &prompt, "--temperature", "0", "--tokens", &count]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{prompt}{}\n", text("likeliest")), "{said}");
    assert!(said.contains("(1 compilation)"), "{said}");

    for (args, expected) in [
        (["--prompt", "\u{e9}", "--tokens", "1"], "no token for `\u{e9}`"),
        (["--prompt", "", "--tokens", "1"], "expected at least one token"),
        (["--prompt", "a", "--tokens", "257"], "expected at most 256, found 257"),
    ] {
        let output = litz(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains(expected), "{args:?}: {said}");
    }
}
