//! Defines tensors: bytes, element type, sizes and strides, and their views as slices and numbers.

mod copy;

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};
use litz_ir::Dtype;

use crate::arena::{AlignedBuf, OutOfMemory};
use crate::device::AddressSpace;
use crate::number::{Number, read};
use crate::spare::Lent;
pub(crate) use copy::copy_strided;

/// Elements of one type at `index[0]*strides[0] + index[1]*strides[1] + ...`, counted in elements.
///
/// Cloning shares the bytes. No dimensions means one element.
#[derive(Clone)]
pub struct Tensor {
    dtype: Dtype,
    sizes: Vec<usize>,
    strides: Vec<usize>,
    storage: Storage,
}

/// The bytes from the first element to the last.
#[derive(Clone)]
enum Storage {
    Owned(Arc<Lent>),
    Shared(SharedBytes),
}

/// Bytes inside of something that is kept alive.
#[derive(Clone)]
struct SharedBytes {
    bytes: NonNull<[u8]>,
    _owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
}

// SAFETY: the bytes are only read, and their owner is `Send + Sync` itself.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

/// Why bytes are not a tensor of the given type and layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// Sizes and strides of different length.
    #[error("expected {sizes} strides, found {strides}")]
    Rank {
        /// Number of sizes.
        sizes: usize,
        /// Number of strides.
        strides: usize,
    },
    /// Too few bytes, or for values of a slice another number of them than the sizes say.
    #[error("expected {expected} bytes, found {found}")]
    Length {
        /// Bytes that sizes and strides need; `usize::MAX` where they overflow.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// An axis of an array along which addresses fall.
    #[error("axis {dim} runs backwards: copy the array into standard order first")]
    Reversed {
        /// The axis, counted from 0.
        dim: usize,
    },
    /// No memory for the bytes.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// A Rust type of which tensors have elements.
pub trait Element: NoUninit + CheckedBitPattern {
    /// The element type.
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($ty:ident = $dtype:ident;)*) => {$(
        impl Element for $ty {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}

elements! {
    bool = Bool;
    u8 = U8;
    u16 = U16;
    u32 = U32;
    u64 = U64;
    i8 = I8;
    i16 = I16;
    i32 = I32;
    i64 = I64;
    f16 = F16;
    bf16 = BF16;
    f32 = F32;
    f64 = F64;
}

impl Tensor {
    /// A contiguous tensor with a copy of `values`.
    pub fn from_slice<T: Element>(sizes: &[usize], values: &[T]) -> Result<Tensor, TensorError> {
        Tensor::from_bytes(T::DTYPE, sizes, bytemuck::cast_slice(values))
    }

    /// A tensor without dimensions.
    pub fn scalar<T: Element>(value: T) -> Result<Tensor, TensorError> {
        Tensor::from_slice(&[], &[value])
    }

    /// A contiguous tensor with a copy of `bytes`.
    pub fn from_bytes(dtype: Dtype, sizes: &[usize], bytes: &[u8]) -> Result<Tensor, TensorError> {
        let strides = contiguous_strides(sizes);
        let expected = span_bytes(dtype, sizes, &strides).unwrap_or(usize::MAX);
        if bytes.len() != expected {
            return Err(TensorError::Length { expected, found: bytes.len() });
        }
        let mut buffer = AlignedBuf::new(bytes.len())?;
        buffer.as_mut_slice().copy_from_slice(bytes);
        Ok(Tensor::from_buffer(dtype, sizes, &strides, buffer))
    }

    /// A tensor of zeros in the given layout.
    pub fn zeros(dtype: Dtype, sizes: &[usize], strides: &[usize]) -> Result<Tensor, TensorError> {
        check_rank(sizes, strides)?;
        let bytes = span_bytes(dtype, sizes, strides).unwrap_or(usize::MAX);
        Ok(Tensor::from_buffer(dtype, sizes, strides, AlignedBuf::new(bytes)?))
    }

    /// A tensor that takes over bytes, of which there are enough.
    pub(crate) fn from_buffer(
        dtype: Dtype,
        sizes: &[usize],
        strides: &[usize],
        buffer: AlignedBuf,
    ) -> Tensor {
        Tensor::from_lent(dtype, sizes, strides, buffer.into())
    }

    /// The same of bytes that go back to where they came from.
    pub(crate) fn from_lent(dtype: Dtype, sizes: &[usize], strides: &[usize], buffer: Lent) -> Tensor {
        let storage = Storage::Owned(Arc::new(buffer));
        Tensor { dtype, sizes: sizes.to_vec(), strides: strides.to_vec(), storage }
    }

    /// A tensor inside of bytes that someone else owns, such as a mapped file, the first element at byte `offset`.
    pub fn from_shared(
        dtype: Dtype,
        sizes: &[usize],
        strides: &[usize],
        owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
        offset: usize,
    ) -> Result<Tensor, TensorError> {
        check_rank(sizes, strides)?;
        let all = (*owner).as_ref();
        let expected = span_bytes(dtype, sizes, strides).unwrap_or(usize::MAX);
        let found = all.len().saturating_sub(offset);
        let bytes = offset.checked_add(expected).and_then(|end| all.get(offset..end));
        let bytes = NonNull::from(bytes.ok_or(TensorError::Length { expected, found })?);
        let storage = Storage::Shared(SharedBytes { bytes, _owner: owner });
        Ok(Tensor { dtype, sizes: sizes.to_vec(), strides: strides.to_vec(), storage })
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Extent of each dimension.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Elements between neighbours along each dimension.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The bytes from the first element to the last, in the order of memory.
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Owned(buffer) => buffer.as_slice(),
            // SAFETY: the owner keeps the bytes where they are.
            Storage::Shared(shared) => unsafe { shared.bytes.as_ref() },
        }
    }

    /// The bytes to write to, if no other tensor shares them.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.storage {
            Storage::Owned(buffer) => Arc::get_mut(buffer).map(Lent::as_mut_slice),
            Storage::Shared(_) => None,
        }
    }

    /// The tensor as a call takes it that may write to it. Bytes that other tensors share are copied first.
    ///
    /// # Errors
    /// Where there is no memory for the copy.
    pub fn view_mut(&mut self) -> Result<TensorViewMut<'_>, TensorError> {
        if self.bytes_mut().is_none() {
            let mut own = AlignedBuf::new(self.bytes().len())?;
            own.as_mut_slice().copy_from_slice(self.bytes());
            self.storage = Storage::Owned(Arc::new(own.into()));
        }
        let bytes = self.bytes_mut().expect("invariant: nothing shares bytes that were just copied");
        let data = NonNull::from(bytes).cast();
        // SAFETY: the tensor is borrowed alone, and has as many bytes as its layout needs.
        unsafe { TensorViewMut::from_raw(self.dtype, &self.sizes, &self.strides, data) }
    }

    /// Whether elements lie row after row without gaps.
    pub fn is_contiguous(&self) -> bool {
        has_layout(&self.sizes, &self.strides, &contiguous_strides(&self.sizes))
    }

    /// The elements in order, if they are of type `T` and contiguous.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        if self.dtype != T::DTYPE || !self.is_contiguous() {
            return None;
        }
        bytemuck::checked::try_cast_slice(self.bytes()).ok()
    }

    /// The elements in order, whatever the layout, if they are of type `T`.
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        let size = self.dtype.size();
        let element = |at: usize| {
            bytemuck::checked::try_pod_read_unaligned::<T>(&self.bytes()[at * size..(at + 1) * size]).ok()
        };
        (self.dtype == T::DTYPE).then(|| self.offsets().map(element).collect())?
    }

    /// The elements in order as doubles: exact but for integers beyond 2^53; the real part of complex ones.
    pub fn to_f64(&self) -> Vec<f64> {
        let mut values = Vec::with_capacity(self.numel());
        self.each_f64(|value| values.push(value));
        values
    }

    /// Shows `visit` the elements as [`Tensor::to_f64`] has them.
    pub fn each_f64(&self, visit: impl FnMut(f64)) {
        match self.dtype {
            // Where results are long, which is worth not to look at the type of each element.
            Dtype::F32 => self.each(|bits| f64::from(f32::from_ne_bytes(bits)), visit),
            Dtype::BF16 => self.each(|bits| bf16::from_ne_bytes(bits).to_f64(), visit),
            dtype => {
                let size = dtype.size();
                let decode = |at| Number::decode(dtype, read(self.bytes(), at * size, size)).double();
                self.offsets().map(decode).for_each(visit);
            }
        }
    }

    fn each<const N: usize>(&self, decode: impl Fn([u8; N]) -> f64, visit: impl FnMut(f64)) {
        let (elements, _) = self.bytes().as_chunks();
        if self.is_contiguous() {
            elements.iter().map(|&bits| decode(bits)).for_each(visit);
        } else {
            self.offsets().map(|at| decode(elements[at])).for_each(visit);
        }
    }

    /// The same elements, contiguous; shares the bytes where they already are.
    pub fn to_contiguous(&self) -> Result<Tensor, TensorError> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        let mut result = Tensor::zeros(self.dtype, &self.sizes, &contiguous_strides(&self.sizes))?;
        let strides = result.strides.clone();
        let bytes = result.bytes_mut().expect("invariant: nothing shares a fresh tensor");
        copy_strided(self.dtype.size(), &self.sizes, (self.bytes(), &self.strides), (bytes, &strides));
        Ok(result)
    }

    /// The tensor as a call takes it.
    pub fn view(&self) -> TensorView<'_> {
        let bytes = self.bytes();
        TensorView {
            dtype: self.dtype,
            sizes: &self.sizes,
            strides: &self.strides,
            data: bytes.as_ptr(),
            len: bytes.len(),
            space: AddressSpace::Host,
            borrow: PhantomData,
        }
    }

    /// Position of each element, in logical order.
    fn offsets(&self) -> impl Iterator<Item = usize> {
        places(&self.sizes, &self.strides)
    }
}

