//! Holds the bodies of the fuzz targets: what must be true of any bytes.
//!
//! libFuzzer, the replay of seeds and findings among the ordinary tests, and `cargo xtask fuzz` share them. A body panics
//! on a finding and returns otherwise.

mod archive;
mod c_library;
mod check;
mod models;
mod run;
mod saved;
mod seeds;
mod simplify;
mod text;

pub use seeds::{findings, seeds};

/// A property that holds for all bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FuzzTarget {
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
    /// Any bytes as a saved program: texts, or an error with a message.
    Saved,
    /// Bytes that decide which functions of the library for C are called, and with what: each says how it ended.
    CLibrary,
}

impl FuzzTarget {
    /// Every target.
    pub const ALL: [FuzzTarget; 8] = [
        FuzzTarget::Archive,
        FuzzTarget::Program,
        FuzzTarget::Text,
        FuzzTarget::Run,
        FuzzTarget::Models,
        FuzzTarget::Simplify,
        FuzzTarget::Saved,
        FuzzTarget::CLibrary,
    ];

    /// The name of its binary and of its folders.
    pub fn name(self) -> &'static str {
        match self {
            FuzzTarget::Archive => "archive",
            FuzzTarget::Program => "program",
            FuzzTarget::Text => "text",
            FuzzTarget::Run => "run",
            FuzzTarget::Models => "models",
            FuzzTarget::Simplify => "simplify",
            FuzzTarget::Saved => "saved",
            FuzzTarget::CLibrary => "c_library",
        }
    }

    /// The target of that name.
    pub fn from_name(name: &str) -> Option<FuzzTarget> {
        FuzzTarget::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Tries one input.
    ///
    /// # Panics
    /// When the property does not hold: a finding.
    pub fn attempt(self, bytes: &[u8]) {
        match self {
            FuzzTarget::Archive => archive::any_bytes(bytes),
            FuzzTarget::Program => archive::any_program(bytes),
            FuzzTarget::Text => text::any_text(bytes),
            FuzzTarget::Run => run::any_program(bytes),
            FuzzTarget::Models => models::any_model(bytes),
            FuzzTarget::Simplify => simplify::any_expression(bytes),
            FuzzTarget::Saved => saved::any_bytes(bytes),
            FuzzTarget::CLibrary => c_library::any_calls(bytes),
        }
    }
}
