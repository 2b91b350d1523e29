//! Holds a generation of constants, and what load steps keep of it, where launches can use it.

use std::borrow::Cow;
use std::sync::Arc;

use super::queues::Devices;
use crate::arena::{ALIGNMENT, AlignedBuf, GuardPages, OutOfMemory};
use crate::cache::{FileMemory, MemoryKeys, ObjectCache, Unfinished};
use crate::device::{AddressSpace, Buffer, Copy, Device};
use crate::error::RunError;
use crate::weights::ConstMemory;

/// One generation of constants, and of what load steps made of them.
pub(super) struct Memory {
    /// Where constants begin, then what load steps keep. Written by load steps, later only by calls that hold the
    /// lock on state.
    addresses: Vec<*mut u8>,
    /// What another generation did not give other contents, both have.
    constants: Vec<Arc<Constant>>,
    kept: Kept,
}

/// The memory of one constant: the host's or a device's.
pub(super) struct Constant {
    start: *mut u8,
    bytes: usize,
    _owner: Box<dyn Send + Sync>,
}

impl Constant {
    /// Size in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }
}

impl From<ConstMemory> for Constant {
    fn from(mut memory: ConstMemory) -> Constant {
        Constant { start: memory.as_mut_ptr(), bytes: memory.len(), _owner: Box::new(memory) }
    }
}

impl From<Buffer> for Constant {
    fn from(buffer: Buffer) -> Constant {
        Constant { start: buffer.as_ptr(), bytes: buffer.len(), _owner: Box::new(buffer) }
    }
}

// SAFETY: the owner is only kept alive; access goes through the address, under the rule of [`Memory::addresses`].
unsafe impl Send for Constant {}
// SAFETY: as above.
unsafe impl Sync for Constant {}

/// The memory that load steps keep: one piece, so that all of it lies in huge pages.
enum Kept {
    Own(AlignedBuf),
    /// A file of the cache, to be kept when load steps have run.
    Unfinished(FileMemory, Unfinished),
    /// A file of the cache with what an earlier process, or this one, has computed.
    File(FileMemory),
    /// One piece for each slot, with pages next to it that cannot be accessed.
    Apart(Vec<AlignedBuf>),
    /// One piece for each slot, each on its device.
    Devices(Vec<Buffer>),
}

impl Kept {
    fn new(bytes: usize, kept_as: Option<(&ObjectCache, &MemoryKeys)>) -> Result<Kept, OutOfMemory> {
        if let Some((cache, keys)) = kept_as.filter(|_| bytes > 0) {
            if let Some(memory) = cache.map(keys, bytes) {
                return Ok(Kept::File(memory));
            }
            let made = keys.own.as_ref().and_then(|record| cache.make(record, bytes));
            if let Some((memory, unfinished)) = made {
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
            Kept::Devices(buffers) => return buffers.iter().map(Buffer::as_ptr).collect(),
        };
        offsets.iter().map(|&offset| start.wrapping_add(offset)).collect()
    }
}

// SAFETY: the owned buffers are only kept alive; access goes through the addresses, under the rule given there.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Where constants begin, then what load steps keep.
    pub(super) fn addresses(&self) -> &[*mut u8] {
        &self.addresses
    }

    /// The memory of the constant at a position.
    pub(super) fn constant(&self, at: usize) -> &Arc<Constant> {
        &self.constants[at]
    }

    /// Makes room for what load steps keep, given as slots and bytes, or finds it in the cache.
    pub(super) fn new(
        constants: Vec<Arc<Constant>>,
        kept_slots: &[(usize, usize)],
        kept_as: Option<(&ObjectCache, &MemoryKeys)>,
        pages: GuardPages,
    ) -> Result<Memory, OutOfMemory> {
        let mut total = 0usize;
        let mut offsets = Vec::with_capacity(kept_slots.len());
        for &(_, bytes) in kept_slots {
            offsets.push(total);
            let end = bytes.checked_next_multiple_of(ALIGNMENT).and_then(|bytes| total.checked_add(bytes));
            total = end.ok_or(OutOfMemory::of(bytes))?;
        }
        let kept = match pages {
            GuardPages::Off => Kept::new(total, kept_as)?,
            GuardPages::AtEnds | GuardPages::AtStarts => Kept::apart(kept_slots, pages)?,
        };
        Ok(Memory::of(constants, kept, &offsets))
    }

