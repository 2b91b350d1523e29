//! Resamples regions of images to one size, where each region decides how many pixels a result sees.

use std::ops::{Add, Div, Mul, Range, Sub};

use litz_ir::Dtype;

use super::{Read, Write};
use crate::error::RunError;

/// `roi_pool(images, numbers, regions, scale) -> largest, places`: the largest pixel of each bin and where it lies in its
/// channel, `-1` where the bin has none.
pub(super) fn roi_pool(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let ([out, places], &[batch, channels, height, width, regions, kinds, rows, columns]) = (writes, ints)
    else {
        return Err(bug("roi_pool", "expected two results and eight sizes"));
    };
    let call = Call { images: [batch, channels, height, width], results: [regions, kinds, rows, columns] };
    let sound = call.sound("roi_pool", Channels::Same, reads, out)?;
    if places.dtype != Dtype::I32 || places.bytes.len() / 4 < sound.results {
        return Err(bug("roi_pool", "no room for places"));
    }
    let (places, _) = places.bytes.as_chunks_mut();
    match out.dtype {
        Dtype::F32 => sound.largest::<f32>(out.bytes, places),
        _ => sound.largest::<f64>(out.bytes, places),
    }
    Ok(())
}

/// `ps_roi_pool(images, numbers, regions, scale) -> means`: the mean of each bin's pixels. Each bin of each result channel has a
/// channel of the image for itself.
pub(super) fn ps_roi_pool(
    reads: &[Read<'_>],
    writes: &mut [Write<'_>],
    ints: &[i64],
) -> Result<(), RunError> {
    let ([out], &[batch, channels, height, width, regions, kinds, rows, columns]) = (writes, ints) else {
        return Err(bug("ps_roi_pool", "expected a result and eight sizes"));
    };
    let call = Call { images: [batch, channels, height, width], results: [regions, kinds, rows, columns] };
    let sound = call.sound("ps_roi_pool", Channels::OfBin, reads, out)?;
    match out.dtype {
        Dtype::F32 => sound.means::<f32>(out.bytes),
        _ => sound.means::<f64>(out.bytes),
    }
    Ok(())
}

/// `roi_align(images, numbers, regions, scale) -> means`: the mean of points in each bin, read between pixels, as many as the bin
/// is high and wide. `aligned` puts pixels at their centres and takes regions as small as they are; where `apart`, each bin of each result
/// channel has a channel of the image for itself.
pub(super) fn roi_align(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let (
        [out],
        &[batch, channels, height, width, regions, kinds, rows, columns, aligned @ (0 | 1), apart @ (0 | 1)],
    ) = (writes, ints)
    else {
        return Err(bug("roi_align", "expected a result, eight sizes and two truth values"));
    };
    let call = Call { images: [batch, channels, height, width], results: [regions, kinds, rows, columns] };
    let of = if apart == 1 { Channels::OfBin } else { Channels::Same };
    let sound = call.sound("roi_align", of, reads, out)?;
    match out.dtype {
        Dtype::F32 => sound.points::<f32>(out.bytes, aligned == 1, of),
        _ => sound.points::<f64>(out.bytes, aligned == 1, of),
    }
    Ok(())
}

fn bug(routine: &'static str, what: impl Into<String>) -> RunError {
    RunError::bug(routine, what.into())
}

/// A type of pixels and coordinates, in whose arithmetic torchvision computes bins.
trait Real:
    Copy + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// The distance from 1 to the next number.
    const EPSILON: f64;
    fn of(number: f64) -> Self;
    fn get(self) -> f64;
    /// The number at a place of a vector, which has one there.
    fn read(bytes: &[u8], at: usize) -> Self;
    fn write(self, bytes: &mut [u8], at: usize);
}

macro_rules! real {
    ($ty:ty) => {
        impl Real for $ty {
            const EPSILON: f64 = <$ty>::EPSILON as f64;
            fn of(number: f64) -> $ty {
                number as $ty
            }
            fn get(self) -> f64 {
                f64::from(self)
            }
            fn read(bytes: &[u8], at: usize) -> $ty {
                let (numbers, _) = bytes.as_chunks();
                <$ty>::from_le_bytes(numbers[at])
            }
            fn write(self, bytes: &mut [u8], at: usize) {
                let (numbers, _) = bytes.as_chunks_mut();
                numbers[at] = self.to_le_bytes();
            }
        }
    };
}

real!(f32);
real!(f64);

/// A number without its fraction as C's `int`, where that holds it; what is no number is the least.
fn whole(number: f64) -> i64 {
    if number.is_nan() { i64::from(i32::MIN) } else { i64::from(number as i32) }
}

/// Which channel of an image a result is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Channels {
    /// The one of the result.
    Same,
    /// One for each result channel and bin.
    OfBin,
}

