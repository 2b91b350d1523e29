//! Keeps the elements of a buffer, and says of each who wrote it and how far right values may be from it.

use litz_ir::Dtype;

use super::doubt::Doubted;
use crate::arena::AlignedBuf;
use crate::error::RunError;
use crate::number::{read, write};
use crate::tensor::Tensor;

/// The elements of a buffer.
pub(super) struct Memory {
    pub(super) dtype: Dtype,
    /// Size and stride of each dimension.
    pub(super) dims: Vec<(usize, usize)>,
    pub(super) bytes: AlignedBuf,
    /// How far a right value of each element may be from this one.
    pub(super) doubts: Vec<f64>,
    /// For each element, which run of a statement wrote it last: [`NOBODY`], [`OUTSIDE`], or the number of the run.
    pub(super) writers: Vec<u32>,
}

/// Nothing has written the element.
pub(super) const NOBODY: u32 = 0;

/// The element came with the call, or from a routine.
pub(super) const OUTSIDE: u32 = 1;

/// Why an element cannot be read or written.
pub(super) enum Fault {
    /// A coordinate is not in its dimension.
    OutsideOf {
        dim: usize,
        index: i64,
        size: usize,
    },
    Outside {
        place: i64,
        elements: usize,
    },
    Unwritten {
        place: usize,
    },
    WrittenTwice {
        place: usize,
    },
}

impl Memory {
    pub(super) fn new(dtype: Dtype, dims: Vec<(usize, usize)>, elements: usize) -> Result<Memory, RunError> {
        let bytes = AlignedBuf::new(elements.saturating_mul(dtype.size()))?;
        Ok(Memory { dtype, dims, bytes, doubts: vec![0.0; elements], writers: vec![NOBODY; elements] })
    }

    /// How far along a dimension a coordinate is in memory, in elements.
    pub(super) fn offset(&self, dim: usize, index: i64) -> Result<usize, Fault> {
        let (size, stride) = self.dims[dim];
        let inside = usize::try_from(index).ok().filter(|&index| index < size);
        inside.map(|index| index * stride).ok_or(Fault::OutsideOf { dim, index, size })
    }

    /// The element at a place in memory.
    pub(super) fn load(&self, place: usize) -> Result<Doubted, Fault> {
        match self.writers.get(place) {
            None => Err(Fault::Outside { place: place as i64, elements: self.writers.len() }),
            Some(&NOBODY) => Err(Fault::Unwritten { place }),
            Some(_) => {
                let size = self.dtype.size();
                Ok((read(self.bytes.as_slice(), place * size, size), self.doubts[place]))
            }
        }
    }

    pub(super) fn set(&mut self, at: usize, (bits, doubt): Doubted, writer: u32) {
        let size = self.dtype.size();
        write(self.bytes.as_mut_slice(), at * size, size, bits);
        (self.doubts[at], self.writers[at]) = (doubt, writer);
    }

    /// Takes the elements of a tensor of the buffer's sizes.
    pub(super) fn take(&mut self, tensor: &Tensor, strides: &[usize]) {
        let size = self.dtype.size();
        for point in points(tensor.sizes()) {
            let place =
                |strides: &[usize]| point.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
            let bits = read(tensor.bytes(), place(tensor.strides()) * size, size);
            self.set(place(strides), (bits, 0.0), OUTSIDE);
        }
    }
}

impl Fault {
    pub(super) fn of(&self, name: &str) -> String {
        match self {
            Fault::OutsideOf { dim, index, size } => {
                format!("index {index} is outside of dimension {dim} of `{name}`, which has size {size}")
            }
            Fault::Outside { place, elements } => {
                format!("element {place} is outside of `{name}`, which has {elements}")
            }
            Fault::Unwritten { place } => {
                format!("nothing wrote element {place} of `{name}` before it is read")
            }
            Fault::WrittenTwice { place } => format!("two points store to element {place} of `{name}`"),
        }
    }
}

/// Every index of a shape, row-major.
pub(super) fn points(sizes: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let count = sizes.iter().product();
    (0..count).map(move |mut left: usize| {
        let mut point = vec![0; sizes.len()];
        for (at, &size) in point.iter_mut().zip(sizes).rev() {
            *at = left % size;
            left /= size;
        }
        point
    })
}
