//! Reads tensors of Python's libraries where they are, and shows Python memory of Litz as tensors.
//!
//! A tensor is read by the functions that its type provides (`__dlpack_c_exchange_api__`), which takes some tens of
//! nanoseconds, or by the method `__dlpack__`, which every array library has.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::slice;
use std::sync::{Mutex, PoisonError};

use litz::{RawStream, TensorView, TensorViewMut};
use litz_ir::Dtype;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyTuple, PyType};

use crate::errors::InvalidError;
use litz_runtime::dlpack::{
    CPU, CUDA, DLTensor, DataType, Device, EXCHANGE_CAPSULE, ExchangeApi, Managed, ManagedVersioned,
    READ_ONLY, Version,
};

/// The functions of one type of tensors. Tables live as long as the interpreter.
#[derive(Clone, Copy)]
struct Exchange {
    api: *const ExchangeApi,
}

// SAFETY: the table is constant, and its functions are called with the interpreter's lock alone.
unsafe impl Send for Exchange {}
// SAFETY: as above.
unsafe impl Sync for Exchange {}

impl Exchange {
    /// Those that a type provides; none where it provides none of a version that is known.
    fn of(ty: &Bound<'_, PyType>) -> Option<Exchange> {
        let capsule = ty.getattr("__dlpack_c_exchange_api__").ok()?;
        let capsule = capsule.cast_into::<PyCapsule>().ok()?;
        let api: *const ExchangeApi =
            capsule.pointer_checked(Some(EXCHANGE_CAPSULE)).ok()?.as_ptr().cast_const().cast();
        // SAFETY: a capsule of that name holds a table that begins with this head.
        let version = unsafe { (*api).header.version };
        (version.major == 1).then_some(Exchange { api })
    }

    /// The stream on which the library works on an NVIDIA GPU.
    fn stream(&self, py: Python<'_>, gpu: u32) -> PyResult<RawStream> {
        let mut stream = ptr::null_mut();
        // SAFETY: the table is of this version; the stream is written.
        let found = unsafe {
            let current = (*self.api).current_stream.ok_or_else(missing)?;
            current(CUDA, gpu.cast_signed(), &raw mut stream)
        };
        if found == 0 { Ok(RawStream(stream)) } else { Err(PyErr::fetch(py)) }
    }

    /// Fills a struct that is valid for as long as the object is.
    fn tensor(&self, object: &Bound<'_, PyAny>) -> PyResult<DLTensor> {
        let mut tensor = EMPTY;
        // SAFETY: the table is of this version, and the object of its type.
        let filled = unsafe {
            let fill = (*self.api).tensor_of_object.ok_or_else(missing)?;
            fill(object.as_ptr().cast(), &mut tensor)
        };
        if filled == 0 { Ok(tensor) } else { Err(PyErr::fetch(object.py())) }
    }
}

/// The functions of types that were asked for before. Types are held, so that no other one comes to lie where one was.
#[derive(Default)]
pub struct Exchanges(Mutex<Vec<(Py<PyType>, Exchange)>>);

impl Exchanges {
    /// The stream on which the library works that has tensors of a type on an NVIDIA GPU.
    pub fn stream(&self, of: &Bound<'_, PyType>, gpu: u32) -> PyResult<RawStream> {
        self.of(of).ok_or_else(missing)?.stream(of.py(), gpu)
    }

    fn of(&self, ty: &Bound<'_, PyType>) -> Option<Exchange> {
        let known = |types: &Vec<(Py<PyType>, Exchange)>| {
            types.iter().find(|(known, _)| known.is(ty)).map(|(_, exchange)| *exchange)
        };
        // Python, which other threads may run meanwhile, is not called with the lock.
        let found = known(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        found.or_else(|| {
            let made = Exchange::of(ty)?;
            let held = ty.clone().unbind();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((held, made));
            Some(made)
        })
    }
}

fn missing() -> PyErr {
    PyTypeError::new_err("the library's table of DLPack functions lacks one")
}

const EMPTY: DLTensor = DLTensor {
    data: ptr::null_mut(),
    device: CPU,
    rank: 0,
    dtype: DataType { code: 0, bits: 0, lanes: 0 },
    shape: ptr::null_mut(),
    strides: ptr::null_mut(),
    byte_offset: 0,
};

/// A tensor of Python's that is held for a call.
pub struct Held {
    tensor: DLTensor,
    dtype: Dtype,
    /// Strides, where the tensor has none.
    strides: Option<Box<[i64]>>,
    /// What keeps the struct alive, beside the object.
    _capsule: Option<Py<PyAny>>,
    is_read_only: bool,
}

// SAFETY: the memory is the object's, which the caller holds for as long; the struct is only read.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Held {
    /// Holds a tensor. `known` are types whose functions were asked for before.
    ///
    /// # Errors
    /// Where the object is no tensor in the host's memory, or has elements or strides that Litz does not have.
    pub fn new(object: &Bound<'_, PyAny>, known: &Exchanges) -> PyResult<Held> {
        match known.of(&object.get_type()) {
            Some(exchange) => Held::of(exchange.tensor(object)?, None, false),
            None => Held::by_protocol(object),
        }
    }