/// Equal types, sizes and elements; layouts may differ. Elements compare by bits, so that NaN equals itself.
impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        let size = self.dtype.size();
        self.dtype == other.dtype
            && self.sizes == other.sizes
            && self
                .offsets()
                .zip(other.offsets())
                .all(|(a, b)| read(self.bytes(), a * size, size) == read(other.bytes(), b * size, size))
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        write!(f, "{}{:?} ", self.dtype, self.sizes)?;
        if !self.is_contiguous() {
            write!(f, "strides {:?} ", self.strides)?;
        }
        let size = self.dtype.size();
        let number = |at: usize| Number::decode(self.dtype, read(self.bytes(), at * size, size)).double();
        f.debug_list().entries(self.offsets().take(SHOWN).map(number)).finish()?;
        if self.numel() > SHOWN { f.write_str(" ...") } else { Ok(()) }
    }
}

/// A tensor that someone else owns, as the input of a call.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    pub(crate) dtype: Dtype,
    pub(crate) sizes: &'a [usize],
    pub(crate) strides: &'a [usize],
    pub(crate) data: *const u8,
    /// Bytes from the first element to the last, and where they are.
    pub(crate) len: usize,
    pub(crate) space: AddressSpace,
    borrow: PhantomData<&'a [u8]>,
}

