//! Calls operators that somebody else computes: the trait [`Host`], and what it is given, in a layout that C knows.
//!
//! ```
//! use litz_runtime::host::{Host, HostArg, HostError, HostResult};
//! use litz_runtime::Tensor;
//!
//! struct Doubles;
//!
//! impl Host for Doubles {
//!     fn declaration(&self, op: &str) -> Option<String> {
//!         (op == "mylib.double.default").then(|| "mylib.double.default(Tensor x) -> Tensor contiguous".into())
//!     }
//!
//!     fn call(
//!         &self,
//!         _op: &str,
//!         args: &mut [HostArg<'_>],
//!         results: &mut [HostResult<'_>],
//!     ) -> Result<(), HostError> {
//!         let x = args[0].tensor().ok_or("expected a tensor")?.to_tensor()?;
//!         let values = x.to_vec::<f32>().ok_or("expected f32")?;
//!         let doubled: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
//!         results[0].set(&Tensor::from_slice(x.sizes(), &doubled)?)
//!     }
//! }
//! ```

mod builtin;
mod kept;

pub use builtin::BuiltIn;
pub(crate) use kept::Kept;

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use litz_ir::Dtype;
use litz_ir::call::{CallArg, CallResult, TAKE};
use litz_ir::graph::{Device, MemoryFormat};

use crate::error::RunError;
use crate::tensor::{Tensor, TensorView, copy_strided};

/// Why the host could not do what it was asked for.
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

/// Somebody who computes operators that Litz does not: a library of kernels, an interpreter of Python.
///
/// Calls come one after another from the thread that calls the executable, and from several threads where several call it.
/// What a call is given is there until it returns, and lies in the host's memory, but for a host that [takes](Host::takes_device_memory) what a GPU
/// has. An error ends the call of the program, and so does a
/// panic; the executable can be called again.
pub trait Host: Send + Sync {
    /// What it says of an operator that it has, such as `mylib.foo.default`: PyTorch's schema, then how operands have to lie and
    /// the effect of a call where it has one, as in the text of graphs:
    /// `mylib.foo.default(Tensor x, Tensor(a!) out, int n) -> Tensor contiguous effect log`. None where it does not have it.
    fn declaration(&self, op: &str) -> Option<String>;

    /// Runs an operator. There is one argument for each of its schema's, and one result for each tensor that it returns, those of
    /// lists one by one; a number is a tensor without dimensions, of i64, f64 or bool. Each result that is wanted has to be set; what the schema says is written may be written.
    ///
    /// # Errors
    /// Whatever keeps it from doing so.
    fn call(
        &self,
        op: &str,
        args: &mut [HostArg<'_>],
        results: &mut [HostResult<'_>],
    ) -> Result<(), HostError>;

    /// Whether tensors of a call may be where a GPU has them, as it works there on the stream that the caller of the program gave: what it
    /// enqueues comes behind what made its operands, nobody waits for either, and the call returns when all is enqueued. It is asked of programs
    /// on one GPU that run on such a stream, and of operators that decide no sizes; all others get copies in the host's memory.
    fn takes_device_memory(&self) -> bool {
        false
    }
}

/// An element type, by the number that PyTorch's `c10::ScalarType` has for it.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScalarType(pub u32);

/// A device: kind 0 is the CPU, 1 an NVIDIA GPU.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostDevice {
    /// What it is.
    pub kind: u32,
    /// Which of them.
    pub index: u32,
}

impl HostDevice {
    /// The CPU, and the host's memory.
    pub const CPU: HostDevice = HostDevice { kind: 0, index: 0 };

    /// That of a graph.
    fn of(device: Device) -> HostDevice {
        match device {
            Device::Cpu => HostDevice::CPU,
            Device::Cuda(index) => HostDevice { kind: 1, index },
            // PyTorch's number of devices that it does not know itself.
            Device::Ref(index) => HostDevice { kind: 20, index },
        }
    }
}

/// A tensor: element `[i, j, ..]` is at `data + size of an element * (i*strides[0] + j*strides[1] + ..)`.
#[repr(C)]
pub struct HostTensor<'a> {
    data: *mut u8,
    /// From the first element to the last.
    bytes: usize,
    rank: usize,
    sizes: *const usize,
    strides: *const usize,
    dtype: ScalarType,
    is_writable: bool,
    is_shared: bool,
    device: HostDevice,
    borrow: PhantomData<&'a mut [u8]>,
}

