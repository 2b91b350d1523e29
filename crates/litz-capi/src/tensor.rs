//! Reads tensors where C has them, and declares the structs that describe tensors and values to C.

use std::ffi::{c_char, c_void};
use std::ptr;

use litz_ir::Dtype;
use litz_ir::scalar::Scalar;
use litz_runtime::dlpack::{CPU, DLTensor, Managed, ManagedVersioned};
use litz_runtime::host::ScalarType;
use litz_runtime::{Tensor, TensorView};
use smallvec::SmallVec;

use crate::error::{Failure, Status, guard, of, put, row};

/// Dimensions that a tensor of C's may have: more than any has, and few enough that nonsense is found out.
const MOST_DIMENSIONS: usize = 64;

/// `litz_tensor` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CTensor {
    /// The first element.
    pub data: *mut c_void,
    /// Element type, by the number of `c10::ScalarType`.
    pub dtype: u32,
    /// Number of dimensions.
    pub rank: i32,
    /// Extent of each dimension.
    pub sizes: *const i64,
    /// Elements between neighbours along each dimension; null: row by row.
    pub strides: *const i64,
}

/// `litz_kind` of the header: what an input or a result is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A tensor.
    Tensor = 0,
    /// An integer.
    Int = 1,
    /// A float.
    Float = 2,
    /// A truth value.
    Bool = 3,
    /// Text.
    Text = 4,
    /// None.
    None = 5,
}

/// `litz_value` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CValue {
    /// Which of the union it is.
    pub kind: Kind,
    /// What it is.
    pub of: CValueOf,
}

/// The union in `litz_value`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CValueOf {
    /// A tensor.
    pub tensor: CTensor,
    /// An integer.
    pub integer: i64,
    /// A float.
    pub real: f64,
    /// A truth value.
    pub truth: bool,
    /// Text that ends with a zero.
    pub text: *const c_char,
}

impl CValue {
    /// None.
    pub(crate) const NONE: CValue = CValue { kind: Kind::None, of: CValueOf { integer: 0 } };

    pub(crate) fn of_scalar(scalar: Scalar) -> CValue {
        match scalar {
            Scalar::Bool(truth) => CValue { kind: Kind::Bool, of: CValueOf { truth } },
            Scalar::Int(integer) => CValue { kind: Kind::Int, of: CValueOf { integer } },
            Scalar::Float(real) => CValue { kind: Kind::Float, of: CValueOf { real } },
        }
    }
}

/// `litz_type` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CType {
    /// The name in the model; empty where it has none.
    pub name: *const c_char,
    /// What it is.
    pub kind: Kind,
    /// Element type of a tensor or number.
    pub dtype: u32,
    /// Number of dimensions.
    pub rank: usize,
    /// Extent of each dimension; -1 where calls decide it.
    pub sizes: *const i64,
    /// The same as texts: a number, or an expression of symbols.
    pub size_texts: *const *const c_char,
    /// Whether calls write it: of constants.
    pub is_state: bool,
}

/// Sizes or strides of few dimensions.
pub(crate) type Dims = SmallVec<[usize; 6]>;

/// A tensor of C's whose struct was checked.
pub(crate) struct Given<'a> {
    dtype: Dtype,
    sizes: &'a [usize],
    strides: Dims,
    data: *const u8,
}