// SAFETY: it reads as a shared slice of the bytes does.
unsafe impl Send for TensorView<'_> {}
// SAFETY: as above.
unsafe impl Sync for TensorView<'_> {}

impl<'a> TensorView<'a> {
    /// The elements of a slice at `index[0]*strides[0] + index[1]*strides[1] + ...`, where they are.
    ///
    /// # Errors
    /// When sizes and strides differ in number, or reach further than the slice does.
    pub fn from_slice<T: Element>(
        sizes: &'a [usize],
        strides: &'a [usize],
        values: &'a [T],
    ) -> Result<TensorView<'a>, TensorError> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        // SAFETY: the slice is borrowed for as long as the view lives, and is compared with what the view reaches below.
        let view = unsafe { TensorView::from_raw(T::DTYPE, sizes, strides, bytes.as_ptr()) }?;
        if view.len > bytes.len() {
            return Err(TensorError::Length { expected: view.len, found: bytes.len() });
        }
        Ok(view)
    }

    /// A tensor at `data`, its first element.
    ///
    /// # Errors
    /// When sizes and strides differ in number, or reach further than memory does.
    ///
    /// # Safety
    /// All elements can be read while the view lives, and a call may read them until it asks its outputs for the
    /// memory of updated inputs.
    pub unsafe fn from_raw(
        dtype: Dtype,
        sizes: &'a [usize],
        strides: &'a [usize],
        data: *const u8,
    ) -> Result<TensorView<'a>, TensorError> {
        check_rank(sizes, strides)?;
        let overflow = TensorError::Length { expected: usize::MAX, found: 0 };
        let len = span_bytes(dtype, sizes, strides).ok_or(overflow)?;
        let space = AddressSpace::Host;
        Ok(TensorView { dtype, sizes, strides, data, len, space, borrow: PhantomData })
    }

    /// The same, of elements that are in the memory of the device which runs the call.
    pub fn on_device(self) -> TensorView<'a> {
        TensorView { space: AddressSpace::Device, ..self }
    }
}