/// Sizes that the caller states.
struct Call {
    /// Images, channels, height and width.
    images: [i64; 4],
    /// Regions, channels, rows and columns of bins.
    results: [i64; 4],
}

/// Operands that are as large as the sizes say.
struct Sound<'a> {
    images: [usize; 4],
    results_of: [usize; 4],
    /// All results.
    results: usize,
    pixels: &'a [u8],
    /// For each region its image, of those that there are.
    numbers: Vec<usize>,
    /// For each region something, left, top, right and bottom.
    regions: &'a [u8],
    scale: f64,
}

impl Call {
    fn sound<'a>(
        &self,
        routine: &'static str,
        of: Channels,
        reads: &[Read<'a>],
        out: &Write<'_>,
    ) -> Result<Sound<'a>, RunError> {
        let [pixels, numbers, regions, scale] = reads else {
            return Err(bug(routine, "expected images, their numbers, regions and a scale"));
        };
        let size = |sizes: [i64; 4]| {
            let sizes = sizes.map(|size| usize::try_from(size).ok());
            let sizes = [sizes[0]?, sizes[1]?, sizes[2]?, sizes[3]?];
            let count = sizes.iter().try_fold(1_usize, |count, &size| count.checked_mul(size))?;
            count.checked_mul(out.dtype.size())?;
            Some((sizes, count))
        };
        let [_, kinds, rows, columns] = self.results;
        let channels = match of {
            Channels::Same => Some(kinds),
            Channels::OfBin => kinds.checked_mul(rows).and_then(|channels| channels.checked_mul(columns)),
        };
        let (Some((images, elements)), Some((results_of, results)), true) =
            (size(self.images), size(self.results), channels == Some(self.images[1]))
        else {
            return Err(bug(routine, format!("sizes {:?} and {:?}", self.images, self.results)));
        };
        let width = out.dtype.size();
        let types = [pixels.dtype, regions.dtype, numbers.dtype, scale.dtype];
        let fits = matches!(out.dtype, Dtype::F32 | Dtype::F64)
            && types == [out.dtype, out.dtype, Dtype::I64, Dtype::F64]
            && pixels.bytes.len() >= elements * width
            && numbers.bytes.len() / 8 >= results_of[0]
            && regions.bytes.len() / width / 5 >= results_of[0]
            && out.bytes.len() >= results * width;
        let (Some(scale), true) = (scale.bytes.first_chunk(), fits) else {
            return Err(bug(routine, format!("buffers do not fit {} regions", results_of[0])));
        };
        let (numbers, _) = numbers.bytes.as_chunks();
        let number = |bytes: &[u8; 8]| {
            usize::try_from(i64::from_le_bytes(*bytes)).ok().filter(|&number| number < images[0])
        };
        let numbers: Option<Vec<usize>> = numbers[..results_of[0]].iter().map(number).collect();
        let numbers = numbers.ok_or_else(|| bug(routine, "a region of an image that there is not"))?;
        let (pixels, regions, scale) = (pixels.bytes, regions.bytes, f64::from_le_bytes(*scale));
        Ok(Sound { images, results_of, results, pixels, numbers, regions, scale })
    }
}

/// Two pixels along a dimension around a point, and the weight of the second.
struct Between<T> {
    pixels: [usize; 2],
    weight: T,
}