    /// Holds a tensor that a program takes which runs on the GPU of that number, or with none on the CPU. Those of the host's memory are for
    /// both.
    ///
    /// # Errors
    /// As [`Held::new`], and where it is on another GPU.
    pub fn for_gpu(object: &Bound<'_, PyAny>, known: &Exchanges, gpu: Option<u32>) -> PyResult<Held> {
        let held = Held::new(object, known)?;
        match held.gpu() {
            Some(found) if gpu != Some(found) => {
                let own = gpu.map_or("the CPU".to_owned(), |gpu| format!("cuda:{gpu}"));
                Err(InvalidError::new_err(format!(
                    "expected tensors on {own}, for which it was compiled, found one on cuda:{found}"
                )))
            }
            Some(_) | None => Ok(held),
        }
    }

    /// By the method that every array library has.
    fn by_protocol(object: &Bound<'_, PyAny>) -> PyResult<Held> {
        let method = object.getattr("__dlpack__").map_err(|_| {
            let name = object.get_type().name().map_or("it".to_owned(), |name| name.to_string());
            PyTypeError::new_err(format!("expected a tensor or an array, found {name}"))
        })?;
        // Before PyTorch 2.10 its tensors refuse where they need gradients, and detached ones are the same memory.
        let needs_gradient = object.getattr("requires_grad").and_then(|needed| needed.is_truthy());
        let method = match needs_gradient {
            Ok(true) => object.call_method0("detach")?.getattr("__dlpack__")?,
            _ => method,
        };
        let kwargs = pyo3::types::PyDict::new(object.py());
        kwargs.set_item("max_version", (1, 0))?;
        // Libraries of before DLPack 1 do not know the argument.
        let capsule = method.call((), Some(&kwargs)).or_else(|_| method.call0())?.cast_into::<PyCapsule>()?;
        let named = |name: &CStr| capsule.pointer_checked(Some(name)).ok();
        // SAFETY: a capsule of the name holds the struct, which lives as long as the capsule that nobody has consumed.
        let (tensor, flags) = unsafe {
            if let Some(managed) = named(c"dltensor_versioned") {
                let managed = &*managed.as_ptr().cast::<ManagedVersioned>();
                (managed.tensor, managed.flags)
            } else if let Some(managed) = named(c"dltensor") {
                ((*managed.as_ptr().cast::<Managed>()).tensor, 0)
            } else {
                return Err(PyTypeError::new_err("expected a capsule of DLPack from __dlpack__"));
            }
        };
        Held::of(tensor, Some(capsule.into_any().unbind()), flags & READ_ONLY != 0)
    }

    fn of(tensor: DLTensor, capsule: Option<Py<PyAny>>, is_read_only: bool) -> PyResult<Held> {
        if tensor.device.kind != CPU.kind && tensor.device.kind != CUDA {
            return Err(PyValueError::new_err("expected a tensor in the memory of the host or of a GPU"));
        }
        let dtype = tensor.dtype.dtype().ok_or_else(|| {
            PyTypeError::new_err(format!("elements of a type that Litz does not have: {:?}", tensor.dtype))
        })?;
        let mut held = Held { tensor, dtype, strides: None, _capsule: capsule, is_read_only };
        if tensor.strides.is_null() && tensor.rank > 0 {
            let sizes = held.sizes();
            let mut strides = vec![1i64; sizes.len()];
            for dim in (1..sizes.len()).rev() {
                strides[dim - 1] = strides[dim] * (sizes[dim].max(1) as i64);
            }
            held.strides = Some(strides.into());
        }
        let is_reversed = |(&size, &stride): (&usize, &usize)| size > 1 && (stride as i64) < 0;
        if held.sizes().iter().zip(held.strides()).any(is_reversed) {
            return Err(PyValueError::new_err("an axis runs backwards: copy the array first"));
        }
        Ok(held)
    }

    /// The number of the GPU in whose memory it is; none where that is the host's.
    pub fn gpu(&self) -> Option<u32> {
        (self.tensor.device.kind == CUDA).then(|| self.tensor.device.index.cast_unsigned())
    }

    /// Extent of each dimension.
    pub fn sizes(&self) -> &[usize] {
        // SAFETY: the struct says so. Sizes are not negative, and as large as addresses.
        unsafe { dims(self.tensor.shape, self.tensor.rank) }
    }

