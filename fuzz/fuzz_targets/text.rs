//! Any text as each of the five IRs: what parses prints, parses back to the same text, and verifies or not, but never
//! panics; and sound loops can be scheduled and realised.

#![no_main]

use libfuzzer_sys::fuzz_target;
use litz_ir::{loops::Loops, text, verify};
use litz_schedule::{Heuristics, TargetInfo};

/// Parses `$text`, and checks that what it says prints and parses back; gives what it says.
macro_rules! round_trip {
    ($ir:ident, $text:expr) => {
        text::$ir::parse($text).ok().inspect(|parsed| {
            let printed = parsed.to_string();
            let again = text::$ir::parse(&printed).unwrap_or_else(|diags| panic!("{}\n{printed}", diags[0]));
            assert_eq!(again.to_string(), printed);
        })
    };
}

fn target() -> TargetInfo {
    "cpu(isa=avx2, threads=2)".parse().expect("a target")
}

fn compile(loops: &Loops) {
    let outcome = litz_schedule::schedule(loops, &target(), &Heuristics::default());
    verify::schedule::verify(&outcome.schedule, loops);
    let Ok(realized) = litz_codegen::realize(loops, &outcome.schedule) else { return };
    for kernel in &realized.kernels {
        verify::kernel::verify(kernel);
    }
    verify::program::verify(&realized.program);
}

fuzz_target!(|source: &str| {
    if let Some(graph) = round_trip!(graph, source) {
        verify::graph::verify(&graph);
    }
    if let Some(kernel) = round_trip!(kernel, source) {
        verify::kernel::verify(&kernel);
    }
    if let Some(program) = round_trip!(program, source) {
        verify::program::verify(&program);
    }
    if let Some(schedule) = round_trip!(schedule, source) {
        verify::schedule::verify(&schedule, &Loops::new("product", litz_ir::graph::Device::Cpu));
    }
    if let Some(loops) = round_trip!(loops, source)
        && verify::loops::verify(&loops).is_empty()
    {
        compile(&loops);
    }
});