/// The points of each bin along a dimension that count, and how many there are with those that do not.
struct Points<T> {
    bins: Vec<Vec<Between<T>>>,
    count: f64,
}

impl Sound<'_> {
    /// Both ends of a region in pixels along the dimension, height (0) or width (1).
    fn ends<T: Real>(&self, region: usize, dim: usize) -> [T; 2] {
        // Left, top, right, bottom.
        let first = if dim == 0 { 2 } else { 1 };
        [first, first + 2].map(|at| T::read(self.regions, region * 5 + at) * T::of(self.scale))
    }

    /// The first place of a channel.
    fn plane(&self, region: usize, channel: usize) -> usize {
        let [_, channels, height, width] = self.images;
        (self.numbers[region] * channels + channel) * height * width
    }

    /// The pixels of each bin of a region along a dimension. Ends are rounded to pixels; `last` of them belong to the
    /// region's end, and pixels from `limit` on to no bin.
    fn bins<T: Real>(&self, region: usize, dim: usize, last: i64, limit: usize) -> Vec<Range<usize>> {
        let [start, end] = self.ends::<T>(region, dim).map(|end| whole(end.get().round()));
        let (length, bins) = ((end - start + last).max(1), self.results_of[2 + dim]);
        let size = T::of(length as f64) / T::of(bins as f64);
        let clipped = |place: f64| (whole(place) + start).clamp(0, limit as i64) as usize;
        let bin = |bin: usize| {
            let [low, high] = [bin, bin + 1].map(|bin| (T::of(bin as f64) * size).get());
            clipped(low.floor())..clipped(high.ceil())
        };
        (0..bins).map(bin).collect()
    }

    fn largest<T: Real>(&self, out: &mut [u8], places: &mut [[u8; 4]]) {
        let [_, _, height, width] = self.images;
        let [regions, channels, ..] = self.results_of;
        let mut at = 0;
        for region in 0..regions {
            let rows = self.bins::<T>(region, 0, 1, height);
            let columns = self.bins::<T>(region, 1, 1, width);
            for channel in 0..channels {
                let plane = self.plane(region, channel);
                for (rows, columns) in rows.iter().flat_map(|rows| columns.iter().map(move |c| (rows, c))) {
                    let is_empty = rows.is_empty() || columns.is_empty();
                    let least = if is_empty { 0.0 } else { f64::from(-f32::MAX) };
                    let (mut largest, mut place) = (T::of(least), -1);
                    for pixel in rows.clone().flat_map(|row| columns.clone().map(move |c| row * width + c)) {
                        let value = T::read(self.pixels, plane + pixel);
                        if value > largest {
                            (largest, place) = (value, pixel as i32);
                        }
                    }
                    largest.write(out, at);
                    places[at] = place.to_le_bytes();
                    at += 1;
                }
            }
        }
    }

    fn means<T: Real>(&self, out: &mut [u8]) {
        let [_, _, height, width] = self.images;
        let [regions, channels, ..] = self.results_of;
        let mut at = 0;
        for region in 0..regions {
            // The last row and column belong to no bin in torchvision's kernel for CPUs.
            let rows = self.bins::<T>(region, 0, 0, height.saturating_sub(1));
            let columns = self.bins::<T>(region, 1, 0, width.saturating_sub(1));
            let mut planes = (0..).map(|channel| self.plane(region, channel));
            for _ in 0..channels {
                for (rows, columns) in rows.iter().flat_map(|rows| columns.iter().map(move |c| (rows, c))) {
                    let plane = planes.next().unwrap_or(0);
                    let mut sum = T::of(0.0);
                    for pixel in rows.clone().flat_map(|row| columns.clone().map(move |c| row * width + c)) {
                        sum = sum + T::read(self.pixels, plane + pixel);
                    }
                    let count = rows.len() * columns.len();
                    let mean = if count == 0 { sum } else { sum / T::of(count as f64) };
                    mean.write(out, at);
                    at += 1;
                }
            }
        }
    }

    /// The points of a region along a dimension: as many in a bin as it is long, at equal distances.
    fn samples<T: Real>(&self, region: usize, dim: usize, aligned: bool) -> Points<T> {
        let half = T::of(if aligned { 0.5 } else { 0.0 });
        let [start, end] = self.ends::<T>(region, dim).map(|end| end - half);
        let (mut length, bins) = (end - start, self.results_of[2 + dim]);
        if !aligned && length < T::of(1.0) {
            length = T::of(1.0);
        }
        let size = length / T::of(bins as f64);
        // An endless bin, as one whose length is no number, has no points.
        let count = if size.get().is_finite() { whole(size.get().ceil()) } else { 0 };
        let limit = self.images[2 + dim];
        let bin = |bin: usize| {
            let start = start + T::of(bin as f64) * size;
            let place = |point: i64| {
                let offset = T::of(point as f64 + 0.5) * size / T::of(count as f64);
                start + offset
            };
            near::<T>(start.get(), size.get(), count, limit)
                .filter_map(|point| between(place(point), limit))
                .collect()
        };
        Points { bins: (0..bins).map(bin).collect(), count: count as f64 }
    }

    fn points<T: Real>(&self, out: &mut [u8], aligned: bool, of: Channels) {
        let width = self.images[3];
        let [regions, channels, ..] = self.results_of;
        let mut at = 0;
        for region in 0..regions {
            let [rows, columns] = [0, 1].map(|dim| self.samples::<T>(region, dim, aligned));
            let count = rows.count * columns.count;
            let count = T::of(if of == Channels::Same { count.max(1.0) } else { count });
            let bins = rows.bins.len() * columns.bins.len();
            for channel in 0..channels {
                let pairs = rows.bins.iter().flat_map(|rows| columns.bins.iter().map(move |c| (rows, c)));
                for (bin, (rows, columns)) in pairs.enumerate() {
                    let channel = if of == Channels::Same { channel } else { channel * bins + bin };
                    let plane = self.plane(region, channel);
                    let pixel =
                        |row: usize, column: usize| T::read(self.pixels, plane + row * width + column);
                    let mut sum = T::of(0.0);
                    for (row, column) in rows.iter().flat_map(|row| columns.iter().map(move |c| (row, c))) {
                        let one = T::of(1.0);
                        let [above, below] = row.pixels.map(|row| column.pixels.map(|c| pixel(row, c)));
                        let (low, left) = (one - row.weight, one - column.weight);
                        sum = sum
                            + (low * left * above[0]
                                + low * column.weight * above[1]
                                + row.weight * left * below[0]
                                + row.weight * column.weight * below[1]);
                    }
                    (sum / count).write(out, at);
                    at += 1;
                }
            }
        }
    }
}

