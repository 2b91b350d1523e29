//! Defines everything that can go wrong between a file and its results.

use litz_backend::BackendError;
use litz_ir::{Diag, Diags};
use litz_runtime::RunError;
use std::fmt;
use std::path::PathBuf;

/// An error, by whose move it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is damaged, or holds what the reader does not know.
    #[error(transparent)]
    Import(#[from] litz_import::ImportError),
    /// The model uses what Litz does not support yet; everything unsupported is listed.
    #[error("{}", list(.0))]
    Unsupported(Diags),
    /// The model or text is invalid.
    #[error("{}", list(.0))]
    Invalid(Diags),
    /// A call failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Compiling takes more than [`Options::limits`](crate::Options::limits) allow.
    #[error(transparent)]
    Limit(#[from] litz_runtime::limits::LimitExceeded),
    /// The cache is none that can be trusted.
    #[error(transparent)]
    Cache(#[from] litz_runtime::cache::OpenError),
    /// [`Options::stop`](crate::Options::stop) was set while it was compiled.
    #[error("compiling was stopped")]
    Stopped,
    /// A compiled program cannot be written or read.
    #[error(transparent)]
    Artifact(#[from] litz_runtime::artifact::ArtifactError),
    /// A mistake of Litz: a stage gave what the next one rejects.
    #[error("bug in stage {stage}: {message}{}", replay(.reproducer.as_ref()))]
    Bug {
        /// The stage.
        stage: &'static str,
        /// What was found.
        message: String,
        /// A file that shows it, where a model was being compiled.
        reproducer: Option<Reproducer>,
    },
}

/// Whose move it is when a call has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// The caller's: inputs do not fit, or ask for too much.
    Caller,
    /// Nobody's: Litz does not do that.
    Nobody,
    /// That of what is around: the host, the weights, the memory of the machine.
    Surroundings,
    /// Litz's: a mistake of ours, or a number that is not finite, where these are looked for.
    Litz,
}

/// Whose move it is when a call has failed so.
pub fn whose(error: &RunError) -> Whose {
    match error {
        RunError::WrongCount { .. }
        | RunError::WrongDtype { .. }
        | RunError::WrongRank { .. }
        | RunError::WrongSize { .. }
        | RunError::SizeOutOfRange { .. }
        | RunError::CheckFailed { .. }
        | RunError::AssertionFailed { .. }
        | RunError::Limit(_)
        | RunError::BadIndex { .. } => Whose::Caller,
        RunError::MissingHost { .. } | RunError::Constants(_) => Whose::Nobody,
        RunError::StateLost
        | RunError::MissingWeight { .. }
        | RunError::WrongWeight { .. }
        | RunError::Host { .. }
        | RunError::OutOfMemory(_) => Whose::Surroundings,
        RunError::UnknownRoutine { .. }
        | RunError::MissingDevice { .. }
        | RunError::Bug { .. }
        | RunError::NoRoom { .. }
        | RunError::Memory { .. }
        | RunError::NotFinite { .. } => Whose::Litz,
    }
}

/// Where a compilation went wrong can be seen again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reproducer {
    /// The graph as it was imported: a `.litz` text, without weights.
    pub path: PathBuf,
    /// Flags of the compilation.
    pub(crate) flags: String,
}

impl fmt::Display for Reproducer {
    /// The command that replays it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "litz compile {} --to object -o /dev/null --verify-ir{}", self.path.display(), self.flags)
    }
}

impl Error {
    /// A mistake of ours.
    pub fn bug(stage: &'static str, message: impl std::fmt::Display) -> Error {
        Error::Bug { stage, message: message.to_string(), reproducer: None }
    }

    /// A request that the backend refuses.
    pub(crate) fn unsupported(diag: Diag) -> Error {
        Error::Unsupported(vec![diag])
    }

    /// Problems of a stage: unsupported when all of them are, invalid otherwise.
    pub fn of_diags(diags: Diags) -> Error {
        if diags.iter().all(|d| d.slug.starts_with("unsupported")) {
            Error::Unsupported(diags)
        } else {
            Error::Invalid(diags)
        }
    }
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Error {
        Error::bug(error.stage, error.message)
    }
}

/// What to do about a mistake of ours.
fn replay(reproducer: Option<&Reproducer>) -> String {
    reproducer.map_or(String::new(), |r| {
        format!("\n  = help: please report it with {}; this replays it: {r}", r.path.display())
    })
}

fn list(diags: &Diags) -> String {
    diags.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
