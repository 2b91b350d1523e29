//! Opens and calls models with the functions of `litz.h`, as a program of C does.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex};

use litz::{Host, HostArg, HostResult, Tensor, Value};
use litz_capi::{
    CHost, CTensor, CValue, Kind, Model, Outputs, Status, litz_last_error, litz_model_close, litz_model_open,
    litz_model_run, litz_outputs_count, litz_outputs_free, litz_outputs_get,
};
use litz_ir::Scalar;
use litz_runtime::host::ScalarType;
use litz_runtime::tensor::{TensorView, contiguous_strides};

/// A model that was opened.
pub struct Library {
    model: *mut Model,
    /// What the functions of its host are given.
    _host: Box<Called>,
}

/// A host behind two functions.
struct Called {
    host: Arc<dyn Host>,
    /// What it said last.
    said: Mutex<CString>,
}

impl Library {
    /// Opens a file.
    pub fn open(path: &Path, options: &str, host: Arc<dyn Host>) -> Library {
        let path = CString::new(path.as_os_str().as_bytes()).expect("a path has no zeros");
        let options = CString::new(options).expect("options have no zeros");
        let mut host = Box::new(Called { host, said: Mutex::default() });
        let context: *mut Called = &mut *host;
        let c_host = CHost { context: context.cast(), declaration: Some(declaration), call: Some(call) };
        let mut model = ptr::null_mut();
        // SAFETY: texts end with a zero; the host stays until the model is closed.
        expect(unsafe { litz_model_open(path.as_ptr(), options.as_ptr(), &c_host, &mut model) })
            .unwrap_or_else(|error| panic!("{error}"));
        Library { model, _host: host }
    }

    /// Calls the model; the error is the message of the library.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Value>, String> {
        let numbers = |values: &[usize]| values.iter().map(|&value| value as i64).collect::<Vec<_>>();
        let layouts: Vec<_> =
            inputs.iter().map(|input| (numbers(input.sizes()), numbers(input.strides()))).collect();
        let input = |(tensor, (sizes, strides)): (&Tensor, &(Vec<i64>, Vec<i64>))| CTensor {
            data: tensor.bytes().as_ptr().cast_mut().cast(),
            dtype: ScalarType::of(tensor.dtype()).0,
            rank: sizes.len() as i32,
            sizes: sizes.as_ptr(),
            strides: strides.as_ptr(),
        };
        let given: Vec<CTensor> = inputs.iter().zip(&layouts).map(input).collect();
        let mut outputs: *mut Outputs = ptr::null_mut();
        // SAFETY: the model is open, and inputs have the memory that their layouts reach.
        expect(unsafe { litz_model_run(self.model, given.as_ptr(), given.len(), &mut outputs) })?;
        // SAFETY: the call has put results there.
        let count = unsafe { litz_outputs_count(outputs) };
        let values = (0..count).map(|at| {
            let mut value = MaybeUninit::<CValue>::uninit();
            // SAFETY: the results are there, and the place can be written.
            expect(unsafe { litz_outputs_get(outputs, at, value.as_mut_ptr()) })?;
            // SAFETY: it was written, and the results are there until all values are copied.
            Ok(unsafe { copied(value.assume_init()) })
        });
        let values = values.collect();
        // SAFETY: nothing refers to the results any more.
        unsafe { litz_outputs_free(outputs) };
        values
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: nobody else has the model.
        unsafe { litz_model_close(self.model) };
    }
}

fn expect(status: Status) -> Result<(), String> {
    // SAFETY: the message stays until this thread's next error.
    let message = unsafe { CStr::from_ptr(litz_last_error()) };
    if status == Status::Ok { Ok(()) } else { Err(message.to_string_lossy().into_owned()) }
}

/// # Safety
/// The value is one that the library gave, and its results are not released.
unsafe fn copied(value: CValue) -> Value {
    // SAFETY: the kind says which of the union there is, and what it points to is there.
    unsafe {
        match value.kind {
            Kind::Tensor => Value::Tensor(tensor(&value.of.tensor)),
            Kind::Int => Value::Scalar(Scalar::Int(value.of.integer)),
            Kind::Float => Value::Scalar(Scalar::Float(value.of.real)),
            Kind::Bool => Value::Scalar(Scalar::Bool(value.of.truth)),
            Kind::Text => Value::Text(CStr::from_ptr(value.of.text).to_string_lossy().into()),
            Kind::None => Value::Nothing,
        }
    }
}

/// # Safety
/// As [`copied`].
unsafe fn tensor(tensor: &CTensor) -> Tensor {
    let dtype = ScalarType(tensor.dtype).dtype().expect("the library gives types that there are");
    let rank = usize::try_from(tensor.rank).expect("ranks are not negative");
    let row = |numbers: *const i64| -> Vec<usize> {
        // SAFETY: the caller's promise; there are as many as dimensions.
        (0..rank).map(|at| unsafe { *numbers.add(at) } as usize).collect()
    };
    let sizes = row(tensor.sizes);
    let strides = if tensor.strides.is_null() { contiguous_strides(&sizes) } else { row(tensor.strides) };
    // SAFETY: the caller's promise.
    let view = unsafe { TensorView::from_raw(dtype, &sizes, &strides, tensor.data.cast_const().cast()) };
    view.and_then(|view| view.to_tensor()).expect("there is memory")
}

/// # Safety
/// The context is a [`Called`], the operator text that ends with a zero.
unsafe extern "C" fn declaration(context: *mut c_void, op: *const c_char) -> *const c_char {
    // SAFETY: the caller's promise.
    let (called, op) = unsafe { (&*context.cast::<Called>(), CStr::from_ptr(op)) };
    let Some(text) = called.host.declaration(&op.to_string_lossy()) else { return ptr::null() };
    let mut said = called.said.lock().expect("nobody panics with it");
    *said = CString::new(text).expect("declarations have no zeros");
    said.as_ptr()
}

/// # Safety
/// The context is a [`Called`], the operator text that ends with a zero; there are as many arguments and results as it says.
unsafe extern "C" fn call(
    context: *mut c_void,
    op: *const c_char,
    args: *mut HostArg<'_>,
    arg_count: usize,
    results: *mut HostResult<'_>,
    result_count: usize,
    message: *mut *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let (called, op, args, results) = unsafe {
        let args = std::slice::from_raw_parts_mut(args, arg_count);
        let results = std::slice::from_raw_parts_mut(results, result_count);
        (&*context.cast::<Called>(), CStr::from_ptr(op), args, results)
    };
    let Err(error) = called.host.call(&op.to_string_lossy(), args, results) else { return 0 };
    let mut said = called.said.lock().expect("nobody panics with it");
    *said = CString::new(error.to_string()).expect("messages have no zeros");
    // SAFETY: the caller's promise.
    unsafe { *message = said.as_ptr() };
    1
}
