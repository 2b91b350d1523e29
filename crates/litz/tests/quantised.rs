//! Weights of integers stay integers when a model is loaded: how much is kept of them.

use litz::{Options, Runner, Stage, Tensor, Verify, pipeline};
use litz_analysis::Uses;
use litz_ir::Dtype;
use litz_ir::program::Program;
use litz_ir::text::graph::parse;
use litz_runtime::program::Executable;
use litz_runtime::reference::ReferenceDevice;
use litz_runtime::weights::Weights;
use std::sync::Arc;

/// Zeros for every constant of a program.
struct Zeros<'a>(&'a Program);

impl Weights for Zeros<'_> {
    fn get(&self, name: &str) -> Option<Tensor> {
        let constant = self.0.consts.iter().find(|constant| constant.name == name)?;
        let numbers = |list: &[litz_sym::Expr]| -> Option<Vec<usize>> {
            list.iter().map(|e| usize::try_from(e.as_int()?).ok()).collect()
        };
        let (sizes, strides) = (numbers(&constant.ty.sizes)?, numbers(&constant.ty.strides)?);
        Tensor::zeros(constant.ty.dtype, &sizes, &strides).ok()
    }
}

/// Bytes that are kept after the load, for all calls.
fn kept(text: &str) -> u64 {
    let graph = parse(text).expect("a graph");
    let options = Options::default();
    let backend = litz::backend(&options).expect("there is a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Passes, None, &mut silent);
    let texts =
        pipeline::compile(graph, &*backend, &options, Stage::Program, &mut runner).expect("it compiles");
    assert!(texts.unproved.is_empty());
    let realized = texts.realized.expect("a program");
    let device = Arc::new(ReferenceDevice::new(&realized.kernels).expect("kernels"));
    let executable = Executable::new(&realized.program, &realized.kernels, device, &Zeros(&realized.program))
        .expect("a sound program");
    executable.statistics().kept_bytes
}

#[test]
fn integers_with_scales_are_kept_in_their_type() {
    let scaled = "graph @g on cpu {
  sym m in [1, 64] hint 1
  %x: f32[m, 256] = input
  %q: i8[128, 256] = const \"q\"
  %s: f32[128] = const \"s\"
  %f: f32[128, 256] = aten.to.dtype(%q, f32, false, false, none)
  %c: f32[128, 1] = aten.unsqueeze.default(%s, 1)
  %w: f32[128, 256] = aten.mul.Tensor(%f, %c)
  %y: f32[m, 128] = aten.linear.default(%x, %w, none)
  return %y
}";
    let file = 128 * 256 + 4 * 128;
    assert!((128 * 256..=file).contains(&kept(scaled)), "{}", kept(scaled));
}

/// A product of one row and integers of four bits in groups, with a scale of f16 and a zero point for each.
fn in_groups(columns: u64, terms: u64, group: u64) -> String {
    let (half, groups) = (terms / 2, terms / group);
    format!(
        "graph @g on cpu {{
  %x: f32[1, {terms}] = input
  %b: u8[{columns}, {half}] = const \"b\"
  %s: f16[{columns}, {groups}] = const \"s\"
  %z: u8[{columns}, {groups}] = const \"z\"
  %low: u8[{columns}, {half}] = aten.__and__.Scalar(%b, 15)
  %high: u8[{columns}, {half}] = aten.__rshift__.Scalar(%b, 4)
  %both: u8[{columns}, {half}, 2] = aten.stack.default([%low, %high], -1)
  %q: u8[{columns}, {groups}, {group}] = aten.reshape.default(%both, [{columns}, {groups}, {group}])
  %f: f32[{columns}, {groups}, {group}] = aten.to.dtype(%q, f32, false, false, none)
  %zf: f32[{columns}, {groups}] = aten.to.dtype(%z, f32, false, false, none)
  %zc: f32[{columns}, {groups}, 1] = aten.unsqueeze.default(%zf, 2)
  %d: f32[{columns}, {groups}, {group}] = aten.sub.Tensor(%f, %zc, 1)
  %sf: f32[{columns}, {groups}] = aten.to.dtype(%s, f32, false, false, none)
  %sc: f32[{columns}, {groups}, 1] = aten.unsqueeze.default(%sf, 2)
  %e: f32[{columns}, {groups}, {group}] = aten.mul.Tensor(%d, %sc)
  %w: f32[{columns}, {terms}] = aten.reshape.default(%e, [{columns}, {terms}])
  %y: f32[1, {columns}] = aten.linear.default(%x, %w, none)
  return %y
}}"
    )
}

