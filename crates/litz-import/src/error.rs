//! Defines what can be wrong with an archive: facts in fields, one stable slug each, and what to do about it.

use litz_ir::{Diag, Diags};
use thiserror::Error;

/// Why an archive could not be imported.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ImportError {
    /// The zip container is damaged, or this is no zip.
    #[error("bad archive: {why}")]
    Zip {
        /// What was expected and found.
        why: String,
    },
    /// An entry is compressed; PyTorch stores all of them.
    #[error("expected entry `{path}` to be stored, found compression method {method}")]
    Compressed {
        /// The entry.
        path: String,
        /// The compression method, by name.
        method: String,
    },
    /// Two entries share a name.
    #[error("expected entries of different names, found two of one name")]
    DuplicateEntry,
    /// Written by a torch whose layout is not read.
    #[error("expected a .pt2 archive of torch 2.9 or later, found {found}")]
    OldFormat {
        /// What the layout is.
        found: &'static str,
    },
    /// A format marker has another value.
    #[error("expected `{path}` to be `{expected}`, found `{found}`")]
    Format {
        /// The marker's entry.
        path: &'static str,
        /// What this reader understands.
        expected: &'static str,
        /// What the file says.
        found: String,
    },
    /// The archive holds no program.
    #[error("expected a program in the archive, found none")]
    NoModel,
    /// The archive holds several programs and none was named.
    #[error("expected one program in the archive, found {}: {}", names.len(), names.join(", "))]
    SeveralModels {
        /// Their names.
        names: Vec<String>,
    },
    /// The archive holds no program of that name.
    #[error("expected one of {}, found `{name}`", names.join(", "))]
    UnknownModel {
        /// The name that was asked for.
        name: String,
        /// Those that there are.
        names: Vec<String>,
    },
    /// Something refers to an entry that is not there.
    #[error("expected entry `{path}`, wanted by {wanted_by}, found none")]
    MissingEntry {
        /// The entry.
        path: String,
        /// Who refers to it.
        wanted_by: String,
    },
    /// The bytes of an entry differ from its checksum.
    #[error("entry `{path}` is damaged: its bytes do not match their checksum")]
    Checksum {
        /// The entry.
        path: String,
    },
    /// A text entry is not UTF-8.
    #[error("expected utf-8 in entry `{path}`, found other bytes")]
    NotUtf8 {
        /// The entry.
        path: String,
    },
    /// JSON does not parse, or not as the schema's types.
    #[error("entry `{path}`, line {line}, column {column}: {why}")]
    Json {
        /// The entry, or the string inside one.
        path: String,
        /// 1-based line.
        line: usize,
        /// 1-based column, in bytes.
        column: usize,
        /// What was expected and found.
        why: String,
    },
    /// The program is of another major schema version.
    #[error("expected schema version {expected}, found {major}.{minor}")]
    SchemaVersion {
        /// The major version that is read.
        expected: i64,
        /// Major version of the file.
        major: i64,
        /// Minor version of the file.
        minor: i64,
    },
    /// A symbolic expression does not parse.
    #[error("expression `{text}`: {why}")]
    Expression {
        /// The expression.
        text: String,
        /// What was expected and found.
        why: String,
    },
    /// A symbolic expression uses something that has no exact integer meaning here.
    #[error("expression `{text}`: `{head}` is not supported")]
    UnsupportedExpression {
        /// The expression.
        text: String,
        /// The function or feature.
        head: String,
    },
    /// A guard is not understood.
    #[error("guard `{text}`: {why}")]
    Guard {
        /// The guard as Python text.
        text: String,
        /// What is not understood.
        why: String,
    },
    /// A pytree string does not parse, or does not fit the signature.
    #[error("structure of the {of}: {why}")]
    Pytree {
        /// `inputs` or `outputs`.
        of: &'static str,
        /// What was expected and found.
        why: String,
    },
    /// A payload that only Python could read.
    #[error("`{name}` is stored as a pickle")]
    Pickled {
        /// The parameter, buffer or constant.
        name: String,
    },
    /// A parameter, buffer or constant is not what its description says.
    #[error("weight `{name}`: {why}")]
    Weight {
        /// The parameter, buffer or constant.
        name: String,
        /// What was expected and found.
        why: String,
    },
    /// An element type, layout or device that has no counterpart here.
    #[error("`{name}`: {feature} is not supported")]
    UnsupportedType {
        /// The value or weight.
        name: String,
        /// The feature.
        feature: String,
    },
    /// The program contradicts itself.
    #[error("bad program: {why}")]
    Program {
        /// What was expected and found, naming the value or node.
        why: String,
    },
    /// Operators without a schema, all of them.
    #[error("{} not supported: {}", plural(ops.len(), "operator"), list_ops(ops))]
    UnknownOps {
        /// The operators in order of first use.
        ops: Vec<UnknownOp>,
    },
}

