//! Copies of straight-line code, one after the other, to the same instructions in turns.
//!
//! A chain of dependent instructions, such as a polynomial, waits four cycles at every step. A processor overlaps it
//! with the next iterations only as far as instructions that wait have room: about 100 in an Intel core, which is three
//! chains of an error function. Where several copies of a loop's body take turns instruction by instruction, the oldest
//! that wait are independent of each other; and constants are loaded once for all copies.

use std::collections::HashSet;

use litz_ir::kernel::{Loop, Mem, Op, Stmt, position};
use litz_sym::Expr;

use super::{EmitError, Emitter, Form};

impl Emitter<'_> {
    /// Emits `copies` of the body of a vector loop, in turns where no copy can notice.
    pub(super) fn in_turns(
        &mut self,
        inner: &Loop,
        copies: u32,
        emit: &mut dyn FnMut(&mut Self, u32) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let (block, start) = self.b.position();
        let mut ends = Vec::new();
        for copy in 0..copies {
            emit(self, copy)?;
            ends.push(self.b.position());
        }
        if ends.iter().all(|end| end.0 == block) && self.are_independent(inner) {
            let text = self.b.take_from(start);
            let mut from = start;
            let mut segments = Vec::new();
            for (_, end) in ends {
                segments.push(&text[from - start..end - start]);
                from = end;
            }
            self.b.put_back(&merge(&segments));
        }
        Ok(())
    }

    /// Whether iterations touch no memory that another one writes: each stores elements of its own, and of what is stored
    /// to loads those alone.
    fn are_independent(&self, inner: &Loop) -> bool {
        let is_memory = |mem| self.mems[mem].form == Form::Memory;
        let is_own = |stmt: &Stmt| match stmt {
            Stmt::Let { .. } | Stmt::Prefetch { .. } => true,
            Stmt::Store { mem, index, combine, .. } => {
                let stride = position(index).linear(inner.var).and_then(|(stride, _)| stride.as_int());
                !is_memory(*mem) || combine.is_none() && stride.is_some_and(|stride| stride != 0)
            }
            Stmt::MulAdd { mem, .. } => !is_memory(*mem),
            Stmt::Loop(_)
            | Stmt::If { .. }
            | Stmt::Bind { .. }
            | Stmt::Barrier(_)
            | Stmt::Transfer(_)
            | Stmt::Dot(_)
            | Stmt::MatrixProduct(_)
            | Stmt::Copy { .. }
            | Stmt::ArgStore { .. } => false,
        };
        let stores_elsewhere = |stmt: &Stmt, loaded: (Mem, &[Expr])| match stmt {
            Stmt::Store { mem, index, .. } | Stmt::MulAdd { mem, index, .. } => {
                *mem == loaded.0 && index != loaded.1
            }
            Stmt::Let { .. }
            | Stmt::Barrier(_)
            | Stmt::Transfer(_)
            | Stmt::Dot(_)
            | Stmt::MatrixProduct(_)
            | Stmt::Copy { .. }
            | Stmt::Prefetch { .. }
            | Stmt::Loop(_)
            | Stmt::If { .. }
            | Stmt::Bind { .. }
            | Stmt::ArgStore { .. } => false,
        };
        let reads_written = |stmt: &Stmt| match stmt {
            Stmt::Let { op: Op::Load { mem, index, .. }, .. } => {
                is_memory(*mem) && inner.body.iter().any(|other| stores_elsewhere(other, (*mem, index)))
            }
            _ => false,
        };
        inner.body.iter().all(is_own) && !inner.body.iter().any(reads_written)
    }
}

/// Lines of all segments, one of each in turn. A line waits until the names it uses are defined: copies share what is
/// the same for all, and it stands in the first.
fn merge(segments: &[&str]) -> String {
    let mut rest: Vec<Vec<&str>> = segments.iter().map(|text| text.lines().rev().collect()).collect();
    let defined = |line: &&str| line.split_once(" = ").map(|(name, _)| name.trim().to_owned());
    let mut pending: HashSet<String> = rest.iter().flatten().filter_map(defined).collect();
    let mut text = String::with_capacity(segments.iter().map(|text| text.len()).sum());
    while rest.iter().any(|lines| !lines.is_empty()) {
        for lines in &mut rest {
            let Some(line) = lines.last() else { continue };
            let uses = line.split_once(" = ").map_or(*line, |(_, uses)| uses);
            if names(uses).any(|name| pending.contains(name)) {
                continue;
            }
            if let Some(name) = defined(line) {
                pending.remove(&name);
            }
            text.push_str(line);
            text.push('\n');
            lines.pop();
        }
    }
    text
}

/// Registers in a piece of text, `%` included.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('%').map(|(at, _)| {
        let rest = &text[at + 1..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
        &text[at..at + 1 + end.unwrap_or(rest.len())]
    })
}

#[cfg(test)]
mod tests {
    use super::merge;

    #[test]
    fn copies_take_turns() {
        let copies = ["  %a = load x\n  store %a\n", "  %b = load y\n  store %b\n"];
        assert_eq!(merge(&copies), "  %a = load x\n  %b = load y\n  store %a\n  store %b\n");
    }

    #[test]
    fn what_a_copy_shares_comes_first() {
        let copies = ["  %v1 = load x\n  %v10 = splat %v1\n  %a = use %v10\n", "  %b = use %v10, %v1\n"];
        assert_eq!(
            merge(&copies),
            "  %v1 = load x\n  %v10 = splat %v1\n  %b = use %v10, %v1\n  %a = use %v10\n"
        );
    }
}
