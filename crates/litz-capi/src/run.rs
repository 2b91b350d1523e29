//! Calls models on memory of C's, with results in the library's memory or in the caller's.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use litz_ir::scalar::Scalar;
use litz_runtime::arena::ALIGNMENT;
use litz_runtime::program::{self, OutputLayout, Value};
use litz_runtime::tensor::TensorError;
use litz_runtime::{RunError, Tensor, TensorView};
use smallvec::SmallVec;

use crate::error::{Failure, Status, expect_place, guard, of, put, row};
use crate::model::Model;
use crate::outputs::{Outputs, Placed};
use crate::tensor::{CTensor, Given};

/// `litz_memory` of the header: where the caller wants a result.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The first byte; null: in the library's memory.
    pub data: *mut c_void,
    /// How many bytes there are.
    pub bytes: usize,
}

/// Calls a model. Results are in the library's memory: that of `*outputs`, where there are results already.
///
/// # Safety
/// Pointers are null, or to what the header says; tensors can be read, and nobody writes them during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_run(
    model: *const Model,
    inputs: *const CTensor,
    input_count: usize,
    outputs: *mut *mut Outputs,
) -> Status {
    guard(|| {
        expect_place(outputs, "outputs")?;
        // SAFETY: the caller's promise.
        let (model, inputs, earlier) =
            unsafe { (of(model, "model")?, given(of(model, "model")?, inputs, input_count)?, *outputs) };
        // SAFETY: as above.
        let views = unsafe { views(&inputs)? };
        let executable = model.engine.executable();
        // SAFETY: null, or results that the caller lets be overwritten.
        let Some(earlier) = (unsafe { earlier.as_mut() }) else {
            let values = executable.run(&views)?;
            // SAFETY: the caller's promise.
            return unsafe { put(outputs, "outputs", Outputs::boxed(values, Vec::new())) };
        };
        if earlier.values.iter().any(|value| is_among(value, &inputs)) {
            // What the call reads stays as it is until it is over.
            let values = executable.run(&views);
            earlier.clear();
            earlier.values = values?;
        } else if let Err(error) = executable.run_into(&views, &mut earlier.values) {
            earlier.clear();
            return Err(error.into());
        }
        earlier.placed.clear();
        earlier.show();
        Ok(())
    })
}

/// As [`litz_model_run`], with results in memory of the caller's, where there is some for them.
///
/// # Safety
/// As [`litz_model_run`]; memories can be written, and nobody else uses them during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_run_into(
    model: *const Model,
    inputs: *const CTensor,
    input_count: usize,
    memories: *const Memory,
    memory_count: usize,
    outputs: *mut *mut Outputs,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, inputs) =
            unsafe { (of(model, "model")?, given(of(model, "model")?, inputs, input_count)?) };
        let expected = model.output_count();
        if memory_count != expected {
            let message = format!("expected {expected}, one for each result, found {memory_count}");
            return Err(Failure::argument("memory_count", message));
        }
        // SAFETY: the caller's promise.
        let (memories, views) = unsafe { (row(memories, memory_count, "memories")?, views(&inputs)?) };
        // SAFETY: null, or a place for results.
        let earlier = unsafe { outputs.as_ref() }.copied().unwrap_or(ptr::null_mut());
        let mut call = Call { inputs: &inputs, memories, values: Vec::new(), placed: Vec::new() };
        call.values.resize(expected, Value::Nothing);
        call.placed.resize_with(expected, || None);
        model.engine.executable().call(&views, &mut call)?;
        let outcome = call.bring();
        let Call { values, placed, .. } = call;
        // SAFETY: null, or results that the caller lets be overwritten.
        match unsafe { earlier.as_mut() } {
            Some(earlier) => {
                (earlier.values, earlier.placed) = (values, placed);
                earlier.show();
            }
            None if outputs.is_null() => {}
            // SAFETY: the caller's promise.
            None => unsafe { put(outputs, "outputs", Outputs::boxed(values, placed))? },
        }
        outcome
    })
}

/// The inputs of a call.
type Inputs<'a> = SmallVec<[Given<'a>; 4]>;

/// # Safety
/// `inputs` is null or so many tensors, each as [`Given::new`] says.
unsafe fn given<'a>(model: &Model, inputs: *const CTensor, count: usize) -> Result<Inputs<'a>, Failure> {
    let expected = model.input_count();
    if count != expected {
        return Err(Failure::argument("input_count", format!("expected {expected}, found {count}")));
    }
    // SAFETY: the caller's promise.
    let inputs = unsafe { row(inputs, count, "inputs")? };
    // SAFETY: the caller's promise.
    inputs.iter().enumerate().map(|(at, tensor)| unsafe { Given::new(tensor, &name(at)) }).collect()
}

