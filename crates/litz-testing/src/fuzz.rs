//! Holds the bodies of the fuzz targets: what must be true of any bytes.
//!
//! libFuzzer, the replay of seeds and findings among the ordinary tests, and `cargo xtask fuzz` share them. A body panics
//! on a finding and returns otherwise.

mod archive;
mod check;
mod models;
mod run;
mod seeds;
mod simplify;
mod text;

pub use seeds::{findings, seeds};

/// A property that holds for all bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Any bytes as an archive: a graph that verifies, or an error with a message.
    Archive,
    /// A program's JSON inside a sound archive: the same.
    Program,
    /// Any text of the five IRs: what verifies runs, and gives what the loops say.
    Text,
    /// A program's JSON inside a sound archive, compiled and called: what it computes is what its loops say.
    Run,
    /// Bytes that generate a model: its graph, passes and schedule give what its lowering says.
    Models,
    /// Random expressions under random facts: simplification, bounds and proofs agree with arithmetic.
    Simplify,
}

impl Target {
    /// Every target.
    pub const ALL: [Target; 6] =
        [Target::Archive, Target::Program, Target::Text, Target::Run, Target::Models, Target::Simplify];

    /// The name of its binary and of its folders.
    pub fn name(self) -> &'static str {
        match self {
            Target::Archive => "archive",
            Target::Program => "program",
            Target::Text => "text",
            Target::Run => "run",
            Target::Models => "models",
            Target::Simplify => "simplify",
        }
    }

    /// The target of that name.
    pub fn from_name(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Tries one input.
    ///
    /// # Panics
    /// When the property does not hold: a finding.
    pub fn attempt(self, bytes: &[u8]) {
        match self {
            Target::Archive => archive::any_bytes(bytes),
            Target::Program => archive::any_program(bytes),
            Target::Text => text::any_text(bytes),
            Target::Run => run::any_program(bytes),
            Target::Models => models::any_model(bytes),
            Target::Simplify => simplify::any_expression(bytes),
        }
    }
}
