//! Assembles PTX to machine code, by nvJitLink and `ptxas`, where the machine has them.
//!
//! The driver has an assembler as well, but one that does a module at a time. nvJitLink does several side by side. It assembles for linking,
//! though, and then ignores `setmaxnreg` (its warning C7504): where registers are moved to the warps that compute, these have as few as all
//! others, and if they do not suffice, products of warpgroups wait for each other and values go to memory. Such kernels are `ptxas`'s, a process
//! for each; where there is none, those that have too few registers are left to the driver.

mod library;
mod program;

use std::path::Path;
use std::sync::OnceLock;

use library::JitLink;
use program::Ptxas;

/// What moves registers between warps.
const MOVES_REGISTERS: &str = "setmaxnreg";

/// What a machine has to assemble PTX.
pub struct Assembler {
    library: Option<JitLink>,
    program: Option<Ptxas>,
}

/// What an assembler made of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assembled {
    /// The machine code.
    pub cubin: Vec<u8>,
    /// What it said about it.
    pub log: String,
}

impl Assembled {
    /// Registers of a thread, of the kernel that has most; none where nothing was said of any.
    pub fn registers(&self) -> Option<u64> {
        self.numbers_before(" registers").max()
    }

    /// Bytes that the threads of all kernels store to memory since registers do not suffice.
    pub fn spilled_bytes(&self) -> u64 {
        self.numbers_before(" bytes spill stores").sum()
    }

    /// Whether registers suffice: nothing is kept in memory for want of them, and no product of a warpgroup waits for the one before it
    /// (warnings C7510 and C7512).
    pub fn has_room(&self) -> bool {
        self.spilled_bytes() == 0 && !self.log.contains("serialized")
    }

    /// The numbers that stand before some words.
    fn numbers_before<'a>(&'a self, words: &'a str) -> impl Iterator<Item = u64> + 'a {
        let places = self.log.match_indices(words);
        places.filter_map(|(at, _)| self.log[..at].rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
    }
}

impl Assembler {
    /// That of this machine.
    pub fn of_machine() -> &'static Assembler {
        static FOUND: OnceLock<Assembler> = OnceLock::new();
        FOUND.get_or_init(|| Assembler::with(JitLink::of_machine()))
    }

    /// nvJitLink of that name or path, and `ptxas` of the same installation. None where there is no such library.
    pub fn open(path: &Path) -> Option<Assembler> {
        Some(Assembler::with(Some(JitLink::open(path).ok()?)))
    }

    fn with(library: Option<JitLink>) -> Assembler {
        let path = library.as_ref().and_then(JitLink::path);
        Assembler { library, program: Ptxas::beside(path.as_deref()) }
    }

    /// Whether it has `ptxas`, which kernels want that move registers.
    pub fn moves_registers(&self) -> bool {
        self.program.is_some()
    }

    /// What its machine code depends on, in words: the versions of its parts.
    pub fn version(&self) -> String {
        let library = self.library.as_ref().map_or(0, |library| library.version);
        let program = self.program.as_ref().map_or(0, Ptxas::bytes);
        format!("nvJitLink {library}, ptxas of {program} bytes")
    }

    /// Machine code for an architecture such as `sm_90a`. None where the driver makes better code, or nothing else makes any.
    ///
    /// # Errors
    /// What nvJitLink says of the text.
    pub fn assemble(&self, ptx: &str, arch: &str) -> Result<Option<Assembled>, String> {
        let moves = ptx.contains(MOVES_REGISTERS);
        // A program that is too old for a text is as good as none.
        if (moves || self.library.is_none())
            && let Some(program) = &self.program
            && let Ok(assembled) = program.assemble(ptx, arch)
        {
            return Ok(Some(assembled));
        }
        let Some(library) = &self.library else { return Ok(None) };
        let assembled = library.assemble(ptx, arch)?;
        Ok((!moves || assembled.has_room()).then_some(assembled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_and_spills_are_read() {
        let log = "ptxas info    : Compiling entry function 'n0' for 'sm_80'
ptxas info    : Function properties for n0
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 392 bytes cmem[0]
ptxas info    : Function properties for n1
    0 bytes stack frame, 8 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers";
        let assembled = Assembled { cubin: Vec::new(), log: log.to_owned() };
        assert_eq!((assembled.registers(), assembled.spilled_bytes()), (Some(168), 20));
        let silent = Assembled { log: String::new(), ..assembled };
        assert_eq!((silent.registers(), silent.spilled_bytes()), (None, 0));
    }
}