impl TensorView<'_> {
    /// Whether both may have a byte in common.
    pub(crate) fn overlaps(&self, other: &TensorView<'_>) -> bool {
        let (start, there) = (self.data.addr(), other.data.addr());
        self.len > 0 && other.len > 0 && start < there + other.len && there < start + self.len
    }
}

/// A tensor that someone else lends to a call to write to: where the program updates the input, its new contents are here when the
/// call is done, and not among the results. After an error some of them may be.
pub struct TensorViewMut<'a> {
    view: TensorView<'a>,
    /// The same elements, to be written.
    data: NonNull<u8>,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: it has the bytes as a slice has them that is borrowed alone.
unsafe impl Send for TensorViewMut<'_> {}
// SAFETY: as above; behind a shared reference it reads alone.
unsafe impl Sync for TensorViewMut<'_> {}

impl<'a> TensorViewMut<'a> {
    /// As [`TensorView::from_slice`].
    ///
    /// # Errors
    /// As [`TensorView::from_slice`].
    pub fn from_slice<T: Element>(
        sizes: &'a [usize],
        strides: &'a [usize],
        values: &'a mut [T],
    ) -> Result<TensorViewMut<'a>, TensorError> {
        let found = size_of_val(values);
        let data = NonNull::from(values).cast();
        // SAFETY: the slice is borrowed alone for as long as the view lives, and is compared with what the view reaches below.
        let lent = unsafe { TensorViewMut::from_raw(T::DTYPE, sizes, strides, data) }?;
        if lent.view.len > found {
            return Err(TensorError::Length { expected: lent.view.len, found });
        }
        Ok(lent)
    }

    /// A tensor at `data`, its first element.
    ///
    /// # Errors
    /// As [`TensorView::from_raw`].
    ///
    /// # Safety
    /// All elements can be read and written while the view lives, and nobody else does.
    pub unsafe fn from_raw(
        dtype: Dtype,
        sizes: &'a [usize],
        strides: &'a [usize],
        data: NonNull<u8>,
    ) -> Result<TensorViewMut<'a>, TensorError> {
        // SAFETY: whoever may write elements may read them.
        let view = unsafe { TensorView::from_raw(dtype, sizes, strides, data.as_ptr()) }?;
        Ok(TensorViewMut { view, data, borrow: PhantomData })
    }

    /// As [`TensorView::on_device`].
    pub fn on_device(self) -> TensorViewMut<'a> {
        TensorViewMut { view: self.view.on_device(), ..self }
    }

    pub(crate) fn data(&self) -> NonNull<u8> {
        self.data
    }
}

/// What a call takes as an input.
pub trait Input {
    /// The tensor.
    fn view(&self) -> TensorView<'_>;

