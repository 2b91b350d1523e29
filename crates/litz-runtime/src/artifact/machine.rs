//! Says what object code needs of a machine, and whether this machine has it.

use super::ArtifactError;
#[cfg(target_arch = "x86_64")]
use crate::tiles::{self, Extension};

/// The machine that object code is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// LLVM target triple, such as `x86_64-unknown-linux-gnu`.
    pub triple: String,
    /// Instruction set extensions that the code may use, by their LLVM names, such as `avx2`.
    pub features: Vec<String>,
}

impl Machine {
    /// Takes LLVM's list of features, such as `+avx2,+fma,-avx512f`. Of those it turns on, extensions that no compiler
    /// uses by itself, such as `clzero`, are left out.
    pub fn new(triple: &str, features: &str) -> Machine {
        let is_used = |name: &&str| FEATURES.iter().any(|(known, _)| known == name);
        let names = features.split(',').filter_map(|entry| entry.strip_prefix('+')).filter(is_used);
        Machine { triple: triple.to_owned(), features: names.map(str::to_owned).collect() }
    }

    /// Whether it is an NVIDIA GPU.
    pub fn is_gpu(&self) -> bool {
        self.triple.starts_with("nvptx64-")
    }

    /// # Errors
    /// When this machine is of another kind, or lacks a feature.
    pub fn check(&self) -> Result<(), ArtifactError> {
        let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
        let mut parts = self.triple.split('-');
        if parts.next() != Some(arch) || !parts.any(|part| part == os) {
            return Err(ArtifactError::WrongMachine {
                expected: self.triple.clone(),
                found: format!("{arch}-{os}"),
            });
        }
        let is_here = |name: &String| FEATURES.iter().any(|(known, is_here)| known == name && is_here());
        let missing: Vec<String> = self.features.iter().filter(|name| !is_here(name)).cloned().collect();
        if missing.is_empty() { Ok(()) } else { Err(ArtifactError::MissingFeatures { features: missing }) }
    }
}

/// Extensions that a compiler may use by itself: LLVM's name, and whether this machine has it.
type Feature = (&'static str, fn() -> bool);

/// A table of names as LLVM and as Rust has them, and of those that Rust has not.
macro_rules! features {
    ($detected:ident: $($llvm:literal = $rust:tt),*; $($name:literal = $is_here:expr),* $(,)?) => {
        &[$(($llvm, || std::arch::$detected!($rust)),)* $(($name, || $is_here)),*]
    };
}

#[cfg(target_arch = "x86_64")]
const FEATURES: &[Feature] = features! { is_x86_feature_detected:
    "sse3" = "sse3", "ssse3" = "ssse3", "sse4.1" = "sse4.1", "sse4.2" = "sse4.2", "sse4a" = "sse4a", "tbm" = "tbm",
    "popcnt" = "popcnt", "cx16" = "cmpxchg16b", "lzcnt" = "lzcnt", "movbe" = "movbe", "bmi" = "bmi1", "bmi2" = "bmi2",
    "adx" = "adx", "aes" = "aes", "pclmul" = "pclmulqdq", "sha" = "sha", "gfni" = "gfni", "vaes" = "vaes",
    "vpclmulqdq" = "vpclmulqdq", "avx" = "avx", "avx2" = "avx2", "f16c" = "f16c", "fma" = "fma",
    "avxvnni" = "avxvnni", "avxifma" = "avxifma", "avxneconvert" = "avxneconvert", "avxvnniint8" = "avxvnniint8",
    "avxvnniint16" = "avxvnniint16", "avx512f" = "avx512f", "avx512bw" = "avx512bw", "avx512cd" = "avx512cd",
    "avx512dq" = "avx512dq", "avx512vl" = "avx512vl", "avx512ifma" = "avx512ifma", "avx512vbmi" = "avx512vbmi",
    "avx512vbmi2" = "avx512vbmi2", "avx512vnni" = "avx512vnni", "avx512bitalg" = "avx512bitalg",
    "avx512vpopcntdq" = "avx512vpopcntdq", "avx512vp2intersect" = "avx512vp2intersect",
    "avx512bf16" = "avx512bf16", "avx512fp16" = "avx512fp16";
    "amx-tile" = tiles::is_usable(Extension::Tile), "amx-bf16" = tiles::is_usable(Extension::Bf16),
    "amx-int8" = tiles::is_usable(Extension::Int8),
};

#[cfg(target_arch = "aarch64")]
const FEATURES: &[Feature] = features! { is_aarch64_feature_detected:
    "neon" = "neon", "fullfp16" = "fp16", "fp16fml" = "fhm", "dotprod" = "dotprod", "bf16" = "bf16", "i8mm" = "i8mm",
    "lse" = "lse", "lse2" = "lse2", "rdm" = "rdm", "crc" = "crc", "rcpc" = "rcpc", "jsconv" = "jsconv",
    "complxnum" = "fcma", "sve" = "sve", "sve2" = "sve2", "aes" = "aes", "sha2" = "sha2", "sha3" = "sha3";
};

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> String {
        format!("{}-unknown-{}-gnu", std::env::consts::ARCH, std::env::consts::OS)
    }

    #[test]
    fn only_extensions_that_are_on_and_used_count() {
        let target = Machine::new(&here(), "+64bit,+clzero,-sve");
        assert_eq!(target.features, Vec::<String>::new());
        assert!(target.check().is_ok());
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_feature_that_no_machine_of_today_has_is_missing() {
        // AMD dropped TBM before AVX2; `sve` is a feature of another kind of CPU.
        let mut target = Machine::new(&here(), "+ssse3,+tbm,-avx2");
        assert_eq!(target.features, ["ssse3", "tbm"]);
        target.features.push("sve".to_owned());
        let error = target.check().expect_err("it is missing").to_string();
        assert_eq!(error, "the code needs a CPU with tbm, sve, which this one lacks");
    }

    #[test]
    fn another_kind_of_machine_is_refused() {
        for triple in ["riscv64-unknown-linux-gnu", "", "x86_64-pc-windows-msvc"] {
            let error = Machine::new(triple, "").check().expect_err("it is another machine");
            assert!(matches!(error, ArtifactError::WrongMachine { .. }), "{error}");
        }
    }
}