/// Text in UTF-8.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostStr<'a> {
    data: *const u8,
    bytes: usize,
    borrow: PhantomData<&'a str>,
}

/// Arguments in a row.
#[repr(C)]
pub struct HostList<'a> {
    items: *mut HostArg<'a>,
    count: usize,
}

/// An argument: in C a number that says which, and a union.
#[repr(C, u32)]
pub enum HostArg<'a> {
    /// Nothing given.
    None,
    /// A tensor.
    Tensor(HostTensor<'a>),
    /// A list, of anything.
    List(HostList<'a>),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A complex number.
    Complex([f64; 2]),
    /// Text.
    Str(HostStr<'a>),
    /// An element type.
    Dtype(ScalarType),
    /// A device.
    Device(HostDevice),
    /// Strided, the only layout there is.
    Strided,
    /// A choice of strides, by the number that PyTorch's `c10::MemoryFormat` has for it.
    MemoryFormat(u32),
}

/// A result: memory that is there, and how much of it the host has written. Where the operator decides its sizes, there is memory when it
/// has: see [`HostResult::allocate`].
#[repr(C)]
pub struct HostResult<'a> {
    tensor: HostTensor<'a>,
    /// Elements that the host says it has written.
    written: usize,
    is_wanted: bool,
    /// The type of elements where the operator decides sizes, else [`GIVEN`]. `tensor` is a vector then, for a number and the sizes.
    decided: ScalarType,
    /// What the host gave where it decides sizes: a pointer.
    kept: Option<Box<Tensor>>,
}

/// The type of elements of results whose sizes are given.
const GIVEN: ScalarType = ScalarType(u32::MAX);

impl ScalarType {
    /// The number of a type.
    pub fn of(dtype: Dtype) -> ScalarType {
        ScalarType(match dtype {
            Dtype::U8 => 0,
            Dtype::I8 => 1,
            Dtype::I16 => 2,
            Dtype::I32 => 3,
            Dtype::I64 => 4,
            Dtype::F16 => 5,
            Dtype::F32 => 6,
            Dtype::F64 => 7,
            Dtype::C64 => 9,
            Dtype::C128 => 10,
            Dtype::Bool => 11,
            Dtype::BF16 => 15,
            Dtype::F8E5M2 => 23,
            Dtype::F8E4M3 => 24,
            Dtype::U16 => 27,
            Dtype::U32 => 28,
            Dtype::U64 => 29,
        })
    }

    /// The type of a number; none where Litz has no such type.
    pub fn dtype(self) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|&dtype| ScalarType::of(dtype) == self)
    }
}

impl<'a> HostTensor<'a> {
    /// A tensor of `operand`. Whoever makes it sees to it that the memory is there for `'a`, that nothing else writes it, and
    /// that nothing else reads it where it is writable, but for others of the call that are shared.
    fn new(operand: &'a Operand, is_writable: bool) -> HostTensor<'a> {
        HostTensor {
            data: operand.data,
            bytes: operand.bytes,
            rank: operand.sizes.len(),
            sizes: operand.sizes.as_ptr(),
            strides: operand.strides.as_ptr(),
            dtype: ScalarType::of(operand.dtype),
            is_writable,
            is_shared: operand.is_shared,
            device: HostDevice::of(operand.device),
            borrow: PhantomData,
        }
    }

    /// Where the elements are: addresses in the memory of a GPU mean something there alone.
    pub fn device(&self) -> HostDevice {
        self.device
    }

    /// The address of the first element. Without elements there is none.
    pub fn data(&self) -> *mut u8 {
        self.data
    }

    /// Type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype.dtype().expect("invariant: tensors are made of types that Litz has")
    }

    /// Extent of each dimension.
    pub fn sizes(&self) -> &[usize] {
        // SAFETY: whoever made the tensor has as many sizes as it has dimensions.
        unsafe { std::slice::from_raw_parts(self.sizes, self.rank) }
    }

    /// Elements between neighbours along each dimension.
    pub fn strides(&self) -> &[usize] {
        // SAFETY: whoever made the tensor has as many strides as it has dimensions.
        unsafe { std::slice::from_raw_parts(self.strides, self.rank) }
    }

