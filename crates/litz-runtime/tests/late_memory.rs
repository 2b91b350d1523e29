//! ML-4: what is used before the data says a size is given up before what has that size is made.

use std::collections::HashMap;
use std::sync::Arc;

use litz_ir::{text, verify};
use litz_runtime::Tensor;
use litz_runtime::program::Executable;
use litz_runtime::reference::ReferenceDevice;

const KERNELS: [&str; 2] = [
    "kernel @copy { read x: f32[8192] write t: f32[8192] grid i in 8192 %0: f32 = load x[i] t[i] = %0 }",
    "kernel @fill { read x: f32[8192] write v: f32[u0] size u0 in [0, inf] grid i in u0 %0: f32 = load x[7] v[i] = %0 }",
];

/// The peak of a call in bytes, and its last result, where the early pool is freed in this place.
fn peak(before_size: &str, behind_all: &str) -> (usize, Vec<f32>) {
    let program = format!(
        "program @p on cpu {{
           sym u0 in [0, 1048576]
           param n: i64[]
           param x: f32[8192]
           alloc early: u8[32768]
           view t: f32[8192] = early + 0
           launch @copy(x, t)
           {before_size}
           size u0 = n
           alloc late: u8[4*u0]
           view v: f32[u0] = late + 0
           launch @fill(x, v) sizes(u0)
           alloc y: f32[u0]
           launch @fill(x, y) sizes(u0)
           free late
           {behind_all}
           return y: f32[u0]
         }}"
    );
    let program = text::program::parse(&program).unwrap_or_else(|diags| panic!("{diags:?}"));
    let kernels = KERNELS.map(|text| text::kernel::parse(text).unwrap_or_else(|diags| panic!("{diags:?}")));
    let problems = verify::program::verify(&program);
    assert!(problems.is_empty(), "{problems:?}");
    let device = Arc::new(ReferenceDevice::new(&kernels).expect("the kernels are sound"));
    let weights: HashMap<String, Tensor> = HashMap::new();
    let executable = Executable::new(&program, &kernels, device, &weights).expect("it is sound");
    let x: Vec<f32> = (0..8192).map(|at| at as f32).collect();
    let x = Tensor::from_slice(&[8192], &x).expect("fits");
    let mut last = Vec::new();
    // Plans are made once, and memory is asked for in each call.
    for n in [10_000i64, 3, 10_000] {
        let inputs = [Tensor::scalar(n).expect("fits"), x.clone()];
        let outputs = executable.run(&inputs).expect("the call is right");
        last = outputs[0].tensor().and_then(|tensor| tensor.to_vec::<f32>()).expect("f32");
        assert_eq!(last, vec![7.0; n as usize]);
    }
    (executable.statistics().peak_bytes, last)
}

#[test]
fn an_early_pool_is_free_when_late_memory_is_made() {
    let (early, numbers) = peak("free early", "");
    let (late, same) = peak("", "free early");
    assert_eq!(numbers, same);
    // One more vector of 8192 elements is there where it is freed at the end.
    assert_eq!(late - early, 32768);
}
