//! Converts arrays of the `ndarray` crate to inputs and tensors to such arrays, without a copy.

use ndarray::{ArrayBase, ArrayViewD, Data, Dimension, IxDyn, ShapeBuilder};

use crate::tensor::{Element, Tensor, TensorError, TensorView};

/// The array where it is.
///
/// Fails with [`TensorError::Reversed`] where an axis runs backwards.
impl<'a, T: Element, S: Data<Elem = T>, D: Dimension> TryFrom<&'a ArrayBase<S, D>> for TensorView<'a> {
    type Error = TensorError;

    fn try_from(array: &'a ArrayBase<S, D>) -> Result<TensorView<'a>, TensorError> {
        // Distances between elements of which there is one, or none, mean nothing and may be negative.
        let reversed = |(&size, &stride): (&usize, &isize)| size > 1 && stride < 0;
        if let Some(dim) = array.shape().iter().zip(array.strides()).position(reversed) {
            return Err(TensorError::Reversed { dim });
        }
        let strides: &[usize] = bytemuck::cast_slice(array.strides());
        // SAFETY: the array is borrowed for as long as the view lives, and its own elements are at these distances from
        // the first, which is at its pointer where no axis runs backwards.
        unsafe { TensorView::from_raw(T::DTYPE, array.shape(), strides, array.as_ptr().cast()) }
    }
}

impl Tensor {
    /// The tensor as an array, where it is. None if its elements are not of type `T`, or share memory.
    pub fn as_array<T: Element>(&self) -> Option<ArrayViewD<'_, T>> {
        if self.dtype() != T::DTYPE {
            return None;
        }
        let values = bytemuck::checked::try_cast_slice(self.bytes()).ok()?;
        if values.is_empty() {
            return ArrayViewD::from_shape(IxDyn(self.sizes()), values).ok();
        }
        ArrayViewD::from_shape(IxDyn(self.sizes()).strides(IxDyn(self.strides())), values).ok()
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array, array, s};

    use super::*;
    use crate::tensor::{Input, contiguous_strides};
    use litz_ir::Dtype;

    fn numbers(view: &TensorView<'_>) -> Vec<f32> {
        // SAFETY: the views of these tests are of live arrays of floats.
        let all = unsafe { std::slice::from_raw_parts(view.data.cast::<f32>(), view.len / 4) };
        let at = |i: usize, j: usize| all[i * view.strides[0] + j * view.strides[1]];
        (0..view.sizes[0])
            .flat_map(|i| (0..view.sizes[1]).map(move |j| (i, j)))
            .map(|(i, j)| at(i, j))
            .collect()
    }

    #[test]
    fn arrays_are_read_where_they_are() {
        let array = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let view = TensorView::try_from(&array).expect("no axis runs backwards");
        assert_eq!((view.dtype, view.sizes, view.data.cast()), (Dtype::F32, &[2, 3][..], array.as_ptr()));
        assert_eq!(numbers(&view.view()), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let columns = array.t();
        assert_eq!(
            numbers(&TensorView::try_from(&columns).expect("forwards")),
            [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]
        );
        let part = array.slice(s![1.., ..;2]);
        assert_eq!(numbers(&TensorView::try_from(&part).expect("forwards")), [4.0, 6.0]);
    }

    #[test]
    fn backward_axes_are_errors() {
        let array = array![[1.0f32, 2.0], [3.0, 4.0]];
        let error = TensorView::try_from(&array.slice(s![.., ..;-1])).map(|_| ()).expect_err("backwards");
        assert_eq!(error, TensorError::Reversed { dim: 1 });
        let one_row = array.slice(s![..1;-1, ..]);
        assert_eq!(numbers(&TensorView::try_from(&one_row).expect("one row has no direction")), [1.0, 2.0]);
        let none = Array::<f32, _>::zeros((0, 4));
        assert_eq!(TensorView::try_from(&none).expect("nothing is read").len, 0);
    }

    #[test]
    fn tensors_are_arrays() {
        let tensor = Tensor::from_slice(&[2, 2], &[1i64, 2, 3, 4]).expect("lengths match");
        assert_eq!(tensor.as_array::<i64>(), Some(array![[1i64, 2], [3, 4]].into_dyn().view()));
        assert_eq!(tensor.as_array::<f32>(), None);
        let transposed = Tensor::from_shared(
            Dtype::I64,
            &[2, 2],
            &[1, 2],
            std::sync::Arc::new(tensor.bytes().to_vec()),
            0,
        );
        let transposed = transposed.expect("long enough");
        assert_eq!(transposed.as_array::<i64>(), Some(array![[1i64, 3], [2, 4]].into_dyn().view()));
        let scalar = Tensor::scalar(true).expect("there is memory");
        assert_eq!(scalar.as_array::<bool>().map(|array| array[[]]), Some(true));
        assert_eq!(contiguous_strides(&[0, 4]), [4, 1]);
        let empty = Tensor::from_slice::<f32>(&[0, 4], &[]).expect("lengths match");
        assert_eq!(empty.as_array::<f32>().map(|array| array.shape().to_vec()), Some(vec![0, 4]));
    }
}
