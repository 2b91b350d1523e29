//! Assembles kernels of file tests for three architectures of GPUs: no thread of theirs keeps registers in memory, and no product of a warpgroup waits for
//! the one before it.
//!
//! It needs nvJitLink and `ptxas`, which `cargo xtask test` installs; no GPU.

#![allow(missing_docs, reason = "a test")]

use litz::{Backend, Options, Runner, Stage, Text, Verify, pipeline};
use litz_cuda::Assembler;
use litz_ir::kernel::{Kernel, MemorySpace};
use litz_testing::filetest::file::TestFile;
use litz_testing::repository;
use std::path::PathBuf;

/// Targets, and what their code is assembled for.
const TARGETS: [(&str, &str); 3] = [
    ("gpu(isa=sm80, units=108)", "sm_80"),
    ("gpu(isa=sm89, units=132)", "sm_90"),
    ("gpu(isa=sm90, units=2)", "sm_90a"),
];

/// Files of `filetests/run` of all kinds of kernels: elements, rows, columns, products, attention, scans, scatters, sorted rows,
/// random numbers.
const FILES: [&str; 32] = [
    "attention/causal",
    "attention/decoding",
    "attention/grouped",
    "attention/online",
    "gpu/attention_by_warpgroups",
    "gpu/kept_rows",
    "gpu/matrix_product",
    "gpu/packed_attention_by_warpgroups",
    "gpu/ragged_product",
    "gpu/scan",
    "gpu/scattered_parts",
    "gpu/scattered_slabs",
    "gpu/searched_parts",
    "gpu/selected",
    "gpu/short_columns",
    "gpu/softmax",
    "gpu/sorted_rows",
    "gpu/transposition",
    "gpu/two_teams",
    "gpu/weights_of_one_row",
    "index/scatter_add",
    "join/concat",
    "pointwise/half_types",
    "pointwise/random",
    "pointwise/special_values",
    "product/bf16_odd",
    "product/gated_pair",
    "product/warpgroups",
    "product/warpgroups_transposed",
    "reduce/argmax",
    "reduce/cumsum",
    "reduce/online",
];

/// Graphs whose kernels need more registers than those of file tests, too large to be run on the reference device. Those named for it have float32
/// products of tf32.
const GRAPHS: [(&str, &str); 8] = [
    (
        "windows of a convolution",
        "graph @g on cpu {
          %x: bf16[32, 256, 14, 14] = input
          %a: bf16[256, 256, 1, 1] = input
          %w: bf16[256, 256, 3, 3] = input
          %b: bf16[256] = input
          %c: bf16[32, 256, 14, 14] = aten.convolution.default(%x, %a, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
          %h: bf16[32, 256, 14, 14] = aten.relu.default(%c)
          %d: bf16[32, 256, 14, 14] = aten.convolution.default(%h, %w, %b, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
          %y: bf16[32, 256, 14, 14] = aten.relu.default(%d)
          return %y
        }",
    ),
    (
        "attention of 128 features",
        "graph @g on cpu {
          %q: bf16[1, 8, 2048, 128] = input
          %k: bf16[1, 8, 2048, 128] = input
          %v: bf16[1, 8, 2048, 128] = input
          %y: bf16[1, 8, 2048, 128] = aten.scaled_dot_product_attention.default(%q, %k, %v, none, 0.0, false, none, false)
          return %y
        }",
    ),
    (
        "causal attention of 128 features",
        "graph @g on cpu {
          %q: bf16[1, 8, 2048, 128] = input
          %k: bf16[1, 8, 2048, 128] = input
          %v: bf16[1, 8, 2048, 128] = input
          %y: bf16[1, 8, 2048, 128] = aten.scaled_dot_product_attention.default(%q, %k, %v, none, 0.0, true, none, false)
          return %y
        }",
    ),
    (
        "product of 4096 terms",
        "graph @g on cpu {
          %x: bf16[4096, 4096] = input
          %w: bf16[4096, 4096] = input
          %b: bf16[4096] = input
          %y: bf16[4096, 4096] = aten.linear.default(%x, %w, %b)
          return %y
        }",
    ),
    (
        "product of 8-bit floats that sums in few bits",
        "graph @g on cpu {
          %x: f8e4m3[4096, 4096] = input
          %w: f8e4m3[4096, 4096]{1, 4096} = input
          %s: f32[4096, 1] = input
          %t: f32[1, 4096] = input
          %b: bf16[4096] = input
          %y: bf16[4096, 4096] = aten._scaled_mm.default(%x, %w, %s, %t, %b, none, bf16, true)
          %z: bf16[4096, 4096] = aten._scaled_mm.default(%x, %w, %s, %t, %b, none, bf16, false)
          return %y, %z
        }",
    ),
    (
        "product of tf32",
        "graph @g on cpu {
          %x: f32[4096, 1024] = input
          %w: f32[1024, 4096] = input
          %b: f32[4096] = input
          %y: f32[4096, 4096] = aten.addmm.default(%b, %x, %w, 1, 1)
          return %y
        }",
    ),
    (
        "convolution of tf32",
        "graph @g on cpu {
          %x: f32[32, 256, 14, 14] = input
          %w: f32[256, 256, 3, 3] = input
          %b: f32[256] = input
          %d: f32[32, 256, 14, 14] = aten.convolution.default(%x, %w, %b, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
          %y: f32[32, 256, 14, 14] = aten.relu.default(%d)
          return %y
        }",
    ),
    (
        "product of two teams that end with masks",
        "graph @g on cpu {
          %x: bf16[3152, 768] = input
          %w: bf16[3072, 768] = input
          %b: bf16[3072] = input
          %y: bf16[3152, 3072] = aten.linear.default(%x, %w, %b)
          return %y
        }",
    ),
];

