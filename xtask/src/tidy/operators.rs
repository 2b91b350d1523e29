//! Finds names of ATen operators spelled in crates whose stages go by what the table of operators says of them.

use std::iter::Peekable;

use proc_macro2::{TokenStream, TokenTree};

/// Crates that neither define operators nor may decide by their names.
const CRATES: [&str; 5] = ["litz-passes", "litz-import", "litz-schedule", "litz-codegen", "litz"];

/// What every name of an ATen operator starts with, with `torch.ops.` or something else before it.
const PREFIX: &str = "aten.";

/// A problem for each string of the file with an operator's name in it, tests aside.
pub fn problems(name: &str, text: &str) -> Vec<String> {
    if !CRATES.iter().any(|of| name.starts_with(&format!("crates/{of}/src/"))) {
        return Vec::new();
    }
    let tokens: TokenStream = match text.parse() {
        Ok(tokens) => tokens,
        Err(error) => return vec![format!("{name}: {error}")],
    };
    let mut found = Vec::new();
    strings(tokens, &mut found);
    let named = found.iter().filter(|literal| literal.contains(PREFIX));
    named
        .map(|literal| format!("{name}: {literal}: ask litz-ops what an operator does, or build it there"))
        .collect()
}

/// The literals of `tokens`, without those of attributes, of which documentation is one, and of test modules.
fn strings(tokens: TokenStream, found: &mut Vec<String>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                if is_test(&attribute(&mut tokens)) {
                    skip_item(&mut tokens);
                }
            }
            TokenTree::Group(group) => strings(group.stream(), found),
            TokenTree::Literal(literal) => found.push(literal.to_string()),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// The text of the attribute behind a `#`, empty if there is none.
fn attribute(tokens: &mut Peekable<impl Iterator<Item = TokenTree>>) -> String {
    tokens.next_if(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == '!'));
    let group = tokens.next_if(|token| matches!(token, TokenTree::Group(_)));
    group.map_or(String::new(), |group| group.to_string())
}

fn is_test(attribute: &str) -> bool {
    let dense: String = attribute.split_whitespace().collect();
    dense == "[cfg(test)]"
}

/// Skips up to the braces or the semicolon that end an item.
fn skip_item(tokens: &mut impl Iterator<Item = TokenTree>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::Brace => return,
            TokenTree::Punct(mark) if mark.as_char() == ';' => return,
            TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: &str = "crates/litz-passes/src/graph/noop.rs";

    #[test]
    fn names_of_operators_are_found_wherever_they_are_spelled() {
        for spelled in [
            r#"fn f(op: &str) -> bool { op == "aten.clone.default" }"#,
            r##"const NAMES: [&str; 1] = [r#"aten.clone.default"#];"##,
            r#"fn f(op: &str) -> bool { matches!(op, "aten.clone.default") }"#,
            r#"fn f(op: &str) -> bool { op.starts_with("torch.ops.aten.sym_") }"#,
            r#"#[cfg(test)] mod tests; const NAME: &str = "aten.clone.default";"#,
        ] {
            assert_eq!(problems(PASS, spelled).len(), 1, "{spelled}");
        }
        assert_eq!(problems(PASS, r#"const PAIR: [&str; 2] = ["aten.a.b", "aten.c.d"];"#).len(), 2);
        assert_eq!(problems(PASS, "fn f() {").len(), 1, "what cannot be read is not passed over");
    }

    #[test]
    fn comments_tests_and_other_crates_are_exempt() {
        for text in [
            "//! `aten.clone.default`\n/// \"aten.clone.default\"\n// \"aten.clone.default\"\nfn f() {}",
            r#"#[cfg(test)] mod tests { const NAME: &str = "aten.clone.default"; }"#,
            r#"#[cfg(test)] const NAME: &str = "aten.clone.default"; fn f<'a>(_: &'a str) -> char { '"' }"#,
            r#"const NAME: &str = "Aten";"#,
        ] {
            assert_eq!(problems(PASS, text), [""; 0], "{text}");
        }
        let entry = r#"const NAME: &str = "aten.clone.default";"#;
        for name in ["crates/litz-ops/src/ops/copy.rs", "crates/litz-passes/tests/graph.rs", "fuzz/a.rs"] {
            assert_eq!(problems(name, entry), [""; 0], "{name}");
        }
    }
}
