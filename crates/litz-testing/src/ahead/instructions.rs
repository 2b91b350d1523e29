//! Counts the instructions of kernels in objects, by a disassembler.

use std::path::Path;
use std::process::Command;

use super::{Machine, Subject};

/// Instructions of a kernel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Counted {
    /// The kernel, with the model's name before it.
    pub kernel: String,
    /// How many its code has, the functions that it calls left out.
    pub instructions: usize,
}

/// Counts the instructions of a program's kernels, in the order of their objects.
///
/// # Errors
/// Where there is no disassembler.
pub fn count(folder: &Path, machine: Machine, subject: &Subject) -> Result<Vec<Counted>, String> {
    let disassembler = machine.disassembler();
    let mut counted = Vec::new();
    for object in &subject.objects {
        let output = Command::new(disassembler).arg("-d").arg(folder.join(object)).output();
        let output = output.map_err(|error| format!("cannot start {disassembler}: {error}"))?;
        counted.extend(functions(&String::from_utf8_lossy(&output.stdout)));
    }
    counted.retain(|one| one.kernel.starts_with(&format!("{}_", subject.id)));
    Ok(counted)
}

/// Functions of a listing: `0000 <name>:` begins one, and each line with an address and a tab behind it is an instruction. A line of nothing
/// but bytes goes on with the instruction before.
fn functions(listing: &str) -> Vec<Counted> {
    let mut counted: Vec<Counted> = Vec::new();
    for line in listing.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
            counted.push(Counted { kernel: name.1.to_owned(), instructions: 0 });
        } else if line.split('\t').count() > 2
            && let Some(last) = counted.last_mut()
        {
            last.instructions += 1;
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_a_mnemonic_are_instructions() {
        let listing = "f.o:     file format elf64-x86-64\n\n0000000000000000 <f0_k0>:\n   0:\t55\tpush   %rbp\n   \
                       1:\t48 b8 00 00 00 00 00\tmovabs $0x0,%rax\n   8:\t00 00 00 \n   b:\tc3\tret\n\n\
                       0000000000000010 <helper>:\n  10:\tc3\tret\n";
        let counted: Vec<_> =
            functions(listing).into_iter().map(|one| (one.kernel, one.instructions)).collect();
        assert_eq!(counted, [("f0_k0".to_owned(), 3), ("helper".to_owned(), 1)]);
    }
}