    /// Elements between neighbours along each dimension.
    pub fn strides(&self) -> &[usize] {
        match &self.strides {
            // SAFETY: the slice is there.
            Some(own) => unsafe { dims(own.as_ptr(), self.tensor.rank) },
            // SAFETY: the struct says so.
            None => unsafe { dims(self.tensor.strides, self.tensor.rank) },
        }
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The first element.
    pub fn data(&self) -> *mut u8 {
        // SAFETY: the offset is inside of the tensor's memory.
        unsafe { self.tensor.data.cast::<u8>().add(self.tensor.byte_offset as usize) }
    }

    /// The elements where they are. Who calls holds the object, and sees to it that nobody writes it meanwhile, as with every
    /// operator of an array library.
    pub fn view(&self) -> PyResult<TensorView<'_>> {
        // SAFETY: the struct describes memory that is there while the object is held.
        let view = unsafe {
            TensorView::from_raw(self.dtype, self.sizes(), self.strides(), self.data().cast_const())
        };
        let view = view.map(|view| if self.gpu().is_some() { view.on_device() } else { view });
        view.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Whether the library forbids to write to it.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// The same, to be written.
    pub fn view_mut(&self) -> PyResult<TensorViewMut<'_>> {
        if self.is_read_only {
            return Err(PyValueError::new_err("the program writes to this tensor, which is read-only"));
        }
        let data = ptr::NonNull::new(self.data()).unwrap_or(ptr::NonNull::dangling());
        // SAFETY: as for `view`; that nobody else reads it meanwhile is the caller's business, too.
        let view = unsafe { TensorViewMut::from_raw(self.dtype, self.sizes(), self.strides(), data) };
        let view = view.map(|view| if self.gpu().is_some() { view.on_device() } else { view });
        view.map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

/// # Safety
/// There are so many numbers, none of them negative, or the rank is 0.
unsafe fn dims<'a>(numbers: *const i64, rank: i32) -> &'a [usize] {
    match usize::try_from(rank) {
        // SAFETY: the caller's promise; both types have 64 bits here.
        Ok(rank) if rank > 0 => unsafe { slice::from_raw_parts(numbers.cast(), rank) },
        Ok(_) | Err(_) => &[],
    }
}

/// A struct with its sizes and strides, for as long as a tensor of Python's refers to memory of Litz.
#[repr(C)]
struct Shown {
    /// First, as the address of the whole is what libraries are given.
    _managed: ManagedVersioned,
    _dims: Box<[i64]>,
}

unsafe extern "C" fn forget_shown(managed: *mut ManagedVersioned) {
    // SAFETY: `show` gave it away as the first field of what it had boxed; the library calls this once.
    drop(unsafe { Box::from_raw(managed.cast::<Shown>()) });
}

static FROM_DLPACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A tensor of PyTorch at `data`, in the memory of `device`. Whoever calls sees to it that the memory is there for as long as Python may use the tensor.
pub fn show<'py>(
    py: Python<'py>,
    (device, data): (Device, *mut u8),
    dtype: Dtype,
    sizes: &[usize],
    strides: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let numbers: Box<[i64]> = sizes.iter().chain(strides).map(|&number| number as i64).collect();
    let at = numbers.as_ptr().cast_mut();
    let tensor = DLTensor {
        data: data.cast(),
        device,
        rank: sizes.len() as i32,
        dtype: DataType::of(dtype),
        shape: at,
        // SAFETY: strides are behind sizes.
        strides: unsafe { at.add(sizes.len()) },
        byte_offset: 0,
    };
    let managed = ManagedVersioned {
        version: Version { major: 1, minor: 0 },
        context: ptr::null_mut(),
        deleter: Some(forget_shown),
        flags: 0,
        tensor,
    };
    let shown =
        Box::into_raw(Box::new(Shown { _managed: managed, _dims: numbers })).cast::<ManagedVersioned>();
    let from_dlpack = FROM_DLPACK.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
        Ok(py.import("torch")?.getattr("_C")?.getattr("_from_dlpack")?.unbind())
    })?;
    // SAFETY: the capsule holds the struct until PyTorch takes it over and renames the capsule; else the struct leaks, never
    // dangles.
    let capsule = unsafe {
        let capsule = ffi::PyCapsule_New(shown.cast::<c_void>(), c"dltensor_versioned".as_ptr(), None);
        Bound::from_owned_ptr_or_err(py, capsule)?
    };
    from_dlpack.bind(py).call1((capsule,))
}

/// Integers as a tuple.
pub fn tuple<'py>(py: Python<'py>, numbers: &[usize]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, numbers)
}
