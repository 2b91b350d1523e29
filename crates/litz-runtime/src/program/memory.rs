//! Holds what lives as long as an executable: constants, and what load steps keep, where launches can use it.

use std::borrow::Cow;
use std::cell::UnsafeCell;

use super::queues::Devices;
use crate::arena::{ALIGNMENT, AlignedBuf, GuardPages, OutOfMemory};
use crate::cache::{CacheKey, FileMemory, ObjectCache, Unfinished};
use crate::device::{AddressSpace, Buffer, Copy};
use crate::error::RunError;
use crate::weights::ConstMemory;

/// Memory that lives as long as the executable.
pub(super) struct Memory {
    /// Where constants begin, then what load steps keep. Written by load steps, later only by calls that hold the
    /// lock on state.
    addresses: Vec<*mut u8>,
    constants: usize,
    /// Slot and bytes of what load steps keep.
    kept_slots: Vec<(usize, usize)>,
    /// Owns what the addresses point to.
    owned: UnsafeCell<Owned>,
}

/// What constants and load steps have of the host's memory or of a device's.
enum Owned {
    Host(Vec<ConstMemory>, Kept),
    /// With the device of each.
    Device(Vec<Buffer>, Vec<usize>),
}

/// The memory that load steps keep: one piece, so that all of it lies in huge pages.
enum Kept {
    Own(AlignedBuf),
    /// A file of the cache, to be kept when load steps have run.
    Unfinished(FileMemory, Unfinished),
    /// A file of the cache with what an earlier process, or this one, has computed.
    File(FileMemory),
    /// One piece for each slot, with pages next to it that cannot be accessed.
    Apart(Vec<AlignedBuf>),
}

impl Kept {
    fn new(bytes: usize, kept_as: Option<(&ObjectCache, &CacheKey)>) -> Result<Kept, OutOfMemory> {
        if let Some((cache, key)) = kept_as.filter(|_| bytes > 0) {
            if let Some(memory) = cache.map(key, bytes) {
                return Ok(Kept::File(memory));
            }
            if let Some((memory, unfinished)) = cache.make(key, bytes) {
                return Ok(Kept::Unfinished(memory, unfinished));
            }
        }
        AlignedBuf::new(bytes).map(Kept::Own)
    }

    fn apart(slots: &[(usize, usize)], pages: GuardPages) -> Result<Kept, OutOfMemory> {
        let buffers = slots.iter().map(|&(_, bytes)| AlignedBuf::guarded(bytes, pages));
        buffers.collect::<Result<_, _>>().map(Kept::Apart)
    }

    /// Where the slots at these offsets begin.
    fn addresses(&mut self, offsets: &[usize]) -> Vec<*mut u8> {
        let start = match self {
            Kept::Own(buffer) => buffer.as_mut_ptr(),
            Kept::Unfinished(memory, _) | Kept::File(memory) => memory.start(),
            Kept::Apart(buffers) => return buffers.iter_mut().map(AlignedBuf::as_mut_ptr).collect(),
        };
        offsets.iter().map(|&offset| start.wrapping_add(offset)).collect()
    }
}