    /// The same tensor, if the call may write to it.
    fn lent(&self) -> Option<&TensorViewMut<'_>> {
        None
    }
}

impl Input for TensorViewMut<'_> {
    fn view(&self) -> TensorView<'_> {
        self.view
    }

    fn lent(&self) -> Option<&TensorViewMut<'_>> {
        Some(self)
    }
}

impl Input for Tensor {
    fn view(&self) -> TensorView<'_> {
        Tensor::view(self)
    }
}

impl Input for TensorView<'_> {
    fn view(&self) -> TensorView<'_> {
        *self
    }
}

/// An input of a call of which others are of another kind.
pub enum Argument<'a> {
    /// Is read.
    View(TensorView<'a>),
    /// Is written, too.
    Lent(TensorViewMut<'a>),
}

impl Input for Argument<'_> {
    fn view(&self) -> TensorView<'_> {
        match self {
            Argument::View(view) => *view,
            Argument::Lent(lent) => lent.view(),
        }
    }

    fn lent(&self) -> Option<&TensorViewMut<'_>> {
        match self {
            Argument::View(_) => None,
            Argument::Lent(lent) => Some(lent),
        }
    }
}

impl<T: Input + ?Sized> Input for &T {
    fn view(&self) -> TensorView<'_> {
        (**self).view()
    }

    fn lent(&self) -> Option<&TensorViewMut<'_>> {
        (**self).lent()
    }
}

fn check_rank(sizes: &[usize], strides: &[usize]) -> Result<(), TensorError> {
    if sizes.len() == strides.len() {
        return Ok(());
    }
    Err(TensorError::Rank { sizes: sizes.len(), strides: strides.len() })
}

/// Row-major strides, in elements. A dimension of size 0 counts as 1, as in PyTorch.
pub fn contiguous_strides(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(sizes[dim].max(1));
    }
    strides
}

/// Bytes from the first element to the last, 0 without elements; None on overflow.
pub(crate) fn span_bytes(dtype: Dtype, sizes: &[usize], strides: &[usize]) -> Option<usize> {
    if sizes.contains(&0) {
        return Some(0);
    }
    let mut dims = sizes.iter().zip(strides);
    let last =
        dims.try_fold(0usize, |sum, (&size, &stride)| sum.checked_add((size - 1).checked_mul(stride)?))?;
    let bytes = last.checked_add(1)?.checked_mul(dtype.size())?;
    isize::try_from(bytes).ok().map(|_| bytes)
}

/// Where each element is, counted in elements, in logical order.
pub(crate) fn places(sizes: &[usize], strides: &[usize]) -> impl Iterator<Item = usize> {
    (0..sizes.iter().product()).map(move |mut left| {
        let mut offset = 0;
        for (&size, &stride) in sizes.iter().zip(strides).rev() {
            offset += left % size * stride;
            left /= size;
        }
        offset
    })
}

