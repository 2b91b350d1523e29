//! Writes the file by which `perf` names code that no file on disk has: a line for each kernel, with what its first launch computes.
//!
//! ```text
//! 7f3c2a401000 2c0 k7 layers.3.mlp.up: linear, gelu
//! ```

use litz_ir::program::{Program, ProgramStep};
use litz_runtime::device::Device;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// Nodes that a name mentions, at most.
const MOST_NODES: usize = 4;

/// Adds the kernels of a program to this process's file. Where it cannot be written, `perf` shows addresses, and nothing else is different.
pub(crate) fn write(program: &Program, device: &dyn Device) {
    let lines = lines(program, &device.code());
    let path = PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
    // A link that somebody else has put there is not followed.
    if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return;
    }
    let file = OpenOptions::new().create(true).append(true).open(path);
    let _ = file.and_then(|mut file| file.write_all(lines.as_bytes()));
}

/// A line for each piece of code.
fn lines(program: &Program, code: &[(String, std::ops::Range<usize>)]) -> String {
    let mut lines = String::new();
    for (name, range) in code {
        let what = what(program, name).map_or_else(String::new, |what| format!(" {what}"));
        // Lines end names, and nothing else does.
        let _ = writeln!(lines, "{:x} {:x} {name}{what}", range.start, range.len());
    }
    lines
}

/// The module and the operators of the first launch of a kernel.
fn what(program: &Program, kernel: &str) -> Option<String> {
    let launch = |program: &&Program| {
        program.load.iter().chain(&program.steps).find_map(|step| match step {
            ProgramStep::Launch { kernel: launched, from, .. } if launched == kernel => Some(from.clone()),
            _ => None,
        })
    };
    let programs = program.all();
    let (owner, from) = programs.iter().find_map(|program| Some((program, launch(program)?)))?;
    let nodes: Vec<_> =
        from.iter().filter_map(|name| owner.nodes.iter().find(|node| node.name == *name)).collect();
    let module = nodes.iter().find_map(|node| node.origin.as_ref()?.module.as_deref());
    // `linear` of `aten.linear.default`.
    let operator = |op: &str| op.split('.').nth(1).unwrap_or(op).to_owned();
    let mut operators: Vec<String> = nodes.iter().map(|node| operator(node.op.as_str())).collect();
    if operators.len() > MOST_NODES {
        operators.truncate(MOST_NODES);
        operators.push("..".to_owned());
    }
    let operators = operators.join(", ");
    let what = module.map_or_else(|| operators.clone(), |module| format!("{module}: {operators}"));
    (!what.is_empty()).then(|| what.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::text;

    /// PV-4: what `perf` reads.
    #[test]
    fn kernels_are_named_with_what_they_compute() {
        let program = text::program::parse(
            "program @p on cpu {
               node %l = aten.linear.default at \"m.py:1\" in \"layers.3.up\"
               node %g = aten.gelu.default
               param x: f32[1] alloc y: f32[1]
               launch @k0(x, y) from %l, %g launch @k1(x, y) launch @k2(x, y) from %g, %g, %g, %g, %g
               return y: f32[1] }",
        );
        let program = program.unwrap_or_else(|diags| panic!("{diags:?}"));
        let code = [
            ("k0".to_owned(), 0x1000..0x1040),
            ("k1".to_owned(), 0x1040..0x1100),
            ("k2".to_owned(), 0x1100..0x1101),
        ];
        let expected =
            "1000 40 k0 layers.3.up: linear, gelu\n1040 c0 k1\n1100 1 k2 gelu, gelu, gelu, gelu, ..\n";
        assert_eq!(lines(&program, &code), expected);
    }

    #[test]
    fn machine_code_has_a_place_for_each_kernel() {
        let graph = "graph @g on cpu {\n  %x: f32[64] = input\n  %y: f32[64] = aten.exp.default(%x)\n  return %y\n}\n";
        let graph = text::graph::parse(graph).unwrap_or_else(|diags| panic!("{diags:?}"));
        let model = crate::Model::from_graph(graph, Default::default()).expect("it verifies");
        let options = crate::Options { perf: true, ..crate::Options::default() };
        model.compile(&options).expect("it compiles");
        let path = format!("/tmp/perf-{}.map", std::process::id());
        let written = std::fs::read_to_string(&path).expect("it is written");
        std::fs::remove_file(path).expect("it is ours");
        let line =
            written.lines().find(|line| line.ends_with(" k0 exp")).unwrap_or_else(|| panic!("{written}"));
        let size = line.split(' ').nth(1).and_then(|size| u64::from_str_radix(size, 16).ok());
        assert!(size.is_some_and(|size| size > 16 && size < 1 << 16), "{line}");
    }
}