    /// Whether the operator may write to it.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Whether it may have elements in common with other tensors of the call, of which one is written. What is written to one of them is
    /// seen in the others.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The elements where they are. None where the tensor is shared, as they may change then while somebody has the view, and where they are
    /// in the memory of a GPU.
    pub fn view(&self) -> Option<TensorView<'_>> {
        if self.is_shared || self.device != HostDevice::CPU {
            return None;
        }
        // SAFETY: whoever made the tensor has found the memory as large as its sizes and strides reach.
        let view = unsafe { TensorView::from_raw(self.dtype(), self.sizes(), self.strides(), self.data) };
        Some(view.expect("invariant: sizes and strides are as many, and their span was found"))
    }

    /// A contiguous copy.
    ///
    /// # Errors
    /// Where there is no memory for it, and where the elements are in the memory of a GPU.
    pub fn to_tensor(&self) -> Result<Tensor, HostError> {
        self.check_is_of_host()?;
        let sizes = self.sizes();
        let mut copy = Tensor::zeros(self.dtype(), sizes, &crate::tensor::contiguous_strides(sizes))?;
        let strides = copy.strides().to_vec();
        let bytes = copy.bytes_mut().expect("invariant: nothing shares a fresh tensor");
        copy_strided(self.dtype().size(), sizes, (self.bytes(), self.strides()), (bytes, &strides));
        Ok(copy)
    }

    /// Writes all elements.
    ///
    /// # Errors
    /// Where the operator may not write to it, where type or sizes are others, and where the elements are in the memory of a GPU.
    pub fn write(&mut self, contents: &Tensor) -> Result<(), HostError> {
        self.check_is_of_host()?;
        if !self.is_writable {
            return Err("the operator's declaration does not say that it writes to this argument".into());
        }
        let (dtype, sizes) = (self.dtype(), self.sizes());
        if (dtype, sizes) != (contents.dtype(), contents.sizes()) {
            let (found, given) = (contents.dtype(), contents.sizes());
            return Err(format!("expected {dtype}{sizes:?}, found {found}{given:?}").into());
        }
        if self.bytes > 0 {
            // SAFETY: the memory is as large as this, and nothing else is reading or writing it: of shared tensors there are no
            // references, and what reads another one of them is over when it returns.
            let bytes = unsafe { std::slice::from_raw_parts_mut(self.data, self.bytes) };
            let from = (contents.bytes(), contents.strides());
            copy_strided(dtype.size(), sizes, from, (bytes, self.strides()));
        }
        Ok(())
    }

    fn check_is_of_host(&self) -> Result<(), HostError> {
        match self.device {
            HostDevice::CPU => Ok(()),
            HostDevice { kind, index } => Err(format!(
                "the tensor is in the memory of device {index} of kind {kind}, which the CPU cannot reach"
            )
            .into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the memory is as large as this, and nothing writes it meanwhile but this tensor, or one that shares it, which it does
        // in a call of its own.
        unsafe { std::slice::from_raw_parts(self.data, self.bytes) }
    }
}

impl<'a> HostStr<'a> {
    fn new(text: &'a str) -> HostStr<'a> {
        HostStr { data: text.as_ptr(), bytes: text.len(), borrow: PhantomData }
    }

    /// The text.
    pub fn as_str(&self) -> &'a str {
        // SAFETY: it was made of a text that lives as long.
        unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(self.data, self.bytes)) }
    }
}

impl<'a> HostList<'a> {
    /// The arguments.
    pub fn items(&self) -> &[HostArg<'a>] {
        // SAFETY: it was made of so many arguments, which live as long.
        unsafe { std::slice::from_raw_parts(self.items, self.count) }
    }

    /// The arguments, to be written to.
    pub fn items_mut(&mut self) -> &mut [HostArg<'a>] {
        // SAFETY: as above, and nothing else refers to them.
        unsafe { std::slice::from_raw_parts_mut(self.items, self.count) }
    }
}