/// An operator without a schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownOp {
    /// The target as the file spells it.
    pub name: String,
    /// Number of nodes.
    pub count: usize,
    /// Source lines of the first few of them.
    pub sources: Vec<String>,
}

impl ImportError {
    /// Whether the file is PyTorch's and is not read yet; else it is damaged, or not what was asked for.
    pub fn is_unsupported(&self) -> bool {
        match self {
            ImportError::Compressed { .. }
            | ImportError::OldFormat { .. }
            | ImportError::Format { .. }
            | ImportError::SchemaVersion { .. }
            | ImportError::UnsupportedExpression { .. }
            | ImportError::Guard { .. }
            | ImportError::Pickled { .. }
            | ImportError::UnsupportedType { .. }
            | ImportError::UnknownOps { .. } => true,
            ImportError::Zip { .. }
            | ImportError::DuplicateEntry
            | ImportError::NoModel
            | ImportError::SeveralModels { .. }
            | ImportError::UnknownModel { .. }
            | ImportError::MissingEntry { .. }
            | ImportError::Checksum { .. }
            | ImportError::NotUtf8 { .. }
            | ImportError::Json { .. }
            | ImportError::Expression { .. }
            | ImportError::Pytree { .. }
            | ImportError::Weight { .. }
            | ImportError::Program { .. } => false,
        }
    }