    /// As [`Memory::new`], in the memory of devices, where constants were brought by [`on_devices`]: `places` has the device of each constant and
    /// then of what load steps keep. That is zero at first, as in the host's memory: what they leave of it goes to artifacts.
    pub(super) fn on_devices(
        constants: Vec<Arc<Constant>>,
        kept_slots: &[(usize, usize)],
        devices: &Devices,
        places: &[usize],
    ) -> Result<Memory, RunError> {
        let places = &places[constants.len()..];
        let sizes: Vec<usize> = kept_slots.iter().map(|&(_, bytes)| bytes).collect();
        let mut kept = pieces(&sizes, places, devices)?;
        kept.iter_mut().zip(places).try_for_each(|(piece, &place)| piece.clear(&*devices[place]))?;
        Ok(Memory::of(constants, Kept::Devices(kept), &[]))
    }

    fn of(constants: Vec<Arc<Constant>>, mut kept: Kept, offsets: &[usize]) -> Memory {
        let first = constants.iter().map(|constant| constant.start);
        let addresses = first.chain(kept.addresses(offsets)).collect();
        Memory { addresses, constants, kept }
    }

    /// Whether load steps have to run.
    pub(super) fn is_empty(&self) -> bool {
        !matches!(self.kept, Kept::File(_))
    }

    /// Keeps what load steps have computed for the next process, where that was asked for. Where it fails, nothing but
    /// the next start's time is lost.
    pub(super) fn keep(&mut self) {
        self.kept = match std::mem::replace(&mut self.kept, Kept::Own(AlignedBuf::default())) {
            Kept::Unfinished(mut memory, unfinished) => {
                let _ = unfinished.finish(&mut memory);
                Kept::File(memory)
            }
            kept @ (Kept::Own(_) | Kept::File(_) | Kept::Apart(_) | Kept::Devices(_)) => kept,
        };
    }

    /// The contents of a piece, a constant or what load steps keep, of so many bytes. `device` is that of a generation which is on devices.
    ///
    /// # Safety
    /// The piece is as large as this, and nobody writes it as long as the slice lives.
    pub(super) unsafe fn read(
        &self,
        at: usize,
        bytes: usize,
        device: Option<&dyn Device>,
    ) -> Result<Cow<'_, [u8]>, RunError> {
        let start = self.addresses[at].cast_const();
        let Some(device) = device else {
            // SAFETY: owned memory begins there and is as long as this; not written by the contract.
            return Ok(Cow::Borrowed(unsafe { std::slice::from_raw_parts(start, bytes) }));
        };
        let mut copy = vec![0; bytes];
        let mut stream = device.stream()?;
        let (from, to) = ((space(device), start), (AddressSpace::Host, copy.as_mut_ptr()));
        // SAFETY: both are as large as this, and live until the stream is done.
        unsafe { stream.copy(Copy { from, to, bytes }) };
        stream.wait()?;
        Ok(Cow::Owned(copy))
    }
}

/// Brings constants to the memory of their devices.
pub(super) fn on_devices(
    constants: &[ConstMemory],
    devices: &Devices,
    places: &[usize],
) -> Result<Vec<Constant>, RunError> {
    let sizes: Vec<usize> = constants.iter().map(ConstMemory::len).collect();
    let buffers = pieces(&sizes, places, devices)?;
    let mut streams = devices.iter().map(|device| device.stream()).collect::<Result<Vec<_>, _>>()?;
    for ((constant, buffer), &place) in constants.iter().zip(&buffers).zip(places) {
        let bytes = constant.as_slice();
        let (from, to) = ((AddressSpace::Host, bytes.as_ptr()), (space(&*devices[place]), buffer.as_ptr()));
        // SAFETY: both are as large as this, and live until the stream is done; an error drops the streams first.
        unsafe { streams[place].copy(Copy { from, to, bytes: bytes.len() }) };
    }
    streams.iter_mut().try_for_each(|stream| stream.wait())?;
    Ok(buffers.into_iter().map(Constant::from).collect())
}

/// Memory of these sizes, each on its device.
fn pieces(sizes: &[usize], places: &[usize], devices: &Devices) -> Result<Vec<Buffer>, RunError> {
    let mut all: Vec<Buffer> = sizes.iter().map(|_| Buffer::default()).collect();
    for (place, device) in devices.iter().enumerate() {
        let there: Vec<usize> = (0..sizes.len()).filter(|&at| places[at] == place).collect();
        let wanted: Vec<usize> = there.iter().map(|&at| sizes[at]).collect();
        let made = Buffer::pieces(&**device, &wanted)?;
        there.into_iter().zip(made).for_each(|(at, buffer)| all[at] = buffer);
    }
    Ok(all)
}

fn space(device: &dyn Device) -> AddressSpace {
    device.memory().map_or(AddressSpace::Host, |_| AddressSpace::Device)
}