impl<'a> HostArg<'a> {
    /// The tensor, when this is one.
    pub fn tensor(&self) -> Option<&HostTensor<'a>> {
        if let HostArg::Tensor(tensor) = self { Some(tensor) } else { None }
    }

    /// The tensor, when this is one, to be written to.
    pub fn tensor_mut(&mut self) -> Option<&mut HostTensor<'a>> {
        if let HostArg::Tensor(tensor) = self { Some(tensor) } else { None }
    }

    /// The integer, when this is one.
    pub fn int(&self) -> Option<i64> {
        if let HostArg::Int(value) = self { Some(*value) } else { None }
    }

    /// The list, when this is one.
    pub fn list(&self) -> Option<&[HostArg<'a>]> {
        if let HostArg::List(list) = self { Some(list.items()) } else { None }
    }

    /// The list, when this is one, to be written to.
    pub fn list_mut(&mut self) -> Option<&mut [HostArg<'a>]> {
        if let HostArg::List(list) = self { Some(list.items_mut()) } else { None }
    }

    /// The text, when this is one.
    pub fn text(&self) -> Option<&'a str> {
        if let HostArg::Str(text) = self { Some(text.as_str()) } else { None }
    }
}

impl<'a> HostResult<'a> {
    /// Whether anybody reads it. One that nobody reads may be left out.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// The type of the elements, where the operator decides the sizes.
    pub fn decides(&self) -> Option<Dtype> {
        if self.decided == GIVEN { None } else { self.decided.dtype() }
    }

    /// Where it goes: its type, sizes and strides, and memory for them. Without dimensions where nobody wants it. It says nothing of a result
    /// whose sizes the operator decides.
    pub fn tensor(&mut self) -> &mut HostTensor<'a> {
        &mut self.tensor
    }

    /// Writes the result.
    ///
    /// # Errors
    /// Where type or sizes are others than the file records.
    pub fn set(&mut self, contents: &Tensor) -> Result<(), HostError> {
        if !self.is_wanted {
            return Ok(());
        }
        if let Some(dtype) = self.decides() {
            if contents.dtype() != dtype {
                return Err(format!("expected {dtype}, found {}", contents.dtype()).into());
            }
            let target = self.allocate(contents.sizes())?;
            let bytes = target.bytes_mut().expect("invariant: nothing shares a fresh tensor");
            let strides = crate::tensor::contiguous_strides(contents.sizes());
            let from = (contents.bytes(), contents.strides());
            copy_strided(dtype.size(), contents.sizes(), from, (bytes, &strides));
            return Ok(());
        }
        self.tensor.write(contents)?;
        self.written = contents.numel();
        Ok(())
    }

    /// Memory, row by row, of a result whose sizes the operator decides, which the host writes. It has as many dimensions as the file records.
    ///
    /// # Errors
    /// Where the sizes of this result are given, where there is another number of them, and where there is no memory.
    pub fn allocate(&mut self, sizes: &[usize]) -> Result<&mut Tensor, HostError> {
        let dtype = self.decides().ok_or("the sizes of this result are given")?;
        let rank = self.tensor.sizes().iter().product::<usize>() - 1;
        if sizes.len() != rank {
            return Err(format!("expected {rank} dimensions, found {}", sizes.len()).into());
        }
        let strides = crate::tensor::contiguous_strides(sizes);
        let tensor = Tensor::zeros(dtype, sizes, &strides)?;
        self.written = rank + 1;
        Ok(self.kept.insert(Box::new(tensor)))
    }

    /// Says how many elements were written by way of [`HostTensor::data`].
    pub fn note_written(&mut self, elements: usize) {
        self.written = elements;
    }
}

/// A tensor of a call.
pub(crate) struct Operand {
    pub(crate) data: *mut u8,
    /// From the first element to the last.
    pub(crate) bytes: usize,
    pub(crate) dtype: Dtype,
    pub(crate) sizes: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    /// Whether another operand of the call may have elements in common with it, and one of the two is written.
    pub(crate) is_shared: bool,
    /// Whose memory it is in.
    pub(crate) device: Device,
}

/// A call, of which tensors and integers are given by position.
pub(crate) struct Call {
    pub(crate) op: String,
    pub(crate) args: Vec<CallArg<usize>>,
    pub(crate) results: Vec<CallResult<usize>>,
    /// The user's source line, where it is known.
    pub(crate) source: Option<String>,
}