impl<'a> Given<'a> {
    /// Checks a tensor; `name` is what errors call it.
    ///
    /// # Errors
    /// Where its type is unknown, sizes are negative, strides run backwards, or there is no memory at its address.
    ///
    /// # Safety
    /// Sizes and strides are null, or as many as the rank says, and stay as they are for `'a`.
    pub(crate) unsafe fn new(tensor: &CTensor, name: &dyn Fn() -> String) -> Result<Given<'a>, Failure> {
        let wrong = |what: String| Failure::argument(&name(), what);
        let dtype = ScalarType(tensor.dtype).dtype();
        let dtype = dtype.ok_or_else(|| wrong(format!("{} is no element type", tensor.dtype)))?;
        let rank = usize::try_from(tensor.rank).ok().filter(|&rank| rank <= MOST_DIMENSIONS);
        let found = || format!("expected 0 to {MOST_DIMENSIONS} dimensions, found {}", tensor.rank);
        let rank = rank.ok_or_else(|| wrong(found()))?;
        // SAFETY: the caller's promise.
        let sizes = unsafe { row(tensor.sizes, rank, "sizes") };
        let sizes = sizes.map_err(|_| wrong("its sizes are null".to_owned()))?;
        if let Some(size) = sizes.iter().find(|&&size| size < 0) {
            return Err(wrong(format!("a size is {size}")));
        }
        // SAFETY: numbers that are not negative are the same in both types, which are equally large.
        let sizes: &'a [usize] = unsafe { std::slice::from_raw_parts(sizes.as_ptr().cast(), rank) };
        let strides: Dims = if tensor.strides.is_null() {
            row_by_row(sizes)
        } else {
            // SAFETY: the caller's promise.
            let strides = unsafe { row(tensor.strides, rank, "strides") }?;
            let is_reversed = |(&size, &stride): (&usize, &i64)| size > 1 && stride < 0;
            if sizes.iter().zip(strides).any(is_reversed) {
                return Err(wrong("an axis runs backwards: copy the tensor first".to_owned()));
            }
            // Those of dimensions with one element, which do not matter, may be negative.
            strides.iter().map(|&stride| usize::try_from(stride).unwrap_or(0)).collect()
        };
        let data = tensor.data.cast_const().cast::<u8>();
        let is_empty = sizes.contains(&0);
        if data.is_null() && !is_empty {
            return Err(wrong("its data is null".to_owned()));
        }
        let parts = if dtype.kind() == litz_ir::dtype::Kind::Complex { 2 } else { 1 };
        let alignment = dtype.size() / parts;
        if !is_empty && !data.addr().is_multiple_of(alignment) {
            return Err(wrong(format!(
                "its data is not at a multiple of {alignment} bytes: copy the tensor first"
            )));
        }
        Ok(Given { dtype, sizes, strides, data })
    }

    /// The elements where they are.
    ///
    /// # Errors
    /// Where they reach further than memory does.
    ///
    /// # Safety
    /// All elements can be read as long as the view lives, and nobody writes them.
    pub(crate) unsafe fn view(&self, name: &dyn Fn() -> String) -> Result<TensorView<'_>, Failure> {
        // SAFETY: the caller's promise.
        let view = unsafe { TensorView::from_raw(self.dtype, self.sizes, &self.strides, self.data) };
        view.map_err(|error| Failure::argument(&name(), error))
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub(crate) fn sizes(&self) -> &[usize] {
        self.sizes
    }

    /// Where its bytes begin and how many they are; none without elements.
    pub(crate) fn span(&self) -> (usize, usize) {
        if self.sizes.contains(&0) {
            return (self.data.addr(), 0);
        }
        let last =
            self.sizes.iter().zip(&self.strides).map(|(&size, &stride)| (size - 1).saturating_mul(stride));
        let elements = last.fold(1usize, usize::saturating_add);
        (self.data.addr(), elements.saturating_mul(self.dtype.size()))
    }

    /// A copy.
    ///
    /// # Errors
    /// As [`Given::view`], and where there is no memory for it.
    ///
    /// # Safety
    /// As [`Given::view`].
    pub(crate) unsafe fn copy(&self, name: &dyn Fn() -> String) -> Result<Tensor, Failure> {
        // SAFETY: the caller's promise.
        let view = unsafe { self.view(name)? };
        view.to_tensor().map_err(|error| Failure::new(Status::Limit, error.to_string()))
    }
}

/// As [`contiguous_strides`](litz_runtime::tensor::contiguous_strides), without memory of the heap for few dimensions.
fn row_by_row(sizes: &[usize]) -> Dims {
    let mut strides: Dims = sizes.iter().map(|_| 1).collect();
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(sizes[dim].max(1));
    }
    strides
}

/// Fills a tensor with what a struct of DLPack says.
///
/// # Safety
/// `managed` is null or a tensor of DLPack, `tensor` null or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_tensor_of_dlpack(managed: *const Managed, tensor: *mut CTensor) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { put(tensor, "tensor", of_dlpack(&of(managed, "managed")?.tensor)?) }
    })
}

/// As [`litz_tensor_of_dlpack`], of DLPack 1.
///
/// # Safety
/// As [`litz_tensor_of_dlpack`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_tensor_of_dlpack_versioned(
    managed: *const ManagedVersioned,
    tensor: *mut CTensor,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let managed = unsafe { of(managed, "managed")? };
        if managed.version.major != 1 {
            let found = managed.version.major;
            return Err(Failure::argument("managed", format!("expected version 1 of DLPack, found {found}")));
        }
        // SAFETY: the caller's promise.
        unsafe { put(tensor, "tensor", of_dlpack(&managed.tensor)?) }
    })
}

fn of_dlpack(tensor: &DLTensor) -> Result<CTensor, Failure> {
    let DLTensor { data, device, rank, dtype, shape, strides, byte_offset } = *tensor;
    if device.kind != CPU.kind {
        let message = format!("expected a tensor in the host's memory, found device type {}", device.kind);
        return Err(Failure::argument("managed", message));
    }
    let known = dtype.dtype();
    let known = known.ok_or_else(|| Failure::argument("managed", format!("{dtype:?} is no element type")))?;
    Ok(CTensor {
        data: if data.is_null() { ptr::null_mut() } else { data.wrapping_byte_add(byte_offset as usize) },
        dtype: ScalarType::of(known).0,
        rank,
        sizes: shape,
        strides,
    })
}
