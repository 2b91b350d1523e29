//! Launches kernels without a program, and refuses launches that do not fit them.

use std::sync::Arc;

use litz_ir::text::kernel::parse;
use litz_runtime::RunError;
use litz_runtime::device::MemView;
use litz_runtime::program::Launcher;
use litz_runtime::reference::ReferenceDevice;

fn launcher() -> Launcher {
    let text = "kernel @twice {
  read x: f32[s0]
  write y: f32[s0]
  size s0 in [1, 64] multiple 2
  grid i in s0
  %0: f32 = load x[i]
  %1: f32 = add %0, %0
  y[i] = %1
}
";
    let kernels = [parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]))];
    let device = ReferenceDevice::new(&kernels).expect("it is a kernel");
    Launcher::new(&kernels, Arc::new(device)).expect("the device works in the host's memory")
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn a_kernel_runs_alone() {
    let launcher = launcher();
    assert_eq!(launcher.writes("twice"), Some(vec![false, true]));
    assert_eq!(launcher.writes("thrice"), None);
    let (x, mut y) = (bytes(&[1.0, -2.5, 0.0, 7.0]), bytes(&[9.0; 5]));
    launcher.launch("twice", &mut [MemView::Read(&x), MemView::Write(&mut y)], &[4]).expect("it fits");
    // What is behind the memory of the launch stays as it is.
    assert_eq!(y, bytes(&[2.0, -5.0, 0.0, 14.0, 9.0]));
}

#[test]
fn what_does_not_fit_is_refused() {
    let launcher = launcher();
    let (x, mut y) = (bytes(&[1.0; 4]), bytes(&[9.0; 4]));
    let mut refused = |kernel: &str, is_written: bool, sizes: &[i64], expected: &str| {
        let y = if is_written { MemView::Write(&mut y) } else { MemView::Read(&x) };
        let error = launcher.launch(kernel, &mut [MemView::Read(&x), y], sizes).expect_err(expected);
        assert!(matches!(error, RunError::Bug { .. }) && error.to_string().contains(expected), "{error}");
    };
    refused("thrice", true, &[4], "there is no such kernel");
    refused("twice", true, &[], "expected 2 memories and 1 sizes");
    refused("twice", true, &[3], "a multiple of 2");
    refused("twice", true, &[66], "expected s0 in [1, 64]");
    refused("twice", true, &[6], "expected 24 bytes for memory 0, found 16");
    refused("twice", false, &[4], "given only to be read");
    let error = launcher.launch("twice", &mut [MemView::Read(&x)], &[4]).expect_err("one is missing");
    assert!(error.to_string().contains("found 1 memories"), "{error}");
    assert_eq!(y, bytes(&[9.0; 4]));
}
