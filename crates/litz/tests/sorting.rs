//! Sorts rows by kernels of a GPU, which the reference device runs: results are those of the host's routines, bit by bit.

#![allow(missing_docs, reason = "a test")]

use litz::target::{Cpu, Gpu, GpuIsa, Isa};
use litz::{Model, Options, Target, Tensor, Value, Verify};
use litz_ir::Dtype;
use litz_ir::program::ProgramStep;
use std::collections::HashMap;

/// Few units, so that few rows are several blocks' as well.
const TARGET: Target = Target::Gpu(Gpu::new(GpuIsa::Sm80, 2));

/// What is sorted: an operand and the call, along which dimension, and how many are wanted of it.
#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: Dtype,
    sizes: [usize; 3],
    dim: usize,
    /// All, where none.
    wanted: Option<usize>,
    is_descending: bool,
    /// Whether sizes are symbols, the length of rows up to this.
    symbolic: Option<usize>,
}

impl Case {
    fn graph(&self) -> String {
        let Case { dtype, sizes, dim, wanted, is_descending, symbolic } = *self;
        let results = sizes.map(|size| size.to_string());
        let (mut operand, mut results) = (results.clone(), results);
        let mut symbols = String::new();
        if let Some(most) = symbolic {
            for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
                let most = if at == dim { most } else { 9 };
                symbols += &format!("  sym {name} in [0, {most}]\n");
                operand[at] = name.to_owned();
                results[at] = name.to_owned();
            }
        }
        if let Some(wanted) = wanted {
            results[dim] = wanted.to_string();
        }
        let call = match wanted {
            Some(wanted) => format!("aten.topk.default(%x, {wanted}, {dim}, {is_descending}, true)"),
            None => format!("aten.sort.default(%x, {dim}, {is_descending})"),
        };
        let (operand, results) = (operand.join(", "), results.join(", "));
        format!(
            "graph @g on cpu {{\n{symbols}  %x: {dtype}[{operand}] = input\n  \
             %v: {dtype}[{results}], %i: i64[{results}] = {call}\n  return %v, %i\n}}\n"
        )
    }

    fn compile(&self, target: Target) -> litz::Compiled {
        let graph = self.graph();
        let graph =
            litz_ir::text::graph::parse(&graph).unwrap_or_else(|diags| panic!("{}\n{graph}", diags[0]));
        let model = Model::from_graph(graph, HashMap::new()).expect("it is a graph");
        let options = Options { verify: Verify::Passes, reference: true, ..Options::for_target(target) };
        model.compile(&options).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Holds kernels against the host, for elements of all kinds.
    fn check(&self) {
        let of_host = Target::Cpu(Cpu::new(Isa::Avx2, 1));
        let [host, gpu] = [of_host, TARGET].map(|target| self.compile(target));
        let steps = &gpu.texts.realized.as_ref().expect("it is realized").program.steps;
        assert!(!steps.iter().any(|step| matches!(step, ProgramStep::Extern { .. })), "{self:?}");
        for kind in [Kind::Few, Kind::Any, Kind::Equal, Kind::Special, Kind::Rising] {
            let x = elements(self.dtype, self.sizes, kind);
            let run = |compiled: &litz::Compiled| -> Vec<Vec<u8>> {
                let results = compiled.run(std::slice::from_ref(&x));
                let results = results.unwrap_or_else(|error| panic!("{self:?}: {error}"));
                let bytes = |value: &Value| match value {
                    Value::Tensor(tensor) => tensor.to_contiguous().expect("a copy").bytes().to_vec(),
                    other => panic!("expected a tensor, found {other:?}"),
                };
                results.iter().map(bytes).collect()
            };
            assert!(run(&gpu) == run(&host), "{self:?} {kind:?}");
        }
    }
}

/// What elements are like.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Few values, which many have.
    Few,
    /// Any bits.
    Any,
    /// One value.
    Equal,
    /// Zeros of both signs, NaN of both, infinities, largest and smallest integers.
    Special,
    /// In order, but for the last of them.
    Rising,
}

