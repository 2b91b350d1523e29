//! Weights of integers stay integers when a model is loaded: how much is kept of them.

use litz::{Options, Runner, Stage, Tensor, Verify, pipeline};
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

#[test]
fn packed_integers_are_kept_packed() {
    let packed = "graph @g on cpu {
  %x: f32[1, 256] = input
  %b: u8[128, 128] = const \"b\"
  %s: f16[128, 8] = const \"s\"
  %z: u8[128, 8] = const \"z\"
  %low: u8[128, 128] = aten.__and__.Scalar(%b, 15)
  %high: u8[128, 128] = aten.__rshift__.Scalar(%b, 4)
  %both: u8[128, 128, 2] = aten.stack.default([%low, %high], -1)
  %q: u8[128, 8, 32] = aten.reshape.default(%both, [128, 8, 32])
  %f: f32[128, 8, 32] = aten.to.dtype(%q, f32, false, false, none)
  %zf: f32[128, 8] = aten.to.dtype(%z, f32, false, false, none)
  %zc: f32[128, 8, 1] = aten.unsqueeze.default(%zf, 2)
  %d: f32[128, 8, 32] = aten.sub.Tensor(%f, %zc, 1)
  %sf: f32[128, 8] = aten.to.dtype(%s, f32, false, false, none)
  %sc: f32[128, 8, 1] = aten.unsqueeze.default(%sf, 2)
  %e: f32[128, 8, 32] = aten.mul.Tensor(%d, %sc)
  %w: f32[128, 256] = aten.reshape.default(%e, [128, 256])
  %y: f32[1, 128] = aten.linear.default(%x, %w, none)
  return %y
}";
    let file = 128 * 128 + 3 * 128 * 8;
    assert!((128 * 128..=file).contains(&kept(packed)), "{}", kept(packed));
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
