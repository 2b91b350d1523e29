//! The settings of a test file to targets and options.

use crate::file::TestFile;
use litz::Options;
use litz_cpu::llvm::CpuTarget;
use litz_ir::Dtype;
use litz_schedule::{Mma, TargetInfo};
use std::str::FromStr;

/// What a file asks for.
pub struct Settings {
    /// For stages that know a target only as numbers: by default a CPU with 16 lanes and two threads.
    pub info: TargetInfo,
    /// For stages that write code: by default `avx2`.
    pub cpu: CpuTarget,
    /// Thresholds; numbers do not depend on this machine.
    pub options: Options,
    /// Passes that run before what the folder is about.
    pub passes: Vec<String>,
    /// Slug of the failure that every call ends in.
    pub fails: Option<String>,
}

impl Settings {
    /// Reads the settings of a file; an unknown one is an error.
    pub fn of(file: &TestFile) -> Result<Settings, String> {
        let (mut lanes, mut threads, mut l2_bytes, mut mma) = (16, 2, 1 << 20, Vec::new());
        let mut options = Options { threads: 2, cache: None, ..Options::default() };
        let (mut cpu, mut passes, mut fails) = (CpuTarget::avx2(), Vec::new(), None);
        for (key, value) in &file.settings {
            match key.as_str() {
                "lanes" => lanes = number(key, value)?,
                "threads" => threads = number(key, value)?,
                "chunk_ops" => options.heuristics.chunk_ops = number(key, value)?,
                "block" => options.heuristics.block = number(key, value)?,
                "partial_sum" => options.heuristics.partial_sum = number(key, value)?,
                "mma" => mma = value.split(", ").map(matrix_instruction).collect::<Result<_, _>>()?,
                "l2_bytes" => l2_bytes = number(key, value)?,
                "target" => cpu = cpu_target(value)?,
                "passes" => passes = value.split(", ").map(str::to_owned).collect(),
                "fails" => fails = Some(value.clone()),
                _ => return Err(format!("unknown setting `{key}`")),
            }
        }
        let name = match lanes {
            16 => format!("cpu(isa=avx512, threads={threads})"),
            _ => format!("cpu(lanes={lanes}, threads={threads})"),
        };
        let info = TargetInfo {
            name,
            vector_bytes: 4 * lanes,
            vector_registers: if lanes == 16 { 32 } else { 16 },
            threads,
            l1_bytes: 32 << 10,
            l2_bytes,
            mma,
        };
        Ok(Settings { info, cpu, options, passes, fails })
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("expected a number as `{key}`, found `{value}`"))
}

/// `bf16 16x16x32`: type, rows, columns, depth. Groups fill 32 bits.
fn matrix_instruction(text: &str) -> Result<Mma, String> {
    let malformed = || format!("expected an instruction such as `bf16 16x16x32`, found `{text}`");
    let (dtype, sizes) = text.split_once(' ').ok_or_else(malformed)?;
    let dtype = Dtype::ALL.into_iter().find(|d| d.name() == dtype).ok_or_else(malformed)?;
    let sizes: Vec<u32> = sizes.split('x').map(|n| number("mma", n)).collect::<Result<_, _>>()?;
    let &[rows, columns, depth] = &sizes[..] else { return Err(malformed()) };
    Ok(Mma { dtype, rows, columns, depth, group: 4 / dtype.size() as u32 })
}

fn cpu_target(name: &str) -> Result<CpuTarget, String> {
    match name {
        "baseline" => Ok(CpuTarget::baseline()),
        "avx2" => Ok(CpuTarget::avx2()),
        "avx512" => Ok(CpuTarget::avx512()),
        "avx512_bf16" => Ok(CpuTarget::avx512_bf16()),
        "amx" => Ok(CpuTarget::amx()),
        "aarch64" => Ok(CpuTarget::aarch64()),
        _ => Err(format!("unknown target `{name}`")),
    }
}