/// nvJitLink, and `ptxas` beside it, of the environment that the tests have for it, else of the machine.
fn assembler() -> Option<Assembler> {
    let environment = repository().join("target/nvjitlink/lib");
    let pythons = std::fs::read_dir(environment).into_iter().flatten().filter_map(Result::ok);
    let libraries =
        pythons.map(|python| python.path().join("site-packages/nvidia/cu13/lib/libnvJitLink.so.13"));
    let elsewhere = ["libnvJitLink.so.13", "libnvJitLink.so.12"].map(PathBuf::from);
    libraries.chain(elsewhere).find_map(|path| Assembler::open(&path))
}

/// One of the graphs, or the first text of a file.
fn text(name: &str) -> Result<String, String> {
    match GRAPHS.iter().find(|graph| graph.0 == name) {
        Some(graph) => Ok(graph.1.to_owned()),
        None => {
            let file = TestFile::read(&repository().join("filetests/run").join(format!("{name}.litz")))?;
            file.texts.first().cloned().ok_or_else(|| "it has no text".to_owned())
        }
    }
}

/// The kernels that become of a text.
fn kernels(text: &str, backend: &dyn Backend, options: &Options) -> Result<Vec<Kernel>, String> {
    let mut silent = |_: &str| {};
    let mut run = Runner::new(Verify::Stages, None, &mut silent);
    let texts = match Text::parse(text).map_err(|error| error.to_string())? {
        Text::Graph(graph) => pipeline::compile(graph, backend, options, Stage::Program, &mut run),
        Text::Loops(loops) => pipeline::compile_loops(loops, backend, options, Stage::Program, &mut run),
        Text::Schedule(..) | Text::Kernels(_) | Text::Program(_) => return Err("it is no model".to_owned()),
    };
    let realized = texts.map_err(|error| error.to_string())?.realized;
    Ok(realized.ok_or("nothing was realized")?.kernels)
}

/// The kernels of a graph or file, each with its PTX.
fn listings(name: &str, target: &str) -> Result<Vec<(Kernel, String)>, String> {
    let (target, tf32) = (target.parse().expect("a target"), name.contains("tf32"));
    let options = Options { cache: None, tf32, ..Options::for_target(target) };
    let backend = litz::backend(&options).map_err(|error| error.to_string())?;
    let kernels = kernels(&text(name)?, &*backend, &options)?;
    assert!(!kernels.is_empty(), "{name} has no kernels");
    let listing = |kernel: &Kernel| {
        let text = backend.emit(std::slice::from_ref(kernel)).map_err(|error| error.to_string())?;
        let ptx = backend.listing(&text).map_err(|error| error.to_string())?.expect("PTX is text");
        Ok((kernel.clone(), ptx))
    };
    kernels.iter().map(listing).collect()
}

