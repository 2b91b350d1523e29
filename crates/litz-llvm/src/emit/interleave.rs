//! Interleaves the instructions of the unrolled copies of a vector loop's body, where the loop says so.
//!
//! A chain of dependent instructions, such as a polynomial, waits four cycles at every step. A processor overlaps it
//! with the next iterations only as far as instructions that wait have room: about 100 in an Intel core, which is three
//! chains of an error function. Where several copies are interleaved, the oldest instructions that wait are
//! independent of each other; and constants are loaded once for all copies.

use std::collections::HashSet;
use std::rc::Rc;

use litz_ir::kernel::Loop;

use super::block::Instruction;
use super::{EmitError, Emitter};

impl Emitter<'_> {
    /// Emits `copies` of the body of a vector loop and interleaves their instructions.
    pub(super) fn interleaved(
        &mut self,
        inner: &Loop,
        copies: u32,
        emit: &mut dyn FnMut(&mut Self, u32) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let mut starts = Vec::new();
        for copy in 0..copies {
            starts.push(self.b.position());
            emit(self, copy)?;
        }
        let block = self.b.position().0;
        if starts.iter().any(|start| start.0 != block) {
            return Err(EmitError::malformed(format!(
                "copies of loop {} branch where they are interleaved",
                inner.var
            )));
        }
        let mut strands: Vec<_> = starts.into_iter().rev().map(|start| self.b.take_from(start.1)).collect();
        strands.reverse();
        self.b.put_back(merge(strands));
        Ok(())
    }
}

/// Merges strands round robin, an instruction of each at a time. An instruction waits until its operands are defined: copies share what
/// is the same for all, and it stands in the first.
fn merge(strands: Vec<Vec<Instruction>>) -> Vec<Instruction> {
    let mut pending: HashSet<Rc<str>> =
        strands.iter().flatten().filter_map(|line| line.result.clone()).collect();
    let mut merged = Vec::with_capacity(strands.iter().map(Vec::len).sum());
    let mut strands: Vec<_> = strands.into_iter().map(|strand| strand.into_iter().peekable()).collect();
    while strands.iter_mut().any(|strand| strand.peek().is_some()) {
        for strand in &mut strands {
            let is_ready =
                |next: &Instruction| next.operands.iter().all(|operand| !pending.contains(operand));
            let Some(next) = strand.next_if(is_ready) else { continue };
            if let Some(result) = &next.result {
                pending.remove(result);
            }
            merged.push(next);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A strand of instructions, each with the names of its operands.
    fn strand(lines: &[(&str, &[&str])]) -> Vec<Instruction> {
        let named = |name: &&str| (*name != "store").then(|| Rc::from(*name));
        let line = |(name, operands): &(&str, &[&str])| Instruction {
            text: format!("{name} of {}", operands.join(", ")),
            result: named(name),
            operands: operands.iter().map(|operand| Rc::from(*operand)).collect(),
        };
        lines.iter().map(line).collect()
    }

    fn merged(strands: [&[(&str, &[&str])]; 2]) -> Vec<String> {
        merge(strands.map(strand).into()).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn copies_are_interleaved() {
        let texts = merged([&[("%a", &["%x"]), ("store", &["%a"])], &[("%b", &["%y"]), ("store", &["%b"])]]);
        assert_eq!(texts, ["%a of %x", "%b of %y", "store of %a", "store of %b"]);
    }

    #[test]
    fn what_a_copy_shares_comes_first() {
        let first: &[(&str, &[&str])] = &[("%v1", &["%x"]), ("%v10", &["%v1"]), ("%a", &["%v10"])];
        let texts = merged([first, &[("%b", &["%v10", "%v1"])]]);
        assert_eq!(texts, ["%v1 of %x", "%v10 of %v1", "%b of %v10, %v1", "%a of %v10"]);
    }
}
