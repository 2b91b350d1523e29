//! Finds out what the CPU can do that this process runs on.

use litz_runtime::tiles::{self, Extension};

use crate::llvm;
use crate::processor::{AARCH64_TRIPLE, Isa, Processor, X86_TRIPLE, has_feature};

impl Processor {
    /// The CPU this process runs on, with everything it can do.
    pub fn host() -> Processor {
        let (cpu, mut features) = llvm::host();
        let triple = if cfg!(target_arch = "aarch64") { AARCH64_TRIPLE } else { X86_TRIPLE };
        let isa = host_isa(&features);
        if isa == Isa::Avx512 {
            // Some cores are tuned for 256-bit vectors; our kernels choose their own width.
            features.push_str(",-prefer-256-bit");
        }
        if !tiles::is_usable(Extension::Tile) {
            features = features.replace("+amx-", "-amx-");
        }
        Processor { triple: triple.into(), cpu, features, vector_bits: isa.vector_bits(), isa }
    }
}

fn host_isa(features: &str) -> Isa {
    let has_all = |names: &[&str]| names.iter().all(|name| has_feature(features, name));
    if cfg!(target_arch = "aarch64") {
        Isa::Neon
    } else if has_all(&["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "fma"]) {
        Isa::Avx512
    } else if has_all(&["avx2", "fma"]) {
        Isa::Avx2
    } else {
        Isa::Baseline
    }
}
