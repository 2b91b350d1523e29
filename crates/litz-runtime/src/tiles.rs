//! Asks the system for tile registers (AMX): whether code may use them in this process.
//!
//! Their contents are 8 KiB of each thread's state, which Linux keeps only for processes that have asked for it.

use std::sync::OnceLock;

/// An extension with tile registers, named as in LLVM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extension {
    /// `amx-tile`: the registers.
    Tile,
    /// `amx-bf16`: products of bf16.
    Bf16,
    /// `amx-int8`: products of bytes.
    Int8,
}

/// Whether the processor has an extension and the operating system lets this process use it. Asks for that at the first
/// call: threads that run already and those to come may use it then.
pub fn is_usable(extension: Extension) -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    has(Extension::Tile) && has(extension) && *PERMITTED.get_or_init(request)
}

/// What the processor says: leaf 7 of `cpuid`.
#[cfg(target_arch = "x86_64")]
fn has(extension: Extension) -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let bit = match extension {
        Extension::Bf16 => 22,
        Extension::Tile => 24,
        Extension::Int8 => 25,
    };
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (1 << bit) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has(_: Extension) -> bool {
    false
}

/// Asks Linux for the state of tile registers; it refuses where it does not keep them.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn request() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn request() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_stay_the_same() {
        for extension in [Extension::Tile, Extension::Bf16, Extension::Int8] {
            assert_eq!(is_usable(extension), is_usable(extension));
            assert!(!is_usable(extension) || has(Extension::Tile));
        }
    }
}