/// # Safety
/// All elements can be read as long as the views live, and nobody writes them.
unsafe fn views<'a>(inputs: &'a [Given<'_>]) -> Result<SmallVec<[TensorView<'a>; 4]>, Failure> {
    // SAFETY: the caller's promise.
    inputs.iter().enumerate().map(|(at, input)| unsafe { input.view(&name(at)) }).collect()
}

fn name(at: usize) -> impl Fn() -> String {
    move || format!("input {at}")
}

/// Whether a result of an earlier call is read by this one.
fn is_among(value: &Value, inputs: &[Given<'_>]) -> bool {
    let Some(tensor) = value.tensor() else { return false };
    let bytes = tensor.bytes();
    inputs.iter().any(|input| overlap((bytes.as_ptr().addr(), bytes.len()), input.span()))
}

fn overlap((start, bytes): (usize, usize), (other, others): (usize, usize)) -> bool {
    bytes > 0 && others > 0 && start < other.saturating_add(others) && other < start.saturating_add(bytes)
}

/// Takes the results of one call: into the caller's memory where it can be computed there, else into fresh memory.
struct Call<'a> {
    inputs: &'a [Given<'a>],
    memories: &'a [Memory],
    /// None where a result is in the caller's memory.
    values: Vec<Value>,
    placed: Vec<Option<Placed>>,
}

impl Call<'_> {
    /// Whether a call may work in the memory for a result: it is large enough, begins where kernels want it, and has nothing that the call reads
    /// or that is for another result.
    fn is_fit(&self, index: usize, bytes: usize) -> bool {
        let span =
            |memory: &Memory| (memory.data.addr(), if memory.data.is_null() { 0 } else { memory.bytes });
        let (start, room) = self.memories.get(index).map_or((0, 0), span);
        let here = (start, bytes);
        let mut others = self.memories.iter().enumerate().filter(|(at, _)| *at != index);
        room >= bytes
            && bytes > 0
            && start.is_multiple_of(ALIGNMENT)
            && !self.inputs.iter().any(|input| overlap(here, input.span()))
            && !others.any(|(_, other)| overlap(here, span(other)))
    }

    /// Copies to the caller's memory what could not be computed there.
    ///
    /// # Errors
    /// Where it is too small. The result stays in the library's memory.
    fn bring(&mut self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for (index, (value, memory)) in self.values.iter_mut().zip(self.memories).enumerate() {
            let Value::Tensor(tensor) = &*value else { continue };
            let bytes = tensor.bytes();
            if memory.data.is_null() {
                continue;
            }
            if bytes.len() > memory.bytes {
                let (needed, found) = (bytes.len(), memory.bytes);
                let message = format!(
                    "result {index} has {needed} bytes, found {found}: the call is over, and the \
                                       result in the library's memory"
                );
                outcome = outcome.and(Err(Failure::argument("memories", message)));
                continue;
            }
            // SAFETY: the caller's memory is as large as it says, and the call is over.
            unsafe { ptr::copy(bytes.as_ptr(), memory.data.cast(), bytes.len()) };
            let placed = Placed::at(memory.data, tensor.dtype(), tensor.sizes(), tensor.strides());
            self.placed[index] = Some(placed);
            *value = Value::Nothing;
        }
        outcome
    }
}

// SAFETY: the caller's memory is given where it is aligned and apart from all that the call reads and writes, fresh memory else.
unsafe impl program::Outputs for Call<'_> {
    fn tensor(&mut self, index: usize, layout: &OutputLayout<'_>) -> Result<NonNull<u8>, RunError> {
        let OutputLayout { dtype, sizes, strides, bytes } = *layout;
        if self.is_fit(index, bytes) {
            let placed = Placed::at(self.memories[index].data, dtype, sizes, strides);
            let start = NonNull::new(placed.data).expect("invariant: the memory has an address");
            self.placed[index] = Some(placed);
            return Ok(start);
        }
        let tensor = Tensor::zeros(dtype, sizes, strides).map_err(|error| match error {
            TensorError::OutOfMemory(error) => error.into(),
            TensorError::Rank { .. } | TensorError::Length { .. } | TensorError::Reversed { .. } => {
                bug(index, &error.to_string())
            }
        })?;
        let value = self.values.get_mut(index).ok_or_else(|| bug(index, "there is no such result"))?;
        *value = Value::Tensor(tensor);
        let Value::Tensor(tensor) = value else { return Err(bug(index, "it is no tensor")) };
        let bytes = tensor.bytes_mut().ok_or_else(|| bug(index, "it is shared"))?;
        Ok(NonNull::from(bytes).cast())
    }

    fn scalar(&mut self, index: usize, scalar: Option<Scalar>) {
        self.values[index] = scalar.map_or(Value::Nothing, Value::Scalar);
    }

    fn text(&mut self, index: usize, text: &Arc<str>) {
        self.values[index] = Value::Text(Arc::clone(text));
    }
}

fn bug(index: usize, what: &str) -> RunError {
    RunError::Bug { item: format!("result {index}"), what: what.to_owned() }
}