/// Numbers of all points of a bin that may lie on an image; a bin can have many more than that.
fn near<T: Real>(start: f64, size: f64, count: i64, limit: usize) -> Range<i64> {
    if count < 1 {
        return 0..0;
    }
    let step = size / count as f64;
    let slack = 8.0 + 16.0 * T::EPSILON * (start.abs() + size.abs()) / step;
    let first = ((-1.0 - start) / step - slack).max(0.0);
    let last = ((limit as f64 - start) / step + slack).min(count as f64);
    first as i64..last as i64
}

/// The pixels around a point; nothing for one that is more than a pixel outside of the image.
fn between<T: Real>(place: T, limit: usize) -> Option<Between<T>> {
    let is_near = place.get() >= -1.0 && place.get() <= limit as f64;
    let last = limit.checked_sub(1).filter(|_| is_near)?;
    let place = if place.get() <= 0.0 { T::of(0.0) } else { place };
    let low = place.get() as usize;
    if low >= last {
        return Some(Between { pixels: [last; 2], weight: T::of(0.0) });
    }
    Some(Between { pixels: [low, low + 1], weight: place - T::of(low as f64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One image of one channel, 0, 1, 2, .. in rows, and regions of it.
    fn called(
        routine: super::super::Routine,
        (height, width): (i64, i64),
        regions: &[[f32; 5]],
        ints: &[i64],
        results: usize,
        places_too: bool,
    ) -> Result<(Vec<f32>, Vec<i32>), RunError> {
        let bytes = |numbers: &[f32]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let pixels: Vec<f32> = (0..height * width).map(|i| i as f32).collect();
        let (pixels, numbers) = (bytes(&pixels), vec![0; regions.len() * 8]);
        let (regions, scale) = (bytes(regions.as_flattened()), 1.0_f64.to_le_bytes());
        let reads =
            [(&pixels[..], Dtype::F32), (&numbers, Dtype::I64), (&regions, Dtype::F32), (&scale, Dtype::F64)];
        let reads = reads.map(|(bytes, dtype)| Read { bytes, dtype });
        let (mut out, mut places) = (vec![0xff; results * 4], vec![0xff; results * 4]);
        let mut writes = vec![Write { bytes: &mut out, dtype: Dtype::F32 }];
        if places_too {
            writes.push(Write { bytes: &mut places, dtype: Dtype::I32 });
        }
        routine(&reads, &mut writes, ints)?;
        let (out, _) = out.as_chunks();
        let (places, _) = places.as_chunks();
        let out = out.iter().map(|&x| f32::from_le_bytes(x)).collect();
        Ok((out, places.iter().map(|&x| i32::from_le_bytes(x)).collect()))
    }

    #[test]
    fn bins_have_their_largest_pixel() {
        let regions =
            [[0.0, 0.0, 0.0, 3.0, 3.0], [0.0, 9.0, 9.0, 12.0, 12.0], [0.0, f32::NAN, 0.0, 3.0, 3.0]];
        let (largest, places) =
            called(roi_pool, (4, 4), &regions, &[1, 1, 4, 4, 3, 1, 2, 2], 12, true).expect("it fits");
        assert_eq!(largest[..4], [5.0, 7.0, 13.0, 15.0]);
        assert_eq!(places[..4], [5, 7, 13, 15]);
        assert_eq!((&largest[4..8], &places[4..8]), (&[0.0; 4][..], &[-1; 4][..]), "outside of the image");
        // So wide a region as one from the least column on has bins that end before the image, or behind it.
        assert_eq!(largest[8..], [0.0; 4]);
    }

    #[test]
    fn points_of_endless_and_huge_regions() {
        let regions = [
            [0.0, 0.0, 0.0, f32::INFINITY, 4.0],
            [0.0, -1e9, -1e9, 1e9, 1e9],
            [0.0, 0.5, 0.5, 3.5, 3.5],
            [0.0, f32::NAN, 0.0, 1.0, 1.0],
        ];
        let ints = [1, 1, 4, 4, 4, 1, 1, 1, 0, 0];
        let (means, _) = called(roi_align, (4, 4), &regions, &ints, 4, false).expect("it fits");
        assert_eq!((means[0], means[3]), (0.0, 0.0));
        assert!(means[1].abs() < 1e-12, "nearly all points are outside of the image: {}", means[1]);
        assert_eq!(means[2], 10.0, "three by three points at the whole pixels from 1 on");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let regions = [[0.0, 0.0, 0.0, 1.0, 1.0]];
        for ints in [
            [1, 1, 4, 5, 1, 1, 2, 2],
            [1, 1, 4, 4, 2, 1, 2, 2],
            [1, 1, 4, 4, 1, 1, 3, 2],
            [1, 1, 4, 4, 1, 1, -1, 2],
        ] {
            assert!(called(roi_pool, (4, 4), &regions, &ints, 4, true).is_err(), "{ints:?}");
        }
        let huge = [1, 1, i64::MAX, i64::MAX, 1, 1, 2, 2];
        assert!(called(roi_pool, (4, 4), &regions, &huge, 4, true).is_err());
        assert!(called(roi_pool, (4, 4), &regions, &[0, 1, 4, 4, 1, 1, 2, 2], 4, true).is_err(), "no image");
    }
}