fn elements(dtype: Dtype, sizes: [usize; 3], kind: Kind) -> Tensor {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let size = dtype.size();
    let sign = 1u64 << (8 * size - 1);
    // Exponents of all ones, and the lowest of them.
    let (infinite, one): (u64, u64) = match dtype {
        Dtype::F16 => (0x7c00, 0x3c00),
        Dtype::BF16 => (0x7f80, 0x3f80),
        Dtype::F32 => (0x7f80_0000, 0x3f80_0000),
        Dtype::F64 => (0x7ff0_0000_0000_0000, 0x3ff0_0000_0000_0000),
        _ => (sign - 1, 1),
    };
    let special = [0, sign, infinite, infinite | sign, infinite | 1, infinite | 1 | sign, one, one | sign];
    let count: usize = sizes.iter().product();
    let bits = (0..count as u64).map(|at| match kind {
        Kind::Few => one.wrapping_add(next() % 7) ^ (next() & sign),
        Kind::Any => next(),
        Kind::Equal => one,
        Kind::Special => special[(next() % 8) as usize],
        Kind::Rising => one + (at + 3) % count as u64,
    });
    let is_bool = dtype == Dtype::Bool;
    let bytes =
        bits.flat_map(|bits| (if is_bool { bits & 1 } else { bits }).to_le_bytes().into_iter().take(size));
    Tensor::from_bytes(dtype, &sizes, &bytes.collect::<Vec<u8>>()).expect("so many elements")
}

const DTYPES: [Dtype; 13] = [
    Dtype::Bool,
    Dtype::U8,
    Dtype::I8,
    Dtype::U16,
    Dtype::I16,
    Dtype::U32,
    Dtype::I32,
    Dtype::U64,
    Dtype::I64,
    Dtype::F16,
    Dtype::BF16,
    Dtype::F32,
    Dtype::F64,
];

const ROW: Case = Case {
    dtype: Dtype::F32,
    sizes: [2, 1, 100],
    dim: 2,
    wanted: None,
    is_descending: false,
    symbolic: None,
};

#[test]
fn rows_of_all_types_are_sorted() {
    for dtype in DTYPES {
        for (sizes, dim, wanted, is_descending) in [
            ([2, 1, 100], 2, None, false),
            ([2, 70, 3], 1, None, true),
            ([2, 1, 200], 2, Some(7), true),
            ([65, 2, 1], 0, Some(64), false),
        ] {
            Case { dtype, sizes, dim, wanted, is_descending, ..ROW }.check();
        }
    }
}

#[test]
fn rows_of_few_elements_are_sorted() {
    for length in [1, 2, 3, 31, 32, 33, 64, 65, 513] {
        for wanted in [None, Some(1), Some(length / 2), Some(length)] {
            Case { sizes: [1, 3, length], wanted, is_descending: true, ..ROW }.check();
        }
    }
}

#[test]
fn nothing_is_sorted() {
    Case { sizes: [2, 1, 0], ..ROW }.check();
    Case { sizes: [0, 1, 5], ..ROW }.check();
    Case { wanted: Some(0), ..ROW }.check();
    Case { sizes: [2, 0, 5], wanted: Some(2), ..ROW }.check();
}

#[test]
fn the_first_of_long_rows_are_found() {
    for (dtype, sizes, dim, wanted) in [
        (Dtype::F32, [1, 1, 2049], 2, 1),
        (Dtype::F32, [5, 1, 5000], 2, 50),
        (Dtype::BF16, [2, 2500, 3], 1, 33),
        (Dtype::I64, [1, 1, 20_011], 2, 1024),
        (Dtype::F64, [1, 1, 40_000], 2, 200),
        (Dtype::U8, [4, 1, 9000], 2, 64),
        (Dtype::F32, [1, 1, 100_000], 2, 5),
    ] {
        Case { dtype, sizes, dim, wanted: Some(wanted), is_descending: true, ..ROW }.check();
    }
}

#[test]
fn long_rows_are_sorted() {
    for (dtype, sizes, dim, wanted, is_descending) in [
        (Dtype::F32, [1, 1, 2049], 2, None, false),
        (Dtype::F16, [2, 1, 4096], 2, None, true),
        (Dtype::I32, [1, 2500, 2], 1, None, true),
        (Dtype::F64, [1, 1, 5000], 2, Some(2000), false),
        (Dtype::Bool, [1, 1, 9000], 2, None, true),
    ] {
        Case { dtype, sizes, dim, wanted, is_descending, ..ROW }.check();
    }
}

#[test]
fn rows_of_sizes_that_are_no_constants_are_sorted() {
    for (sizes, dim, wanted, most) in [
        ([3, 2, 77], 2, None, 200),
        ([3, 50, 2], 1, Some(5), 2048),
        ([1, 2, 3000], 2, None, 10_000),
        ([1, 1, 100], 2, None, 10_000),
        ([1, 1, 3000], 2, Some(60), 1 << 30),
        ([3, 1, 70], 2, Some(60), 1 << 20),
    ] {
        Case { sizes, dim, wanted, symbolic: Some(most), ..ROW }.check();
    }
}
