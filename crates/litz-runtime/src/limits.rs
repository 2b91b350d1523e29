//! States how much memory, work and time a program may take, and reports which limit it met.
//!
//! Sizes in a model file are numbers that somebody wrote. A file of a hundred bytes can ask for a buffer of a terabyte or
//! for as many iterations as take a year. Limits are compared with what sizes ask for before memory is taken or anything
//! runs; only time is measured, between launches.

use std::time::Duration;

/// What a program may take. The defaults are far above what models need, and finite where sizes come from a file.
///
/// Lower them where files come from strangers:
///
/// ```
/// use litz_runtime::limits::Limits;
///
/// let limits = Limits { call_bytes: 1 << 30, iterations: 1 << 40, ..Limits::default() };
/// assert!(limits.constant_bytes > limits.call_bytes);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Bytes that one call takes: intermediate results, scratch memory, outputs, copies of inputs that it writes.
    pub call_bytes: u64,
    /// Bytes of constants, in the layouts that kernels want, and of what load steps compute of them.
    pub constant_bytes: u64,
    /// Statements that the kernels of one call execute, each time counted: loops that are written out and lanes of vectors
    /// too. A multiplication and an addition of a product are three or four.
    pub iterations: u64,
    /// Time of one call, looked at before each launch; a launch that has begun runs to its end.
    pub time: Option<Duration>,
    /// Nodes of a graph, and statements and instructions of loops and kernels, after any stage of the compiler.
    pub statements: u64,
    /// Statements of all kernels, those in written-out loops counted each time: what machine code is made of.
    pub written_out: u64,
    /// Time that stages of the compiler take, looked at between them.
    pub compile_time: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // As much memory as a large server has.
            call_bytes: 1 << 40,
            constant_bytes: 1 << 40,
            // Some days of all cores of one.
            iterations: 1 << 54,
            time: None,
            // The largest of the models that Litz is measured with have some ten thousand.
            statements: 1 << 22,
            written_out: 1 << 26,
            compile_time: None,
        }
    }
}

/// A limit, by the field of [`Limits`] that holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// [`Limits::call_bytes`].
    CallBytes,
    /// [`Limits::constant_bytes`].
    ConstantBytes,
    /// [`Limits::iterations`].
    Iterations,
    /// [`Limits::time`].
    Time,
    /// [`Limits::statements`].
    Statements,
    /// [`Limits::written_out`].
    WrittenOut,
    /// [`Limits::compile_time`].
    CompileTime,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Limit; 7] = [
        Limit::CallBytes,
        Limit::ConstantBytes,
        Limit::Iterations,
        Limit::Time,
        Limit::Statements,
        Limit::WrittenOut,
        Limit::CompileTime,
    ];

    /// The name of the field.
    pub fn name(self) -> &'static str {
        match self {
            Limit::CallBytes => "call_bytes",
            Limit::ConstantBytes => "constant_bytes",
            Limit::Iterations => "iterations",
            Limit::Time => "time",
            Limit::Statements => "statements",
            Limit::WrittenOut => "written_out",
            Limit::CompileTime => "compile_time",
        }
    }

    /// What its numbers count.
    pub fn unit(self) -> &'static str {
        match self {
            Limit::CallBytes | Limit::ConstantBytes => "bytes",
            Limit::Iterations => "executed statements",
            Limit::Time | Limit::CompileTime => "milliseconds",
            Limit::Statements => "statements",
            Limit::WrittenOut => "written-out statements",
        }
    }
}

/// A limit was met, before anything was done that exceeds it; time aside, which is measured.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected at most {allowed} {}, found {asked}{}: raise the limit with `Limits::{name}` or `--limit {name}=N`",
    .limit.unit(),
    if *.asked == u64::MAX { " or more" } else { "" },
    name = .limit.name()
)]
pub struct LimitExceeded {
    /// Which limit.
    pub limit: Limit,
    /// What it is.
    pub allowed: u64,
    /// What was asked for; `u64::MAX` for more than numbers can say.
    pub asked: u64,
}

impl Limits {
    /// What a limit allows, in its unit.
    pub fn allowed(&self, limit: Limit) -> u64 {
        let milliseconds = |time: Option<Duration>| {
            time.map_or(u64::MAX, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        };
        match limit {
            Limit::CallBytes => self.call_bytes,
            Limit::ConstantBytes => self.constant_bytes,
            Limit::Iterations => self.iterations,
            Limit::Time => milliseconds(self.time),
            Limit::Statements => self.statements,
            Limit::WrittenOut => self.written_out,
            Limit::CompileTime => milliseconds(self.compile_time),
        }
    }

    /// Sets a limit, in its unit.
    pub fn set(&mut self, limit: Limit, allowed: u64) {
        match limit {
            Limit::CallBytes => self.call_bytes = allowed,
            Limit::ConstantBytes => self.constant_bytes = allowed,
            Limit::Iterations => self.iterations = allowed,
            Limit::Time => self.time = Some(Duration::from_millis(allowed)),
            Limit::Statements => self.statements = allowed,
            Limit::WrittenOut => self.written_out = allowed,
            Limit::CompileTime => self.compile_time = Some(Duration::from_millis(allowed)),
        }
    }

    /// Compares what is asked for with what is allowed.
    ///
    /// # Errors
    /// When it is more.
    pub fn check(&self, limit: Limit, asked: u64) -> Result<(), LimitExceeded> {
        let allowed = self.allowed(limit);
        if asked <= allowed { Ok(()) } else { Err(LimitExceeded { limit, allowed, asked }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_can_be_set_met_and_exceeded() {
        for limit in Limit::ALL {
            let mut limits = Limits::default();
            limits.set(limit, 1000);
            for other in Limit::ALL {
                let expected = if other == limit { 1000 } else { Limits::default().allowed(other) };
                assert_eq!(limits.allowed(other), expected, "{}", other.name());
            }
            assert_eq!(limits.check(limit, 1000), Ok(()));
            let error = limits.check(limit, 1001).expect_err("it is too much");
            assert_eq!(error, LimitExceeded { limit, allowed: 1000, asked: 1001 });
            assert!(error.to_string().contains(&format!("Limits::{}", limit.name())), "{error}");
        }
    }

    #[test]
    fn messages_name_what_was_asked_for() {
        let limits = Limits { call_bytes: 64, ..Limits::default() };
        let text = |asked| limits.check(Limit::CallBytes, asked).expect_err("too much").to_string();
        let how = "raise the limit with `Limits::call_bytes` or `--limit call_bytes=N`";
        assert_eq!(text(65), format!("expected at most 64 bytes, found 65: {how}"));
        assert_eq!(text(u64::MAX), format!("expected at most 64 bytes, found {} or more: {how}", u64::MAX));
    }
}
