//! Provides a host with a few operators, which notes what it was asked for.

#![allow(dead_code, reason = "each test binary uses a part")]

pub mod collectives;
pub mod compiled;

use litz::{Host, HostArg, HostError, HostResult, Tensor};
use litz_ir::Dtype;
use std::sync::{Arc, Mutex};

/// One call: the operator, and strides and elements of each tensor that it was given.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    pub op: String,
    pub strides: Vec<Vec<usize>>,
    pub elements: Vec<Vec<f64>>,
    pub others: Vec<String>,
}

/// The operators, with what the host says of each.
const OPERATORS: [(&str, &str); 24] = [
    // Twice its operand.
    ("mylib.foo.default", "mylib.foo.default(Tensor x) -> Tensor"),
    // As it is in a library of PyTorch's.
    ("mylib.half.default", "mylib::half(Tensor x) -> Tensor"),
    // The three write nothing and give nothing, by three effects.
    ("mylib.log.default", "mylib.log.default(Tensor x) -> () effect log"),
    ("mylib.a.default", "mylib.a.default(Tensor x) -> () effect a"),
    ("mylib.b.default", "mylib.b.default(Tensor x) -> () effect b"),
    // Adds 1 to x and doubles y.
    ("mylib.two.default", "mylib.two.default(Tensor(a!) x, Tensor(b!) y) -> ()"),
    // Adds 1 to x and triples all of ys; gives a copy of the first of them.
    ("mylib.both.default", "mylib.both.default(Tensor(a!)? x, Tensor(b!)[] ys) -> Tensor"),
    // The list reversed, and nothing.
    ("mylib.many.default", "mylib.many.default(Tensor?[] xs, int n, str mode) -> (Tensor[], Tensor?)"),
    ("mylib.exact.default", "mylib.exact.default(Tensor x) -> Tensor exact"),
    // The elements that are positive, one for each, and the rows whose first element is, with their numbers.
    ("mylib.keep.default", "mylib.keep.default(Tensor x) -> Tensor"),
    ("mylib.rows.default", "mylib.rows.default(Tensor x) -> (Tensor, Tensor)"),
    // As the first, but not what was asked for: "nothing", a "type", a "rank".
    ("mylib.wrong.default", "mylib.wrong.default(Tensor x, str how) -> Tensor"),
    // How many elements are positive.
    ("mylib.count.default", "mylib.count.default(Tensor x) -> int"),
    ("mylib.fails.default", "mylib.fails.default(Tensor x) -> Tensor"),
    ("mylib.panics.default", "mylib.panics.default(Tensor x) -> Tensor"),
    ("mylib.short.default", "mylib.short.default(Tensor x) -> Tensor"),
    ("mylib.idle.default", "mylib.idle.default(Tensor x) -> Tensor"),
    // A kernel of Triton: out is x and 1.
    (
        "triton.add_kernel.default",
        "triton.add_kernel.default(Tensor x_ptr, Tensor(a!) out_ptr, int n, int[] grid, int num_warps) -> ()",
    ),
    // One with an order, and what does the same in place.
    ("mylib.inc.default", "mylib.inc.default(Tensor x) -> Tensor effect log"),
    ("mylib.inc_.default", "mylib.inc_.default(Tensor(a!) x) -> Tensor(a!)"),
    // The same without an order.
    ("mylib.up.default", "mylib.up.default(Tensor x) -> Tensor"),
    ("mylib.up_.default", "mylib.up_.default(Tensor(a!) x) -> Tensor(a!)"),
    ("aten.add.Tensor", "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"),
    ("aten.mul.Tensor", "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"),
];

#[derive(Default)]
pub struct Toy {
    calls: Mutex<Vec<Call>>,
    /// How many calls of `mylib.fails` are still to fail.
    pub failures: Mutex<usize>,
}

impl Toy {
    pub fn new() -> Arc<Toy> {
        Arc::default()
    }

    /// The calls since the last time that this was asked.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock().expect("no panic while calls are noted"))
    }
}