// SAFETY: the owned buffers are only kept alive; access goes through the addresses, under the rule given there.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Where constants begin, then what load steps keep, and how many are constants.
    pub(super) fn bases(&self) -> (&[*mut u8], usize) {
        (&self.addresses, self.constants)
    }

    /// Makes room for what load steps keep, given as slots and bytes, or finds it in the cache.
    pub(super) fn new(
        mut constants: Vec<ConstMemory>,
        kept_slots: Vec<(usize, usize)>,
        kept_as: Option<(&ObjectCache, &CacheKey)>,
        pages: GuardPages,
    ) -> Result<Memory, OutOfMemory> {
        let mut total = 0usize;
        let mut offsets = Vec::with_capacity(kept_slots.len());
        for &(_, bytes) in &kept_slots {
            offsets.push(total);
            let end = bytes.checked_next_multiple_of(ALIGNMENT).and_then(|bytes| total.checked_add(bytes));
            total = end.ok_or(OutOfMemory { bytes })?;
        }
        let mut kept = match pages {
            GuardPages::Off => Kept::new(total, kept_as)?,
            GuardPages::AtEnds | GuardPages::AtStarts => Kept::apart(&kept_slots, pages)?,
        };
        let first = constants.iter_mut().map(ConstMemory::as_mut_ptr);
        let addresses = first.chain(kept.addresses(&offsets)).collect();
        let count = constants.len();
        let owned = UnsafeCell::new(Owned::Host(constants, kept));
        Ok(Memory { addresses, constants: count, kept_slots, owned })
    }

    /// As [`Memory::new`], in the memory of devices, where constants are copied to: `places` has the device of each constant and then of
    /// what load steps keep. That is zero at first, as in the host's memory: what they leave of it goes to artifacts.
    pub(super) fn on_device(
        mut constants: Vec<ConstMemory>,
        kept_slots: Vec<(usize, usize)>,
        devices: &Devices,
        places: &[usize],
    ) -> Result<Memory, RunError> {
        let most = kept_slots.iter().map(|&(_, bytes)| bytes).max();
        let mut zeros = AlignedBuf::new(most.unwrap_or(0))?;
        let given = constants.iter_mut().map(|constant| (constant.as_mut_ptr(), constant.len()));
        let kept = kept_slots.iter().map(|&(_, bytes)| (zeros.as_mut_ptr(), bytes));
        let mut buffers = Vec::new();
        let mut streams = devices.iter().map(|device| device.stream()).collect::<Result<Vec<_>, _>>()?;
        for ((start, bytes), &place) in given.chain(kept).zip(places) {
            let buffer = Buffer::new(&*devices[place], bytes)?;
            let space = devices[place].memory().map_or(AddressSpace::Host, |_| AddressSpace::Device);
            let (from, to) = ((AddressSpace::Host, start.cast_const()), (space, buffer.as_ptr()));
            // SAFETY: both are as large as this, and live until the stream is done; an error drops the streams first.
            unsafe { streams[place].copy(Copy { from, to, bytes }) };
            buffers.push(buffer);
        }
        streams.iter_mut().try_for_each(|stream| stream.wait())?;
        let addresses = buffers.iter().map(Buffer::as_ptr).collect();
        let owned = UnsafeCell::new(Owned::Device(buffers, places.to_vec()));
        Ok(Memory { addresses, constants: constants.len(), kept_slots, owned })
    }

    /// Whether load steps have to run.
    pub(super) fn is_empty(&mut self) -> bool {
        !matches!(self.owned.get_mut(), Owned::Host(_, Kept::File(_)))
    }

    /// Keeps what load steps have computed for the next process, where that was asked for. Where it fails, nothing but
    /// the next start's time is lost.
    pub(super) fn keep(&mut self) {
        let Owned::Host(_, kept) = self.owned.get_mut() else { return };
        *kept = match std::mem::replace(kept, Kept::Own(AlignedBuf::default())) {
            Kept::Unfinished(mut memory, unfinished) => {
                let _ = unfinished.finish(&mut memory);
                Kept::File(memory)
            }
            kept @ (Kept::Own(_) | Kept::File(_) | Kept::Apart(_)) => kept,
        };
    }

    /// Slot and bytes of what load steps keep.
    pub(super) fn kept_slots(&self) -> &[(usize, usize)] {
        &self.kept_slots
    }

    /// What constants hold, then what load steps keep.
    ///
    /// # Safety
    /// Nobody writes any of it as long as the slices live.
    pub(super) unsafe fn contents(&self, devices: &Devices) -> Result<Vec<Cow<'_, [u8]>>, RunError> {
        // SAFETY: after `new` nobody changes the list itself.
        match unsafe { &*self.owned.get() } {
            Owned::Host(constants, _) => {
                let kept = self.kept_slots.iter().map(|&(_, bytes)| bytes);
                let lengths = constants.iter().map(ConstMemory::len).chain(kept);
                let slice = |(&start, len): (&*mut u8, usize)| {
                    // SAFETY: owned memory begins there and is as long as this; not written by the contract.
                    Cow::Borrowed(unsafe { std::slice::from_raw_parts(start, len) })
                };
                Ok(self.addresses.iter().zip(lengths).map(slice).collect())
            }
            Owned::Device(buffers, places) => {
                let mut contents: Vec<_> = buffers.iter().map(|buffer| vec![0; buffer.len()]).collect();
                let mut streams =
                    devices.iter().map(|device| device.stream()).collect::<Result<Vec<_>, _>>()?;
                for ((buffer, bytes), &place) in buffers.iter().zip(&mut contents).zip(places) {
                    let space = devices[place].memory().map_or(AddressSpace::Host, |_| AddressSpace::Device);
                    let (from, to) =
                        ((space, buffer.as_ptr().cast_const()), (AddressSpace::Host, bytes.as_mut_ptr()));
                    // SAFETY: both are as large as the buffer, and live until the stream is done.
                    unsafe { streams[place].copy(Copy { from, to, bytes: buffer.len() }) };
                }
                streams.iter_mut().try_for_each(|stream| stream.wait())?;
                Ok(contents.into_iter().map(Cow::Owned).collect())
            }
        }
    }
}