/// The host of an executable, and what it was asked for.
#[derive(Default)]
pub(crate) struct Hosted {
    host: Option<Arc<dyn Host>>,
    counters: Mutex<BTreeMap<String, Arc<Counter>>>,
}

#[derive(Default)]
struct Counter {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
    bytes: AtomicU64,
}

/// How often an operator of the host was called, and what that took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostCalls {
    /// The operator.
    pub op: String,
    /// Calls, those that failed among them.
    pub calls: u64,
    /// Time that all of them took together.
    pub time: Duration,
    /// Bytes of all operands and results of all of them, each from its first element to its last.
    pub bytes: u64,
}

impl Hosted {
    pub(crate) fn new(host: Option<Arc<dyn Host>>) -> Hosted {
        Hosted { host, counters: Mutex::default() }
    }

    /// Which of these operators the host does not have.
    pub(crate) fn missing<'c>(&self, calls: impl Iterator<Item = &'c Call>) -> Vec<String> {
        let has = |op: &str| of(op, self.host.as_deref()).is_some_and(|host| host.declaration(op).is_some());
        let mut missing: Vec<String> = calls.map(|call| &call.op).filter(|op| !has(op)).cloned().collect();
        missing.sort();
        missing.dedup();
        missing
    }

    /// Whether whoever runs a call takes operands where a GPU has them.
    pub(crate) fn takes_device_memory(&self, call: &Call) -> bool {
        let is_given = |result: &CallResult<usize>| !matches!(result, CallResult::Sizes(..));
        let host = of(&call.op, self.host.as_deref()).filter(|host| host.takes_device_memory());
        host.is_some() && call.results.iter().all(is_given)
    }

    /// Calls the host.
    ///
    /// # Safety
    /// The memory of each operand can be read by whoever can reach the device that it is on, and where it is a result or written nothing else reads or writes any of it, but for operands
    /// that are shared.
    pub(crate) unsafe fn call(
        &self,
        call: &Call,
        ints: &[i64],
        operands: &[Operand],
        kept: &mut Kept,
    ) -> Result<(), RunError> {
        let Some(host) = of(&call.op, self.host.as_deref()) else {
            return Err(RunError::MissingHost { ops: vec![call.op.clone()] });
        };
        let counter = {
            let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(counters.entry(call.op.clone()).or_default())
        };
        let start = Instant::now();
        // SAFETY: the caller's promise.
        let outcome = unsafe { invoke(host, call, ints, operands, kept) };
        counter.calls.fetch_add(1, Ordering::Relaxed);
        let taken = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        counter.nanoseconds.fetch_add(taken, Ordering::Relaxed);
        let bytes = operands.iter().map(|operand| operand.bytes as u64).sum();
        counter.bytes.fetch_add(bytes, Ordering::Relaxed);
        outcome
    }

    /// What was asked for so far, by operator.
    pub(crate) fn statistics(&self) -> Vec<HostCalls> {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(op, counter): (&String, &Arc<Counter>)| HostCalls {
            op: op.clone(),
            calls: counter.calls.load(Ordering::Relaxed),
            time: Duration::from_nanos(counter.nanoseconds.load(Ordering::Relaxed)),
            bytes: counter.bytes.load(Ordering::Relaxed),
        };
        counters.iter().map(of).collect()
    }
}

/// Who runs an operator: the runtime, where it has it, else the host that was given.
pub(crate) fn of<'h>(op: &str, given: Option<&'h dyn Host>) -> Option<&'h dyn Host> {
    if BuiltIn::has(op) { Some(&BuiltIn) } else { given }
}

