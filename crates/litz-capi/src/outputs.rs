//! Holds the results of a call for C, in the library's memory or in the caller's.

use std::ffi::{CString, c_void};
use std::ptr;

use litz_ir::Dtype;
use litz_runtime::Tensor;
use litz_runtime::dlpack::{CPU, DLTensor, DataType, Managed, ManagedVersioned, Version};
use litz_runtime::host::ScalarType;
use litz_runtime::program::Value;

use crate::error::{Failure, Status, expect_place, guard, of, put, quietly};
use crate::model::release;
use crate::tensor::{CTensor, CValue, CValueOf, Dims, Kind};

/// `litz_outputs` of the header.
#[derive(Default)]
pub struct Outputs {
    /// Those in the library's memory, which a call may reuse.
    pub(crate) values: Vec<Value>,
    /// Those in the caller's, which are none of the values.
    pub(crate) placed: Vec<Option<Placed>>,
    /// How each is shown to C.
    shown: Vec<Shown>,
}

/// A result in the caller's memory.
pub(crate) struct Placed {
    pub(crate) data: *mut u8,
    pub(crate) dtype: Dtype,
    pub(crate) sizes: Dims,
    pub(crate) strides: Dims,
}

struct Shown {
    value: CValue,
    /// Ends texts with a zero.
    _text: Option<CString>,
}

// SAFETY: addresses are those of memory that the values own, or that the caller keeps as long as the handle.
unsafe impl Send for Outputs {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for Outputs {}

impl Outputs {
    /// Results for C to have.
    pub(crate) fn boxed(values: Vec<Value>, placed: Vec<Option<Placed>>) -> *mut Outputs {
        let mut outputs = Box::new(Outputs { values, placed, shown: Vec::new() });
        outputs.show();
        Box::into_raw(outputs)
    }

    /// Takes note of where the values are, which stay there until the next call.
    pub(crate) fn show(&mut self) {
        self.shown.clear();
        self.placed.resize_with(self.values.len(), || None);
        for (value, placed) in self.values.iter_mut().zip(&self.placed) {
            let shown = match placed {
                Some(Placed { data, dtype, sizes, strides }) => tensor(*data, *dtype, sizes, strides),
                None => shown(value),
            };
            self.shown.push(shown);
        }
    }

    /// Forgets everything, as where a call has failed.
    pub(crate) fn clear(&mut self) {
        *self = Outputs::default();
    }
}

fn shown(value: &mut Value) -> Shown {
    match value {
        Value::Tensor(of) => {
            let data = match of.bytes_mut() {
                Some(bytes) => bytes.as_mut_ptr(),
                // DLPack has shared it: who writes it does so at his own risk.
                None => of.bytes().as_ptr().cast_mut(),
            };
            tensor(data, of.dtype(), of.sizes(), of.strides())
        }
        Value::Scalar(scalar) => Shown { value: CValue::of_scalar(*scalar), _text: None },
        Value::Text(text) => {
            let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
            let value = CValue { kind: Kind::Text, of: CValueOf { text: text.as_ptr() } };
            Shown { value, _text: Some(text) }
        }
        Value::Nothing => Shown { value: CValue::NONE, _text: None },
    }
}

fn tensor(data: *mut u8, dtype: Dtype, sizes: &[usize], strides: &[usize]) -> Shown {
    let tensor = CTensor {
        data: data.cast(),
        dtype: ScalarType::of(dtype).0,
        rank: i32::try_from(sizes.len()).expect("invariant: tensors have a few dimensions"),
        // Numbers of memory that is there are the same in both types.
        sizes: sizes.as_ptr().cast(),
        strides: strides.as_ptr().cast(),
    };
    Shown { value: CValue { kind: Kind::Tensor, of: CValueOf { tensor } }, _text: None }
}

/// How many results there are.
///
/// # Safety
/// `outputs` is null or was given by a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_outputs_count(outputs: *const Outputs) -> usize {
    // SAFETY: the caller's promise.
    quietly(|| unsafe { outputs.as_ref() }.map_or(0, |outputs| outputs.shown.len()))
}

/// One result.
///
/// # Safety
/// `outputs` is null or was given by a call, `value` null or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_outputs_get(
    outputs: *const Outputs,
    index: usize,
    value: *mut CValue,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let outputs = unsafe { of(outputs, "outputs")? };
        let shown = outputs.shown.get(index).ok_or_else(|| missing(outputs, index))?;
        // SAFETY: the caller's promise.
        unsafe { put(value, "value", shown.value) }
    })
}

