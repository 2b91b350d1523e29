//! Copies elements from one layout to another.

use super::{Tensor, TensorError, TensorView, contiguous_strides};

impl TensorView<'_> {
    /// A contiguous copy, of elements in the host's memory.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub fn to_tensor(&self) -> Result<Tensor, TensorError> {
        let mut copy = Tensor::zeros(self.dtype, self.sizes, &contiguous_strides(self.sizes))?;
        if self.len > 0 {
            let strides = copy.strides().to_vec();
            let bytes = copy.bytes_mut().expect("invariant: nothing shares a fresh tensor");
            // SAFETY: a view's elements can be read while it lives.
            let elements = unsafe { std::slice::from_raw_parts(self.data, self.len) };
            copy_strided(self.dtype.size(), self.sizes, (elements, self.strides), (bytes, &strides));
        }
        Ok(copy)
    }
}

/// Copies elements of `size` bytes from one layout to another.
pub(crate) fn copy_strided(size: usize, sizes: &[usize], src: (&[u8], &[usize]), dst: (&mut [u8], &[usize])) {
    if sizes.contains(&0) {
        return;
    }
    copy_dims(size, sizes, src, dst, (0, 0));
}

/// Copies what lies at the given elements and beyond along the dimensions.
fn copy_dims(
    size: usize,
    sizes: &[usize],
    (src, src_strides): (&[u8], &[usize]),
    (dst, dst_strides): (&mut [u8], &[usize]),
    (from, to): (usize, usize),
) {
    let Some((&count, inner)) = sizes.split_first() else {
        dst[to * size..][..size].copy_from_slice(&src[from * size..][..size]);
        return;
    };
    let (src_stride, dst_stride) = (src_strides[0], dst_strides[0]);
    if inner.is_empty() && src_stride == 1 && dst_stride == 1 {
        dst[to * size..][..count * size].copy_from_slice(&src[from * size..][..count * size]);
        return;
    }
    for at in 0..count {
        let places = (from + at * src_stride, to + at * dst_stride);
        copy_dims(size, inner, (src, &src_strides[1..]), (&mut *dst, &dst_strides[1..]), places);
    }
}
