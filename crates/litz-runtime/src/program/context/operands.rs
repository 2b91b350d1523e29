//! Brings what the host reads and writes to where it can.

use litz_ir::Dtype;
use smallvec::SmallVec;

use super::{Context, read};
use crate::arena::AlignedBuf;
use crate::device::AddressSpace;
use crate::error::RunError;
use crate::number;
use crate::program::plan;
use crate::program::queues::{On, Queues};
use crate::routines::Read;

impl Context {
    /// The integer or truth value that a buffer begins with.
    pub(in crate::program) fn number(&mut self, from: &plan::Buffer) -> Result<i64, RunError> {
        let (dtype, bits) = self.element(from)?;
        Ok((number::cast(dtype, Dtype::I64, bits) as u64).cast_signed())
    }

    /// The element that a buffer begins with.
    pub(super) fn element(&mut self, from: &plan::Buffer) -> Result<(Dtype, number::Bits), RunError> {
        let operands = self.operands(std::iter::once(from))?;
        let Read { bytes, dtype } = read(from, operands[0]);
        Ok((dtype, number::read(bytes, 0, dtype.size())))
    }

    /// Waits for all that is enqueued, and says where the host finds the operands of a routine: where they are, or copies of
    /// what the device's memory holds.
    pub(super) fn operands<'b>(
        &mut self,
        all: impl Iterator<Item = &'b plan::Buffer> + Clone,
    ) -> Result<SmallVec<[*mut u8; 8]>, RunError> {
        let buffers = || all.clone();
        let mut addresses: SmallVec<[*mut u8; 8]> =
            buffers().map(|buffer| self.address(buffer.place)).collect();
        self.queues.wait()?;
        let is_there =
            |queues: &Queues, buffer: &plan::Buffer| queues.space(buffer.place.device) == AddressSpace::Host;
        let copies = buffers().filter(|buffer| !is_there(&self.queues, buffer));
        self.operands = copies.map(|buffer| AlignedBuf::new(buffer.bytes)).collect::<Result<_, _>>()?;
        if self.operands.is_empty() {
            return Ok(addresses);
        }
        let mut copies = self.operands.iter_mut();
        for (buffer, address) in buffers().zip(&mut addresses) {
            let device = buffer.place.device;
            if is_there(&self.queues, buffer) {
                continue;
            }
            let copy = copies.next().expect("invariant: each that is elsewhere has a copy").as_mut_ptr();
            let from = (On::Device(device), address.cast_const());
            // SAFETY: the planner found the memory as large as this, and so is the copy.
            unsafe { self.queues.copy(device, from, (On::Host, copy), buffer.bytes) };
            *address = copy;
        }
        self.queues.wait()?;
        Ok(addresses)
    }

    /// Brings what a routine wrote to where launches find it.
    pub(super) fn return_operands<'b>(
        &mut self,
        writes: impl Iterator<Item = (&'b plan::Buffer, *mut u8)>,
    ) -> Result<(), RunError> {
        for (buffer, from) in writes {
            let (place, to) = (buffer.place.device, self.address(buffer.place));
            if self.queues.space(place) != AddressSpace::Host {
                let (from, to) = ((On::Host, from.cast_const()), (On::Device(place), to));
                // SAFETY: as above; the copies stay until the next routine, which waits first.
                unsafe { self.queues.copy(place, from, to, buffer.bytes) };
            }
        }
        // What other queues do next may be with what was written.
        if self.queues.are_many() && !self.operands.is_empty() { self.queues.wait() } else { Ok(()) }
    }
}