/// SC-10: what is kept is no more than what the file has.
#[test]
fn packed_integers_are_kept_packed() {
    for group in [128, 64, 32, 16] {
        let (columns, terms) = (64, 512);
        let packed = columns * terms / 2;
        let file = packed + 3 * columns * (terms / group);
        let kept = kept(&in_groups(columns, terms, group));
        assert!((packed..=file * 6 / 5).contains(&kept), "{kept} bytes of {file}, groups of {group}");
    }
}

/// SC-9: a byte for each element.
#[test]
fn a_weight_that_is_only_converted_is_kept_as_it_is() {
    let converted = "graph @g on cpu {
  %x: f32[3, 256] = input
  %q: i8[256, 256] = const \"q\"
  %w: f32[256, 256] = aten.to.dtype(%q, f32, false, false, none)
  %y: f32[3, 256] = aten.mm.default(%x, %w)
  return %y
}";
    assert_eq!(kept(converted), 256 * 256);
}

/// Names and types of the buffers that a graph's loops store.
fn stored(text: &str) -> Vec<(String, Dtype)> {
    let options = Options::default();
    let backend = litz::backend(&options).expect("there is a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Passes, None, &mut silent);
    let graph = parse(text).expect("a graph");
    let texts =
        pipeline::compile(graph, &*backend, &options, Stage::Loops, &mut runner).expect("it compiles");
    let loops = texts.loops.expect("loops");
    let uses = Uses::of(&loops);
    let stored = loops.bufs.iter().filter(|(buf, _)| !uses.writers(*buf).is_empty());
    stored.map(|(_, data)| (data.name.clone(), data.dtype)).collect()
}

/// SC-11: reading fewer bytes is worth a conversion at each tile, reading more is not.
#[test]
fn a_product_takes_in_a_conversion_that_widens_and_none_that_narrows() {
    let widened = "graph @g on cpu {
  %x: i8[128, 256] = input
  %w: f32[256, 64] = const \"w\"
  %f: f32[128, 256] = aten.to.dtype(%x, f32, false, false, none)
  %y: f32[128, 64] = aten.mm.default(%f, %w)
  return %y
}";
    assert!(!stored(widened).iter().any(|(name, _)| name == "f"), "{:?}", stored(widened));
    let narrowed = "graph @g on cpu {
  %x: f32[128, 256] = input
  %w: f16[256, 64] = const \"w\"
  %f: f16[128, 256] = aten.to.dtype(%x, f16, false, false, none)
  %y: f16[128, 64] = aten.mm.default(%f, %w)
  return %y
}";
    let half = ("f".to_string(), Dtype::F16);
    assert!(stored(narrowed).contains(&half), "{:?}", stored(narrowed));
}

#[test]
fn what_other_operators_read_is_computed_at_load() {
    let softmax = "graph @g on cpu {
  %x: f32[64, 64] = input
  %q: i8[64, 64] = const \"q\"
  %f: f32[64, 64] = aten.to.dtype(%q, f32, false, false, none)
  %w: f32[64, 64] = aten.exp.default(%f)
  %y: f32[64, 64] = aten.add.Tensor(%x, %w, 1)
  return %y
}";
    assert_eq!(kept(softmax), 4 * 64 * 64);
}
