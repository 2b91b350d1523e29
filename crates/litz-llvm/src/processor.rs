//! Names the processors that code is made for.

use litz_ir::target::GpuIsa;
use std::borrow::Cow;

/// The vector instruction set that kernels are emitted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// x86-64 with SSE2 only: 128-bit vectors, no fused multiply-add.
    Baseline,
    /// x86-64-v3: 256-bit vectors, fused multiply-add.
    Avx2,
    /// x86-64-v4: 512-bit vectors, masks.
    Avx512,
    /// AArch64 Advanced SIMD: 128-bit vectors, fused multiply-add.
    Neon,
    /// NVIDIA's virtual instruction set, of which the driver makes machine code.
    Ptx,
}

impl Isa {
    /// Width of a vector register.
    pub fn vector_bits(self) -> u32 {
        match self {
            Isa::Baseline | Isa::Neon | Isa::Ptx => 128,
            Isa::Avx2 => 256,
            Isa::Avx512 => 512,
        }
    }
}

/// A processor to compile for. Two equal targets give equal objects for equal text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Processor {
    /// LLVM target triple, such as `x86_64-unknown-linux-gnu`.
    pub triple: String,
    /// LLVM CPU name, such as `znver4`.
    pub cpu: String,
    /// LLVM feature list, such as `+avx2,+fma`; names every feature that [`Processor::has`] may be asked for.
    pub features: String,
    /// Width of a vector register.
    pub vector_bits: u32,
    /// The vector instruction set.
    pub isa: Isa,
}

pub(crate) const X86_TRIPLE: &str = "x86_64-unknown-linux-gnu";
const NVPTX_TRIPLE: &str = "nvptx64-nvidia-cuda";
pub(crate) const AARCH64_TRIPLE: &str = "aarch64-unknown-linux-gnu";

/// Features of x86-64-v3, spelled out for [`Processor::has`].
const AVX2_FEATURES: &str =
    "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave";

impl Processor {
    /// Any x86-64 with AVX2 and FMA (x86-64-v3).
    pub fn avx2() -> Processor {
        Processor::fixed(X86_TRIPLE, "x86-64-v3", AVX2_FEATURES.into(), Isa::Avx2)
    }

    /// Any x86-64 with AVX-512 F, BW, CD, DQ and VL (x86-64-v4).
    pub fn avx512() -> Processor {
        let features =
            format!("{AVX2_FEATURES},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,-prefer-256-bit");
        Processor::fixed(X86_TRIPLE, "x86-64-v4", features, Isa::Avx512)
    }

    /// As [`Processor::avx512`], with dot products of bytes.
    pub fn avx512_vnni() -> Processor {
        let Processor { features, .. } = Processor::avx512();
        Processor::fixed(X86_TRIPLE, "x86-64-v4", features + ",+avx512vnni", Isa::Avx512)
    }

    /// As [`Processor::avx512_vnni`], with dot products of bf16.
    pub fn avx512_bf16() -> Processor {
        let Processor { features, .. } = Processor::avx512_vnni();
        Processor::fixed(X86_TRIPLE, "x86-64-v4", features + ",+avx512bf16", Isa::Avx512)
    }

    /// As [`Processor::avx512_bf16`], with products of matrices in tile registers.
    pub fn amx() -> Processor {
        let Processor { features, .. } = Processor::avx512_bf16();
        Processor::fixed(X86_TRIPLE, "x86-64-v4", features + ",+amx-tile,+amx-bf16", Isa::Avx512)
    }

    /// Any x86-64.
    pub fn baseline() -> Processor {
        Processor::fixed(X86_TRIPLE, "x86-64", "+sse2".into(), Isa::Baseline)
    }

    /// Any AArch64.
    pub fn aarch64() -> Processor {
        Processor::fixed(AARCH64_TRIPLE, "generic", "+neon".into(), Isa::Neon)
    }

    /// A GPU of NVIDIA's, for a driver of CUDA 12.0 or later where its instruction set is as old.
    pub fn gpu(isa: GpuIsa) -> Processor {
        let (cpu, features) = match isa {
            GpuIsa::Sm80 => ("sm_80", "+ptx80"),
            GpuIsa::Sm89 => ("sm_89", "+ptx80"),
            // With the instructions of this architecture alone.
            GpuIsa::Sm90 => ("sm_90a", "+ptx80"),
            GpuIsa::Sm100 => ("sm_100a", "+ptx86"),
        };
        Processor::fixed(NVPTX_TRIPLE, cpu, features.into(), Isa::Ptx)
    }

    /// The same with the version of PTX that a text needs: products of 8-bit floats by a warp are of 8.4, for drivers of CUDA 12.4 and later.
    /// (PTX ISA, `mma`.)
    pub(crate) fn with_instructions_of(&self, ir: &str) -> Cow<'_, Processor> {
        const BYTES: [&str; 2] = [".row.col.f32.e4m3", ".row.col.f32.e5m2"];
        let is_older = self.features == "+ptx80";
        match is_older && BYTES.iter().any(|instruction| ir.contains(instruction)) {
            true => Cow::Owned(Processor { features: "+ptx84".into(), ..self.clone() }),
            false => Cow::Borrowed(self),
        }
    }

    /// Whether the target has an LLVM feature, such as `avx512bf16` or `avx512vnni`.
    pub fn has(&self, feature: &str) -> bool {
        has_feature(&self.features, feature)
    }

    /// Whether a kernel's blocks may start while the kernel before it still runs: GPUs of capability 9.0 and later.
    pub fn starts_kernels_early(&self) -> bool {
        self.capability().is_some_and(|number| number >= 90)
    }

    /// Whether an instruction rounds two floats to bf16, as two halves of a word: GPUs of capability 8.0 and later.
    pub fn rounds_pairs(&self) -> bool {
        self.capability().is_some_and(|number| number >= 80)
    }

    /// The capability of a GPU: 90 of `sm_90a`.
    fn capability(&self) -> Option<u32> {
        self.cpu.strip_prefix("sm_").and_then(|number| number.trim_end_matches('a').parse().ok())
    }

    fn fixed(triple: &str, cpu: &str, features: String, isa: Isa) -> Processor {
        let vector_bits = isa.vector_bits();
        Processor { triple: triple.into(), cpu: cpu.into(), features, vector_bits, isa }
    }
}

pub(crate) fn has_feature(features: &str, feature: &str) -> bool {
    features.split(',').any(|entry| entry.strip_prefix('+') == Some(feature))
}