/// Assembles the kernels of a graph or file; the bytes that spill, with the kernels and their registers in words.
fn spilled(name: &str, assembler: &Assembler, (target, arch): (&str, &str)) -> Result<(u64, String), String> {
    let (mut spilled, mut words) = (0, String::new());
    for (kernel, ptx) in listings(name, target)? {
        let assembled = assembler.assemble(&ptx, arch)?.ok_or("it is left to the driver")?;
        // Registers are not moved (C7504), or products of warpgroups wait for each other (C7510, C7512).
        if ["ignored", "serialized"].iter().any(|word| assembled.log.contains(word)) {
            return Err(assembled.log);
        }
        let registers = assembled.registers().ok_or_else(|| format!("no registers in: {}", assembled.log))?;
        let bytes = assembled.spilled_bytes();
        spilled += bytes;
        let kernel = &kernel.name;
        words += &format!(" @{kernel} has {registers} registers and spills {bytes} bytes");
    }
    Ok((spilled, words))
}

/// The first line of a kernel's PTX that reads or writes memory that other kernels see, the first one that writes it, and that of its waiting for
/// them.
fn first_uses(ptx: &str) -> [Option<usize>; 3] {
    let body = || ptx.lines().enumerate().skip_while(|(_, line)| !line.contains(".entry"));
    // Behind a predicate, if there is one.
    let instruction =
        |line: &str| line.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or("").to_owned();
    const STORES: [&str; 4] = ["st.", "red.", "atom.", "cp.async.bulk.tensor"];
    const LOADS: [&str; 3] = ["ld.", "cp.async", "prefetch"];
    let is_use = |line: &str, kinds: &[&str]| {
        let word = instruction(line);
        let touches = kinds.iter().any(|start| word.starts_with(start));
        let is_own = ["ld.param", ".shared.b", ".shared.v", ".local", "cp.async.commit", "cp.async.wait"];
        touches && (word.contains("global") || !is_own.iter().any(|own| word.contains(own)))
    };
    let first = |test: &dyn Fn(&str) -> bool| body().find(|(_, line)| test(line)).map(|(at, _)| at);
    let all = [&STORES[..], &LOADS[..]].concat();
    let waits = |line: &str| line.contains("griddepcontrol.wait");
    [first(&|line| is_use(line, &all)), first(&|line| is_use(line, &STORES)), first(&waits)]
}

#[test]
fn kernels_that_start_early_wait_before_they_touch_memory() {
    let (mut failures, mut early, mut late) = (Vec::new(), 0, 0);
    for (target, arch) in TARGETS {
        for name in FILES {
            for (kernel, ptx) in listings(name, target).unwrap_or_else(|why| panic!("{name}: {why}")) {
                let [used, stored, waited] = first_uses(&ptx);
                let has = |space| kernel.mems.values().any(|data| data.space == space);
                let is_right = match (arch == "sm_90a", waited) {
                    // What is only read may not be kept where stores of the kernel in front are not seen, unless it is a constant. What is loaded ahead of
                    // a wait is a constant, as the verifier holds of each kernel.
                    (true, Some(waited)) => {
                        let first = if kernel.waits_late() { stored } else { used };
                        let keeps = ptx.contains("ld.global.nc");
                        late += usize::from(used.is_some_and(|used| used < waited));
                        first.is_none_or(|first| waited < first)
                            && (!keeps || has(MemorySpace::Constant) && !kernel.waits_late())
                    }
                    (_, None) => used.is_some(),
                    (false, Some(_)) => false,
                };
                early += usize::from(waited.is_some());
                if !is_right {
                    failures.push(format!(
                        "{name}, {arch}, @{}: waits in line {waited:?}, uses memory in {used:?}",
                        kernel.name
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(early > 20, "{early} kernels start early");
    assert!(late > 0, "{late} kernels load constants ahead of the wait");
}

#[test]
fn kernels_keep_what_they_need_in_registers() {
    let Some(assembler) = assembler() else {
        eprintln!(
            "note: there is no nvJitLink here, which `cargo xtask test` installs: nothing is assembled"
        );
        return;
    };
    assert!(assembler.moves_registers(), "there is nvJitLink, but no ptxas: `cargo xtask test` installs it");
    let mut failures = Vec::new();
    for target in TARGETS {
        for name in FILES.into_iter().chain(GRAPHS.map(|graph| graph.0)) {
            match spilled(name, &assembler, target) {
                Ok((0, _)) => {}
                Ok((bytes, words)) => failures.push(format!("{name}, {}: {bytes} bytes:{words}", target.1)),
                Err(why) => failures.push(format!("{name}, {}: {why}", target.1)),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
