//! Defines diagnostics: what is wrong, where, and what to do next.

use std::fmt;

/// One problem. `slug` is stable and what tests match; messages are lower case, "expected X, found Y".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diag {
    /// Stable name of the kind of problem, such as `type-mismatch`.
    pub slug: &'static str,
    /// What is wrong, naming the thing.
    pub message: String,
    /// The line of canonical text that is at fault (1-based line, column), when known.
    pub at: Option<(u32, u32)>,
    /// Where in the user's source the thing came from, when known.
    pub source: Option<String>,
    /// The types of the operands, where it is these that do not go together.
    pub operands: Option<Box<str>>,
    /// The next step, when there is one to give.
    pub help: Option<String>,
}

/// Several problems at once.
pub type Diags = Vec<Diag>;

impl Diag {
    /// A problem with nothing known but its message.
    pub fn new(slug: &'static str, message: impl Into<String>) -> Diag {
        Diag { slug, message: message.into(), at: None, source: None, operands: None, help: None }
    }
    /// Adds the position in text.
    pub fn at(mut self, line: u32, column: u32) -> Diag {
        self.at = Some((line, column));
        self
    }
    /// Adds the types of the operands.
    pub fn operands(mut self, operands: impl Into<Box<str>>) -> Diag {
        self.operands = Some(operands.into());
        self
    }
    /// Adds the user's source line.
    pub fn source(mut self, source: impl Into<String>) -> Diag {
        self.source = Some(source.into());
        self
    }
    /// Adds the next step.
    pub fn help(mut self, help: impl Into<String>) -> Diag {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Diag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.at {
            write!(f, "{line}:{column}: ")?;
        }
        write!(f, "error[{}]: {}", self.slug, self.message)?;
        if let Some(source) = &self.source {
            write!(f, "\n  = from: {source}")?;
        }
        if let Some(operands) = &self.operands {
            write!(f, "\n  = with: {operands}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  = help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diag {}
