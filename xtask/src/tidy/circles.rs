//! Finds circles among modules that lie side by side: each of them can only be understood with all others.
//!
//! A module uses another one where a path in its files, or in those of its submodules, leads into it. Modules use those that they are in, and
//! these use them, as a whole and its parts do; what counts is between the parts of one whole.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Circles that are right: the crate, the module whose parts they are among, one of the parts, and why.
const RIGHT: &[(&str, &str, &str, &str)] = &[
    (
        "litz-ops",
        "",
        "table",
        "families of operators are entries of the table, and write operators with others",
    ),
    ("litz-ir", "", "text", "types are written as their texts say, and texts are of types"),
    ("litz-sym", "", "facts", "what is known of a symbol is proved by what is known of others"),
    (
        "litz-runtime",
        "program",
        "function",
        "functions run in a context, and what runs there calls functions",
    ),
    ("litz-import", "", "hops", "bodies have operators with bodies of their own"),
];

/// A path of modules in a crate, outermost first.
type Module = Vec<String>;

/// A problem for each circle. `files` are Rust files by name, of all crates.
pub fn problems(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &str>> = BTreeMap::new();
    for (name, text) in files {
        if let Some((of, module)) = module_of(name) {
            crates.entry(of).or_default().insert(module, text);
        }
    }
    let mut problems = Vec::new();
    for (name, modules) in &crates {
        for (parent, circle) in circles(modules) {
            let within = parent.join("::");
            let is_right = RIGHT
                .iter()
                .any(|(of, whole, part, _)| (of, *whole) == (name, &*within) && circle.contains(*part));
            if !is_right {
                let within = [&["crate".to_string()], &parent[..]].concat().join("::");
                let parts: Vec<&str> = circle.iter().map(String::as_str).collect();
                problems.push(format!(
                    "{name}: parts of {within} use each other in a circle: {}; put what they share below them",
                    parts.join(", ")
                ));
            }
        }
    }
    problems
}

/// The crate and the module that a file defines, if it is one of a library or a program.
fn module_of(name: &str) -> Option<(&str, Module)> {
    let (of, path) = name.split_once("/src/")?;
    let mut module: Module = path.strip_suffix(".rs")?.split('/').map(str::to_string).collect();
    let last = module.pop()?;
    if !matches!(&*last, "lib" | "main" | "mod") {
        module.push(last);
    }
    Some((of.rsplit('/').next().unwrap_or(of), module))
}

/// For each module with parts that use each other in a circle, these parts.
fn circles(modules: &BTreeMap<Module, &str>) -> Vec<(Module, BTreeSet<String>)> {
    let mut uses: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, text) in modules {
        let Ok(tokens) = TokenStream::from_str(text) else { continue };
        let mut paths = Vec::new();
        collect(tokens, module, &mut paths);
        for mut path in paths {
            while !modules.contains_key(&path) && path.pop().is_some() {}
            let common = module.iter().zip(&path).take_while(|(a, b)| a == b).count();
            if let (Some(own), Some(other)) = (module.get(common), path.get(common)) {
                let within = uses.entry(module[..common].to_vec()).or_default();
                within.entry(own.clone()).or_default().insert(other.clone());
            }
        }
    }
    let mut circles = Vec::new();
    for (parent, uses) in uses {
        let reached: BTreeMap<&String, BTreeSet<&String>> =
            uses.keys().map(|part| (part, reach(part, &uses))).collect();
        let mut left: BTreeSet<&String> = uses.keys().collect();
        while let Some(part) = left.pop_first() {
            let is_mate = |other: &&&String| {
                reached[part].contains(**other) && reached.get(**other).is_some_and(|r| r.contains(part))
            };
            let circle: BTreeSet<String> =
                reached[part].iter().filter(is_mate).map(|s| (**s).clone()).collect();
            left.retain(|other| !circle.contains(*other));
            if circle.len() > 1 {
                circles.push((parent.clone(), circle));
            }
        }
    }
    circles
}

/// The parts that one uses, or that those use.
fn reach<'a>(part: &'a String, uses: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![part]);
    while let Some(part) = next.pop() {
        for other in uses.get(part).into_iter().flatten() {
            if reached.insert(other) {
                next.push(other);
            }
        }
    }
    reached
}

