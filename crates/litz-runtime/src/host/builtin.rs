//! Runs operators that are neither kernels nor routines on buffers, and need nobody else: a host that every executable has.

use std::io::Write;

use litz_ir::call::TAKE;

use super::{Host, HostArg, HostError, HostResult};

/// The host of operators that the runtime has. Those of a given host come after them.
///
/// | operator | does |
/// |---|---|
/// | `aten._print.default` | prints its text, and the end of a line, on standard output |
/// | `litz.take.default` | gives the tensor of which an earlier call has given the sizes: see `kept.rs`, which does it |
pub struct BuiltIn;

/// Each operator with its declaration.
const DECLARATIONS: &[(&str, &str)] = &[
    ("aten._print.default", "aten._print.default(str s) -> () effect print"),
    (TAKE, "litz.take.default(Tensor sizes) -> Tensor"),
];

impl BuiltIn {
    /// Whether the runtime has an operator.
    pub fn has(op: &str) -> bool {
        DECLARATIONS.iter().any(|(name, _)| *name == op)
    }
}

impl Host for BuiltIn {
    fn declaration(&self, op: &str) -> Option<String> {
        let found = DECLARATIONS.iter().find(|(name, _)| *name == op);
        found.map(|(_, declaration)| (*declaration).to_owned())
    }

    fn call(&self, op: &str, args: &mut [HostArg<'_>], _: &mut [HostResult<'_>]) -> Result<(), HostError> {
        match (op, &*args) {
            ("aten._print.default", [HostArg::Str(text)]) => {
                writeln!(std::io::stdout(), "{}", text.as_str())?;
                Ok(())
            }
            _ => Err(format!("the runtime does not have {op} of {} arguments", args.len()).into()),
        }
    }
}
