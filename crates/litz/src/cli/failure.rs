//! Turns an error into what the user reads and the status that the process exits with.

use litz::cache::CacheError;
use litz::tensors::TensorFileError;
use litz::{Error, Whose, whose};
use litz_import::ImportError;
use litz_ir::{Diag, Diags};
use litz_runtime::RunError;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// All is well.
    Ok = 0,
    /// Numbers are wrong, or something broke.
    Broken = 1,
    /// The model needs what Litz does not do yet.
    Unsupported = 2,
    /// A file or argument is not what it should be.
    Invalid = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not end well.
#[derive(Debug)]
pub struct Failure {
    /// The status to exit with.
    pub exit: Exit,
    text: String,
}

impl Failure {
    /// A file or argument that is not what it should be.
    pub fn invalid(message: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Invalid, text: format!("error: {message}") }
    }

    /// What `path` is about has an error.
    pub fn file(path: &Path, error: &TensorFileError) -> Failure {
        Failure::invalid(format_args!("{}: {error}", path.display()))
    }

    /// A file that cannot be read or written.
    pub fn io(verb: &str, path: &Path, error: &std::io::Error) -> Failure {
        Failure::invalid(format_args!("cannot {verb} {}: {error}", path.display()))
    }

    /// Problems of a text.
    pub fn diags(exit: Exit, diags: &Diags) -> Failure {
        let lines: Vec<String> = diags.iter().map(ToString::to_string).collect();
        Failure { exit, text: lines.join("\n") }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match &error {
            Error::Unsupported(diags) => Failure { exit: Exit::Unsupported, text: unsupported(diags) },
            Error::Import(ImportError::UnknownOps { ops }) => {
                let mut lines: Vec<String> = ops
                    .iter()
                    .map(|op| unsupported_line("unknown-op", &op.name, op.count, &op.sources))
                    .collect();
                lines.extend(ImportError::help(&ImportError::UnknownOps { ops: ops.clone() }).map(help));
                Failure { exit: Exit::Unsupported, text: lines.join("\n") }
            }
            Error::Import(import) => Failure::diags(import_exit(import), &import.diags()),
            Error::Invalid(diags) => Failure::diags(Exit::Invalid, diags),
            Error::Io { .. } | Error::Cache(_) | Error::Artifact(_) | Error::Limit(_) | Error::Stopped => {
                Failure::invalid(&error)
            }
            Error::Run(run) => Failure { exit: run_exit(run), text: format!("error: {error}") },
            Error::Bug { .. } => Failure { exit: Exit::Broken, text: format!("error: {error}") },
        }
    }
}

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Failure {
        match error {
            CacheError::Model(error) => Failure::from(*error),
            CacheError::None
            | CacheError::Open(_)
            | CacheError::Read { .. }
            | CacheError::Nothing { .. }
            | CacheError::File(_)
            | CacheError::OtherTarget { .. } => Failure::invalid(&error),
        }
    }
}

/// A file of PyTorch's that is not read yet is unsupported; a damaged one is invalid.
fn import_exit(error: &ImportError) -> Exit {
    if error.is_unsupported() { Exit::Unsupported } else { Exit::Invalid }
}

fn run_exit(error: &RunError) -> Exit {
    match whose(error) {
        Whose::Caller => Exit::Invalid,
        Whose::Nobody => Exit::Unsupported,
        Whose::Surroundings | Whose::Litz => Exit::Broken,
    }
}

/// Source lines shown of one operator.
const SOURCES: usize = 3;

fn unsupported_line(slug: &str, op: &str, count: usize, sources: &[String]) -> String {
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let shown = sources.iter().take(SOURCES).map(|source| format!(", {source}"));
    format!("error[{slug}]: unsupported `{op}` ({times}{})", shown.collect::<String>())
}

fn help(text: impl fmt::Display) -> String {
    format!("  = help: {text}")
}

/// One line for each message with how often and where it occurs, in order of first use.
pub fn unsupported(diags: &Diags) -> String {
    let mut groups: Vec<(&Diag, usize, Vec<String>)> = Vec::new();
    for diag in diags {
        let group = match groups.iter().position(|g| g.0.message == diag.message) {
            Some(at) => &mut groups[at],
            None => {
                groups.push((diag, 0, Vec::new()));
                groups.last_mut().expect("invariant: a group was just put there")
            }
        };
        group.1 += 1;
        group.2.extend(diag.source.clone().filter(|source| !group.2.contains(source)));
    }
    let mut lines = Vec::new();
    for (diag, count, sources) in &groups {
        let line = match operator(&diag.message) {
            Some(op) => format!("{}: {}", unsupported_line(diag.slug, op, *count, sources), diag.message),
            None => format!("error[{}]: {}", diag.slug, diag.message),
        };
        lines.push(line);
        lines.extend(diag.help.as_ref().map(help));
    }
    lines.join("\n")
}

/// The operator that a message is about: its first word with dots inside.
fn operator(message: &str) -> Option<&str> {
    let words = message.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_'));
    let is_operator = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.trim_end_matches('.').contains('.')
    };
    words.map(|word| word.trim_end_matches('.')).find(is_operator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_problems_are_one_line_with_their_places() {
        let diag = |message: &str, source: &str| Diag::new("unsupported-operator", message).source(source);
        let text = unsupported(&vec![
            diag("operator aten.b.default is not supported", "m.py:1"),
            diag("operator aten.a.default is not supported", "m.py:2"),
            diag("operator aten.b.default is not supported", "m.py:3"),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("unsupported `aten.b.default` (2 times, m.py:1, m.py:3)"), "{text}");
        assert!(lines[1].contains("unsupported `aten.a.default` (once, m.py:2)"), "{text}");
    }

    #[test]
    fn operators_are_found_in_messages() {
        assert_eq!(operator("aten.max.dim: keepdim is not supported"), Some("aten.max.dim"));
        assert_eq!(operator("operator `higher_order.scan` is not supported."), Some("higher_order.scan"));
        assert_eq!(operator("the model is for cuda. export it on the CPU"), None);
    }

    #[test]
    fn exits_say_whose_move_it_is() {
        let exit = |error: Error| Failure::from(error).exit;
        assert_eq!(exit(Error::bug("lower", "x")), Exit::Broken);
        assert_eq!(exit(Error::Unsupported(vec![Diag::new("unsupported", "x")])), Exit::Unsupported);
        assert_eq!(exit(Error::Invalid(vec![Diag::new("syntax", "x")])), Exit::Invalid);
        assert_eq!(exit(Error::Import(ImportError::NoModel)), Exit::Invalid);
        assert_eq!(exit(Error::Run(RunError::WrongCount { expected: 1, found: 0 })), Exit::Invalid);
    }
}