    /// The stable name of the kind of error.
    pub fn slug(&self) -> &'static str {
        match self {
            ImportError::Zip { .. } => "bad-archive",
            ImportError::Compressed { .. } => "compressed-entry",
            ImportError::DuplicateEntry => "duplicate-entry",
            ImportError::OldFormat { .. } => "old-format",
            ImportError::Format { .. } => "bad-format",
            ImportError::NoModel => "no-model",
            ImportError::SeveralModels { .. } => "several-models",
            ImportError::UnknownModel { .. } => "unknown-model",
            ImportError::MissingEntry { .. } => "missing-entry",
            ImportError::Checksum { .. } => "bad-checksum",
            ImportError::NotUtf8 { .. } => "not-utf8",
            ImportError::Json { .. } => "bad-json",
            ImportError::SchemaVersion { .. } => "schema-version",
            ImportError::Expression { .. } => "bad-expression",
            ImportError::UnsupportedExpression { .. } => "unsupported-expression",
            ImportError::Guard { .. } => "unknown-guard",
            ImportError::Pytree { .. } => "bad-pytree",
            ImportError::Pickled { .. } => "pickled-weight",
            ImportError::Weight { .. } => "bad-weight",
            ImportError::UnsupportedType { .. } => "unsupported-type",
            ImportError::Program { .. } => "bad-program",
            ImportError::UnknownOps { .. } => "unknown-op",
        }
    }

    /// The next step, where there is one to give.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            ImportError::Zip { .. } | ImportError::Checksum { .. } | ImportError::DuplicateEntry => {
                Some("copy the file again, or write it again with torch.export.save")
            }
            ImportError::Compressed { .. } => {
                Some("do not repack the archive; torch.export.save stores entries uncompressed")
            }
            ImportError::OldFormat { .. } => Some(
                "load it with torch.export.load and write it with torch.export.save of torch 2.9 or later",
            ),
            ImportError::Format { path: "byteorder", .. } => {
                Some("write the archive on a machine of the same byte order")
            }
            ImportError::NoModel => Some("torch.export.save failed half way; see its error, then save again"),
            ImportError::SeveralModels { .. } => {
                Some("name one of them: `--model NAME`, or `Options::model`")
            }
            ImportError::SchemaVersion { .. } => Some("write the archive with a torch from 2.9 to 2.15"),
            ImportError::Pickled { .. } => {
                Some("save `program.run_decompositions()`, which turns tensor subclasses into plain tensors")
            }
            ImportError::Guard { .. } => Some("export with static shapes, or report the guard"),
            ImportError::UnknownOps { ops } if ops.iter().any(UnknownOp::is_decomposed) => Some(
                "save `program.run_decompositions()`, which turns Python functions and autocast into operators",
            ),
            ImportError::Format { .. }
            | ImportError::MissingEntry { .. }
            | ImportError::NotUtf8 { .. }
            | ImportError::Json { .. }
            | ImportError::UnknownModel { .. }
            | ImportError::Expression { .. }
            | ImportError::UnsupportedExpression { .. }
            | ImportError::Pytree { .. }
            | ImportError::Weight { .. }
            | ImportError::UnsupportedType { .. }
            | ImportError::Program { .. }
            | ImportError::UnknownOps { .. } => None,
        }
    }

    /// The error as diagnostics: one for each operator of [`ImportError::UnknownOps`], else one.
    pub fn diags(&self) -> Diags {
        let ImportError::UnknownOps { ops } = self else {
            return vec![self.diag(self.to_string(), None)];
        };
        let one = |op: &UnknownOp| {
            let message = format!("operator `{}` is not supported (used {})", op.name, times(op.count));
            self.diag(message, op.sources.first().cloned())
        };
        ops.iter().map(one).collect()
    }

    fn diag(&self, message: String, source: Option<String>) -> Diag {
        Diag {
            slug: self.slug(),
            message,
            at: None,
            source,
            operands: None,
            help: self.help().map(str::to_owned),
        }
    }

    /// The error of reading `path` as JSON. Serde lists every tag of a union that has none of that name; the list is
    /// long and says nothing about the file, so it is cut.
    pub(crate) fn json(path: &str, error: &serde_json::Error) -> ImportError {
        let full = error.to_string();
        let why = full.split(", expected one of `").next().unwrap_or(&full);
        let why = why.split(" at line ").next().unwrap_or(why).to_owned();
        ImportError::Json { path: path.to_owned(), line: error.line(), column: error.column(), why }
    }

    /// A contradiction in the program.
    pub(crate) fn program(why: impl Into<String>) -> ImportError {
        ImportError::Program { why: why.into() }
    }
}

impl UnknownOp {
    /// Whether `run_decompositions()` replaces it: a Python function, or a wrapper that it resolves.
    pub fn is_decomposed(&self) -> bool {
        ["torch._", "torch.nn.", "higher_order.wrap_with_autocast"]
            .iter()
            .any(|prefix| self.name.starts_with(prefix))
    }
}

fn list_ops(ops: &[UnknownOp]) -> String {
    let one = |op: &UnknownOp| match op.sources.first() {
        Some(source) => format!("{} ({}, first at {source})", op.name, times(op.count)),
        None => format!("{} ({})", op.name, times(op.count)),
    };
    ops.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn times(count: usize) -> String {
    plural(count, "time")
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Text of a file quoted in a message: cut after 200 characters.
pub(crate) fn shorten(text: &str) -> String {
    const MAX: usize = 200;
    match text.char_indices().nth(MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}