/// Calls a host with the operands that a call names, and looks whether it gave what it should.
///
/// # Safety
/// As [`Hosted::call`].
pub(crate) unsafe fn invoke(
    host: &dyn Host,
    call: &Call,
    ints: &[i64],
    operands: &[Operand],
    kept: &mut Kept,
) -> Result<(), RunError> {
    if let (TAKE, &[CallArg::Tensor(from)], &[CallResult::Whole(to)]) =
        (&*call.op, &call.args[..], &call.results[..])
    {
        // SAFETY: the caller's promise.
        return unsafe { kept.take(&operands[from], &operands[to]) };
    }
    let fail = |why: String| RunError::Host { op: call.op.clone(), source_line: call.source.clone(), why };
    let mut lists = Vec::new();
    let mut ints = ints.iter().copied();
    let args = call.args.iter().map(|arg| host_arg(arg, operands, &mut ints, &mut lists));
    let mut args: Vec<HostArg<'_>> = args.collect();
    let nothing = Operand {
        data: std::ptr::null_mut(),
        bytes: 0,
        dtype: Dtype::U8,
        sizes: vec![0],
        strides: vec![1],
        is_shared: false,
        device: Device::Cpu,
    };
    let result = |to: &CallResult<usize>| HostResult {
        tensor: HostTensor::new(to.written().map_or(&nothing, |&at| &operands[at]), true),
        written: usize::MAX,
        is_wanted: to.written().is_some(),
        decided: match to {
            CallResult::Sizes(_, dtype) => ScalarType::of(*dtype),
            CallResult::Nothing | CallResult::Whole(_) => GIVEN,
        },
        kept: None,
    };
    let mut results: Vec<HostResult<'_>> = call.results.iter().map(result).collect();
    let outcome = catch_unwind(AssertUnwindSafe(|| host.call(&call.op, &mut args, &mut results)));
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(fail(error.to_string())),
        Err(panic) => return Err(fail(format!("it panicked: {}", message_of(&*panic)))),
    }
    for (at, result) in results.iter().enumerate().filter(|(_, result)| result.is_wanted) {
        let (dtype, sizes) = (result.tensor.dtype(), result.tensor.sizes());
        let expected: usize = sizes.iter().product();
        if result.written != expected {
            let found = match result.written {
                usize::MAX => "it was not set".to_owned(),
                written => format!("{written} elements were written"),
            };
            return Err(fail(format!("result {at}: expected {dtype}{sizes:?}, {found}")));
        }
    }
    for (at, result) in results.iter_mut().enumerate().filter(|(_, result)| result.decided != GIVEN) {
        let tensor = result.kept.take().ok_or_else(|| fail(format!("result {at}: it was not set")))?;
        let sizes: Vec<i64> = tensor.sizes().iter().map(|&size| size as i64).collect();
        let number = kept.keep(*tensor) as i64;
        let numbers: Vec<i64> = std::iter::once(number).chain(sizes).collect();
        let numbers =
            Tensor::from_slice(&[numbers.len()], &numbers).map_err(|error| fail(error.to_string()))?;
        result.tensor.write(&numbers).map_err(|error| fail(error.to_string()))?;
    }
    Ok(())
}

/// What a panic says.
fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// An argument as the host gets it; `lists` keeps the items of lists.
fn host_arg<'a>(
    arg: &'a CallArg<usize>,
    operands: &'a [Operand],
    ints: &mut impl Iterator<Item = i64>,
    lists: &mut Vec<Vec<HostArg<'a>>>,
) -> HostArg<'a> {
    match arg {
        CallArg::None => HostArg::None,
        CallArg::Tensor(at) => HostArg::Tensor(HostTensor::new(&operands[*at], false)),
        CallArg::Update(at) => HostArg::Tensor(HostTensor::new(&operands[*at], true)),
        CallArg::List(items) => {
            let mut items: Vec<HostArg<'a>> =
                items.iter().map(|item| host_arg(item, operands, ints, lists)).collect();
            let list = HostList { items: items.as_mut_ptr(), count: items.len() };
            lists.push(items);
            HostArg::List(list)
        }
        CallArg::Int(_) => HostArg::Int(ints.next().expect("invariant: one value for each integer")),
        CallArg::Float(value) => HostArg::Float(value.0),
        CallArg::Bool(value) => HostArg::Bool(*value),
        CallArg::Complex(re, im) => HostArg::Complex([re.0, im.0]),
        CallArg::Str(text) => HostArg::Str(HostStr::new(text)),
        CallArg::Dtype(dtype) => HostArg::Dtype(ScalarType::of(*dtype)),
        CallArg::Device(device) => HostArg::Device(HostDevice::of(*device)),
        CallArg::Strided => HostArg::Strided,
        CallArg::MemoryFormat(format) => HostArg::MemoryFormat(match format {
            MemoryFormat::Contiguous => 0,
            MemoryFormat::Preserve => 1,
            MemoryFormat::ChannelsLast => 2,
            MemoryFormat::ChannelsLast3d => 3,
        }),
    }
}
