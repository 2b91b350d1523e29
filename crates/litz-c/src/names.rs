//! Makes names and strings of C of those that programs have.

use std::collections::HashSet;

/// Words that no variable may be called: those of the language, of headers, and of the code around.
const RESERVED: &[&str] = &[
    "args", "auto", "bad", "bool", "break", "call", "case", "char", "const", "continue", "default", "do",
    "double", "else", "enum", "extern", "false", "float", "for", "given", "goto", "grid", "if", "inline",
    "int", "long", "main", "mark", "register", "restrict", "results", "return", "short", "signed", "sizeof",
    "sizes", "static", "struct", "switch", "true", "typedef", "union", "unix", "linux", "unsigned", "void",
    "volatile", "while", "NULL", "asm",
];

/// What names begin with of what is declared outside of functions.
const OUTSIDE: [&str; 4] = ["litz_", "LITZ_", "kernel_", "function_"];

/// Names that are taken in one scope of C.
pub(crate) struct Names(HashSet<String>);

impl Names {
    pub(crate) fn new() -> Names {
        Names(RESERVED.iter().map(|&word| word.to_owned()).collect())
    }

    /// A name like `text` that nothing else has in the scope, and nothing that is declared outside of functions.
    pub(crate) fn take(&mut self, text: &str) -> String {
        let name = identifier(text);
        let is_outside = OUTSIDE.iter().any(|prefix| name.starts_with(prefix));
        self.free(if is_outside { format!("x_{name}") } else { name })
    }

    /// A name of what is declared outside of functions: it begins with one of [`OUTSIDE`].
    pub(crate) fn take_outside(&mut self, kind: &str, text: &str) -> String {
        self.free(format!("{kind}_{}", identifier(text)))
    }

    fn free(&mut self, name: String) -> String {
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let mut candidates = std::iter::once(name.clone()).chain(numbered);
        let free = candidates.find(|candidate| !self.0.contains(candidate));
        let free = free.expect("invariant: there are more numbers than names");
        self.0.insert(free.clone());
        free
    }
}

/// The text with every character replaced that names of C do not have: `fc1.weight` is `fc1_weight`. One that begins with a digit, or with
/// an underscore as names of the implementation do, gets a letter before it; of nothing it is `x`.
pub fn identifier(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if plain.starts_with(|c: char| c.is_ascii_alphabetic()) { plain } else { format!("x{plain}") }
}

/// Characters of a string of C, at most: compilers need not take more than 4095.
const MOST: usize = 1000;

/// A string of C.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes().take(MOST) {
        match byte {
            // Two question marks begin a trigraph.
            b'"' | b'\\' | b'?' => quoted.extend(['\\', byte as char]),
            b' '..=b'~' => quoted.push(byte as char),
            _ => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_c_and_differ() {
        let mut names = Names::new();
        let taken = ["fc1.weight", "fc1_weight", "int", "%3", "9", "litz_run", "kernel_k0", ""];
        let taken = taken.map(|text| names.take(text));
        assert_eq!(
            taken,
            ["fc1_weight", "fc1_weight_2", "int_2", "x_3", "x9", "x_litz_run", "x_kernel_k0", "x"]
        );
        assert_eq!(["k0", "k0"].map(|text| names.take_outside("kernel", text)), ["kernel_k0", "kernel_k0_2"]);
    }

    #[test]
    fn strings_are_read_as_they_were() {
        assert_eq!(quoted("a \"b\\\" ??= \n1é"), r#""a \"b\\\" \?\?= \0121\303\251""#);
    }
}