/// Adds the paths from the crate on that tokens of a module mention, tests left out.
fn collect(tokens: TokenStream, module: &[String], paths: &mut Vec<Module>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) if is_test(group.stream()) && is_attribute(&tokens, at) => {
                // What it is an attribute of ends with its body or with a semicolon.
                let is_end = |token: &TokenTree| match token {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    TokenTree::Punct(punct) => punct.as_char() == ';',
                    TokenTree::Ident(_) | TokenTree::Literal(_) => false,
                };
                at += tokens[at..].iter().position(is_end).unwrap_or(tokens.len());
            }
            TokenTree::Group(group) => collect(group.stream(), module, paths),
            TokenTree::Ident(word) if !is_behind_colons(&tokens, at) => {
                let word = word.to_string();
                if let (true, Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (word == "mod", tokens.get(at + 1), tokens.get(at + 2))
                {
                    let inner = [module, &[name.to_string()]].concat();
                    collect(body.stream(), &inner, paths);
                    at += 2;
                } else if matches!(&*word, "crate" | "super" | "self") {
                    let start = if word == "crate" { Vec::new() } else { module.to_vec() };
                    branches(&tokens, at, start, paths);
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        at += 1;
    }
}

fn is_test(attribute: TokenStream) -> bool {
    attribute.to_string().replace(' ', "").starts_with("cfg(test)")
}

fn is_attribute(tokens: &[TokenTree], at: usize) -> bool {
    at > 0 && matches!(&tokens[at - 1], TokenTree::Punct(punct) if punct.as_char() == '#')
}

fn is_behind_colons(tokens: &[TokenTree], at: usize) -> bool {
    at > 0
        && matches!(&tokens[at - 1], TokenTree::Punct(punct) if punct.as_char() == ':')
        && at > 1
        && matches!(&tokens[at - 2], TokenTree::Punct(punct) if punct.as_char() == ':')
}

/// Adds the paths that begin with the word at `at`, all branches of `a::{b, c::d}`. `path` is what is before it.
fn branches(tokens: &[TokenTree], mut at: usize, mut path: Module, paths: &mut Vec<Module>) {
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(word)) => match &*word.to_string() {
                "super" => drop(path.pop()),
                "crate" | "self" => {}
                name => path.push(name.to_string()),
            },
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ',');
                for branch in inner.split(is_comma) {
                    branches(branch, 0, path.clone(), paths);
                }
                return;
            }
            Some(_) | None => break,
        }
        let is_colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
        if !is_colon(at + 1) || !is_colon(at + 2) {
            break;
        }
        at += 3;
    }
    paths.push(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(name, text)| (name.to_string(), text.to_string()));
        problems(&files.collect())
    }

    #[test]
    fn parts_that_use_each_other_are_a_circle() {
        let a = "//! A.\nuse super::{Top, b::{self, B}};\n";
        let circle = found(&[
            ("crates/x/src/a.rs", a),
            ("crates/x/src/b.rs", "use crate::c::C;"),
            ("crates/x/src/c/mod.rs", "fn f() { crate::a::g(); }"),
        ]);
        assert_eq!(circle.len(), 1);
        assert!(
            circle[0].contains("x: parts of crate use each other in a circle: a, b, c;"),
            "{}",
            circle[0]
        );
    }

    #[test]
    fn submodules_count_as_their_module() {
        let circle = found(&[
            ("crates/x/src/a.rs", "mod deep;"),
            ("crates/x/src/a/deep.rs", "use crate::b::B;"),
            ("crates/x/src/b.rs", "use crate::a::A;"),
        ]);
        assert_eq!(circle.len(), 1);
    }

    #[test]
    fn wholes_and_parts_and_tests_make_no_circle() {
        let a = "mod deep; use deep::D; pub struct A; #[cfg(test)] mod tests { use crate::b::B; }";
        let b = "use crate::a::A; /* crate::c::C */ const S: &str = \"crate::c::C\";";
        let files = [
            ("crates/x/src/a.rs", a),
            ("crates/x/src/a/deep.rs", "use super::A; use crate::a::deep::other;"),
            ("crates/x/src/b.rs", b),
            ("crates/x/src/c.rs", "use super::b::B;"),
            ("crates/x/tests/a.rs", "use crate::c::C;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn circles_that_are_right_have_reasons() {
        assert!(RIGHT.iter().all(|(.., reason)| !reason.is_empty()));
    }
}