impl Host for Toy {
    fn declaration(&self, op: &str) -> Option<String> {
        // Variants of one operator: those of a graph have layouts of their own.
        let of = OPERATORS.iter().find(|(name, _)| *name == op)?;
        Some(of.1.to_owned())
    }

    fn call(
        &self,
        op: &str,
        args: &mut [HostArg<'_>],
        results: &mut [HostResult<'_>],
    ) -> Result<(), HostError> {
        let mut call =
            Call { op: op.to_owned(), strides: Vec::new(), elements: Vec::new(), others: Vec::new() };
        args.iter().try_for_each(|arg| note(arg, &mut call))?;
        self.calls.lock().expect("no panic while calls are noted").push(call);
        match op {
            "mylib.foo.default" | "mylib.exact.default" => {
                results[0].set(&map(&tensor(&args[0])?, |value| 2.0 * value)?)
            }
            "mylib.half.default" => results[0].set(&map(&tensor(&args[0])?, |value| 0.5 * value)?),
            "mylib.log.default" | "mylib.a.default" | "mylib.b.default" => Ok(()),
            "mylib.two.default" => {
                change(&mut args[0], |value| value + 1.0)?;
                change(&mut args[1], |value| 2.0 * value)
            }
            "mylib.inc_.default" | "mylib.up_.default" => change(&mut args[0], |value| value + 1.0),
            "mylib.inc.default" | "mylib.up.default" => {
                results[0].set(&map(&tensor(&args[0])?, |value| value + 1.0)?)
            }
            "triton.add_kernel.default" => {
                let x = tensor(&args[0])?;
                if args[2].int() != i64::try_from(x.numel()).ok() {
                    return Err("expected as many elements as the tensor has".into());
                }
                args[1].tensor_mut().ok_or("expected a tensor")?.write(&map(&x, |value| value + 1.0)?)
            }
            "mylib.both.default" => {
                if args[0].tensor().is_some() {
                    change(&mut args[0], |value| value + 1.0)?;
                }
                let ys = args[1].list_mut().ok_or("expected a list")?;
                ys.iter_mut().try_for_each(|y| change(y, |value| 3.0 * value))?;
                results[0].set(&tensor(&ys[0])?)
            }
            "mylib.many.default" => {
                let xs = args[0].list().ok_or("expected a list")?;
                let xs: Vec<Tensor> =
                    xs.iter().filter(|x| x.tensor().is_some()).map(tensor).collect::<Result<_, _>>()?;
                xs.iter().rev().zip(results).try_for_each(|(x, result)| result.set(x))
            }
            "mylib.fails.default" => {
                let mut failures = self.failures.lock().expect("no panic while failures are counted");
                if *failures > 0 {
                    *failures -= 1;
                    return Err("the library has no licence".into());
                }
                results[0].set(&tensor(&args[0])?)
            }
            "mylib.count.default" => {
                let count = tensor(&args[0])?.to_f64().into_iter().filter(|&value| value > 0.0).count();
                results[0].set(&Tensor::scalar(count as i64)?)
            }
            "mylib.keep.default" => results[0].set(&kept(&tensor(&args[0])?)?),
            "mylib.rows.default" => {
                let x = tensor(&args[0])?;
                let width = x.sizes()[1];
                let values = x.to_f64();
                let rows = values.chunks(width).enumerate().filter(|(_, row)| row[0] > 0.0);
                let (numbers, rows): (Vec<i64>, Vec<&[f64]>) = rows.map(|(at, row)| (at as i64, row)).unzip();
                let rows: Vec<f32> = rows.concat().into_iter().map(|value| value as f32).collect();
                results[0].set(&Tensor::from_slice(&[numbers.len(), width], &rows)?)?;
                results[1].set(&Tensor::from_slice(&[numbers.len()], &numbers)?)
            }
            "mylib.wrong.default" => match args[1].text() {
                Some("nothing") => Ok(()),
                Some("type") => results[0].set(&Tensor::from_slice(&[1], &[1i64])?),
                Some("rank") => results[0].set(&Tensor::from_slice(&[1, 1], &[1.0f32])?),
                _ => results[0].set(&kept(&tensor(&args[0])?)?),
            },
            "mylib.panics.default" => panic!("the library is not there"),
            "mylib.short.default" => results[0].set(&Tensor::from_slice(&[1], &[1.0f32])?),
            "mylib.idle.default" => Ok(()),
            "aten.add.Tensor" => {
                let (x, y) = (tensor(&args[0])?, tensor(&args[1])?);
                let sums: Vec<f32> = x.to_f64().iter().zip(y.to_f64()).map(|(x, y)| (x + y) as f32).collect();
                results[0].set(&Tensor::from_slice(x.sizes(), &sums)?)
            }
            "aten.mul.Tensor" => {
                let (x, y) = (tensor(&args[0])?, tensor(&args[1])?);
                results[0].set(&complex_product(&x, &y)?)
            }
            _ => Err(format!("there is no {op}").into()),
        }
    }
}

fn tensor(arg: &HostArg<'_>) -> Result<Tensor, HostError> {
    arg.tensor().ok_or("expected a tensor")?.to_tensor()
}

/// The elements that are positive.
fn kept(x: &Tensor) -> Result<Tensor, HostError> {
    let values: Vec<f32> =
        x.to_f64().into_iter().filter(|&value| value > 0.0).map(|value| value as f32).collect();
    Ok(Tensor::from_slice(&[values.len()], &values)?)
}

fn map(x: &Tensor, f: impl Fn(f64) -> f64) -> Result<Tensor, HostError> {
    let values: Vec<f32> = x.to_f64().into_iter().map(|value| f(value) as f32).collect();
    Ok(Tensor::from_slice(x.sizes(), &values)?)
}

fn change(arg: &mut HostArg<'_>, f: impl Fn(f64) -> f64) -> Result<(), HostError> {
    let changed = map(&tensor(arg)?, f)?;
    arg.tensor_mut().ok_or("expected a tensor")?.write(&changed)
}

/// Of complex numbers of two f32.
fn complex_product(x: &Tensor, y: &Tensor) -> Result<Tensor, HostError> {
    let parts = |tensor: &Tensor| -> Vec<[f32; 2]> {
        let (parts, _) = tensor.bytes().as_chunks::<4>();
        let parts: Vec<f32> = parts.iter().map(|&bits| f32::from_ne_bytes(bits)).collect();
        parts.as_chunks::<2>().0.to_vec()
    };
    let product = |([a, b], [c, d]): ([f32; 2], [f32; 2])| [a * c - b * d, a * d + b * c];
    let products = parts(x).into_iter().zip(parts(y)).flat_map(product);
    let bytes: Vec<u8> = products.flat_map(f32::to_ne_bytes).collect();
    Ok(Tensor::from_bytes(Dtype::C64, x.sizes(), &bytes)?)
}

fn note(arg: &HostArg<'_>, call: &mut Call) -> Result<(), HostError> {
    match arg {
        HostArg::Tensor(tensor) => {
            call.strides.push(tensor.strides().to_vec());
            let is_complex = matches!(tensor.dtype(), Dtype::C64 | Dtype::C128);
            // What a kernel of Triton's fills may hold anything before.
            let is_filled = call.op.starts_with("triton.") && tensor.is_writable();
            let is_noted = !is_complex && !is_filled;
            call.elements.push(if is_noted { tensor.to_tensor()?.to_f64() } else { Vec::new() });
        }
        HostArg::List(list) => list.items().iter().try_for_each(|item| note(item, call))?,
        HostArg::None => call.others.push("none".into()),
        HostArg::Int(value) => call.others.push(value.to_string()),
        HostArg::Float(value) => call.others.push(format!("{value:?}")),
        HostArg::Bool(value) => call.others.push(value.to_string()),
        HostArg::Complex(parts) => call.others.push(format!("{parts:?}")),
        HostArg::Str(text) => call.others.push(text.as_str().to_owned()),
        HostArg::Dtype(dtype) => call.others.push(format!("{:?}", dtype.dtype())),
        HostArg::Device(device) => call.others.push(format!("{device:?}")),
        HostArg::Strided => call.others.push("strided".into()),
        HostArg::MemoryFormat(format) => call.others.push(format!("format {format}")),
    }
    Ok(())
}