/// Releases results.
///
/// # Safety
/// It is null, or was given by a call and is used by nobody any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_outputs_free(outputs: *mut Outputs) {
    // SAFETY: the caller's promise.
    unsafe { release(outputs) }
}

/// A result as a tensor of DLPack, which shares its memory and outlives the results.
///
/// # Safety
/// `outputs` is null or was given by a call, `managed` null or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_outputs_dlpack(
    outputs: *const Outputs,
    index: usize,
    managed: *mut *mut Managed,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let given = give(of(outputs, "outputs")?, index, managed, |tensor, context| Managed {
                tensor,
                context,
                deleter: Some(forget_managed),
            })?;
            put(managed, "managed", given)
        }
    })
}

/// As [`litz_outputs_dlpack`], of DLPack 1.
///
/// # Safety
/// As [`litz_outputs_dlpack`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_outputs_dlpack_versioned(
    outputs: *const Outputs,
    index: usize,
    managed: *mut *mut ManagedVersioned,
) -> Status {
    guard(|| {
        let version = Version { major: 1, minor: 0 };
        // SAFETY: the caller's promise.
        unsafe {
            let given = give(of(outputs, "outputs")?, index, managed, |tensor, context| ManagedVersioned {
                version,
                context,
                deleter: Some(forget_versioned),
                flags: 0,
                tensor,
            })?;
            put(managed, "managed", given)
        }
    })
}

/// What a struct of DLPack's keeps alive.
struct Shared {
    _tensor: Tensor,
    dims: Box<[i64]>,
}

/// A struct of DLPack's for a result; its deleter frees what the struct says is its context.
fn give<T>(
    outputs: &Outputs,
    index: usize,
    to: *mut *mut T,
    managed: impl FnOnce(DLTensor, *mut c_void) -> T,
) -> Result<*mut T, Failure> {
    expect_place(to, "managed")?;
    let shown = outputs.shown.get(index).ok_or_else(|| missing(outputs, index))?;
    let tensor = match (&outputs.values[index], &outputs.placed[index]) {
        (Value::Tensor(tensor), None) => tensor,
        (_, Some(_)) => {
            return Err(Failure::argument("index", format!("result {index} is in memory of the caller's")));
        }
        (Value::Scalar(_) | Value::Text(_) | Value::Nothing, None) => {
            return Err(Failure::argument("index", format!("result {index} is no tensor")));
        }
    };
    // SAFETY: it is a tensor, and so it is shown.
    let data = unsafe { shown.value.of.tensor.data };
    let dims = tensor.sizes().iter().chain(tensor.strides()).map(|&number| number as i64).collect();
    let shared = Box::into_raw(Box::new(Shared { _tensor: tensor.clone(), dims }));
    // SAFETY: it was just boxed.
    let shape = unsafe { (*shared).dims.as_mut_ptr() };
    let described = DLTensor {
        data,
        device: CPU,
        rank: tensor.sizes().len() as i32,
        dtype: DataType::of(tensor.dtype()),
        shape,
        strides: shape.wrapping_add(tensor.sizes().len()),
        byte_offset: 0,
    };
    Ok(Box::into_raw(Box::new(managed(described, shared.cast()))))
}

unsafe extern "C" fn forget_managed(managed: *mut Managed) {
    // SAFETY: `give` boxed both; whoever has the struct calls this once.
    quietly(|| unsafe { forget(managed, |managed| managed.context) });
}

unsafe extern "C" fn forget_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: as above.
    quietly(|| unsafe { forget(managed, |managed| managed.context) });
}

/// # Safety
/// The struct and its context were boxed by [`give`], and are used by nobody any more.
unsafe fn forget<T>(managed: *mut T, context: impl FnOnce(&T) -> *mut c_void) {
    if managed.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(context(&managed).cast::<Shared>()) });
}

fn missing(outputs: &Outputs, index: usize) -> Failure {
    let count = outputs.shown.len();
    Failure::argument("index", format!("expected less than {count}, found {index}"))
}

impl Placed {
    /// Where the elements begin; null is what a result without any may have.
    pub(crate) fn at(data: *mut c_void, dtype: Dtype, sizes: &[usize], strides: &[usize]) -> Placed {
        let data = if data.is_null() { ptr::dangling_mut() } else { data.cast() };
        Placed { data, dtype, sizes: sizes.into(), strides: strides.into() }
    }
}