/// Whether two layouts put every element at the same place: strides of dimensions of size 1 do not matter.
pub(crate) fn has_layout(sizes: &[usize], strides: &[usize], expected: &[usize]) -> bool {
    sizes.contains(&0) || (0..sizes.len()).all(|dim| sizes[dim] == 1 || strides[dim] == expected[dim])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_round_trip() {
        let tensor = Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("lengths match");
        assert_eq!(
            (tensor.dtype(), tensor.sizes(), tensor.strides()),
            (Dtype::F32, &[2, 3][..], &[3, 1][..])
        );
        assert_eq!(tensor.as_slice::<f32>(), Some(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..]));
        assert_eq!(tensor.as_slice::<i32>(), None);
        assert_eq!(tensor.to_vec::<f64>(), None);
        let halves = Tensor::from_slice(&[2], &[bf16::ONE, bf16::NEG_INFINITY]).expect("lengths match");
        assert_eq!(halves.to_f64(), [1.0, f64::NEG_INFINITY]);
        let truth = Tensor::from_slice(&[2], &[true, false]).expect("lengths match");
        assert_eq!(truth.as_slice::<bool>(), Some(&[true, false][..]));
    }

    #[test]
    fn no_dimensions_and_no_elements() {
        let scalar = Tensor::scalar(7i64).expect("there is memory");
        assert_eq!((scalar.numel(), scalar.to_f64()), (1, vec![7.0]));
        let empty = Tensor::from_slice::<f32>(&[3, 0, 2], &[]).expect("lengths match");
        assert_eq!((empty.numel(), empty.strides(), empty.to_f64().len()), (0, &[2, 2, 1][..], 0));
        assert_eq!(empty.as_slice::<f32>(), Some(&[][..]));
        assert_eq!(empty, Tensor::zeros(Dtype::F32, &[3, 0, 2], &[9, 9, 9]).expect("there is memory"));
    }

    #[test]
    fn wrong_lengths_are_errors() {
        let error = Tensor::from_slice(&[2, 2], &[1u8, 2, 3]).expect_err("three are not four");
        assert_eq!(error, TensorError::Length { expected: 4, found: 3 });
        let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![0u8; 8]);
        let error =
            Tensor::from_shared(Dtype::F32, &[2], &[1], Arc::clone(&owner), 4).expect_err("too short");
        assert_eq!(error, TensorError::Length { expected: 8, found: 4 });
        assert!(Tensor::from_shared(Dtype::F32, &[usize::MAX], &[8], Arc::clone(&owner), 0).is_err());
        assert!(Tensor::from_shared(Dtype::F32, &[1], &[], owner, usize::MAX).is_err());
    }

    #[test]
    fn layouts_are_followed() {
        let bytes: Vec<u8> = (0u16..12).flat_map(u16::to_le_bytes).collect();
        let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(bytes);
        // The 2 x 3 transpose of rows of 2, from the third element on.
        let tensor =
            Tensor::from_shared(Dtype::U16, &[2, 3], &[1, 2], Arc::clone(&owner), 4).expect("long enough");
        assert_eq!(tensor.to_vec::<u16>(), Some(vec![2, 4, 6, 3, 5, 7]));
        assert_eq!(tensor.as_slice::<u16>(), None);
        let contiguous = tensor.to_contiguous().expect("there is memory");
        assert_eq!(contiguous.as_slice::<u16>(), Some(&[2, 4, 6, 3, 5, 7][..]));
        assert_eq!(contiguous, tensor);
        let expanded = Tensor::from_shared(Dtype::U16, &[2, 2], &[0, 1], owner, 0).expect("long enough");
        assert_eq!(expanded.to_vec::<u16>(), Some(vec![0, 1, 0, 1]));
        assert_ne!(expanded, tensor);
    }

    #[test]
    fn views_stay_inside_of_their_slice() {
        let values = [1i32, 2, 3, 4, 5, 6];
        let view = TensorView::from_slice(&[2, 2], &[1, 4], &values).expect("the last element is the sixth");
        assert_eq!((view.dtype, view.len), (Dtype::I32, 24));
        let error = TensorView::from_slice(&[2, 3], &[1, 3], &values).err();
        assert_eq!(error, Some(TensorError::Length { expected: 32, found: 24 }));
        assert_eq!(
            TensorView::from_slice(&[2, 3], &[1], &values).err(),
            Some(TensorError::Rank { sizes: 2, strides: 1 })
        );
    }

    #[test]
    fn sizes_of_one_have_any_stride() {
        let tensor = Tensor::zeros(Dtype::F32, &[1, 4, 1], &[77, 1, 3]).expect("there is memory");
        assert!(tensor.is_contiguous());
        assert!(!Tensor::zeros(Dtype::F32, &[2, 4], &[8, 1]).expect("there is memory").is_contiguous());
    }

    #[test]
    fn shared_bytes_are_not_written() {
        let mut tensor = Tensor::scalar(1.0f64).expect("there is memory");
        assert!(tensor.bytes_mut().is_some());
        let other = tensor.clone();
        assert!(tensor.bytes_mut().is_none());
        drop(other);
        assert!(tensor.bytes_mut().is_some());
    }
}
