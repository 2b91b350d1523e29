//! Gives outputs their memory, and hands them and the updates of inputs over when a call ends.

use std::sync::Arc;

use super::{Context, Updated, layout};
use crate::arena::AlignedBuf;
use crate::device::AddressSpace;
use crate::error::RunError;
use crate::number;
use crate::program::outputs::Outputs;
use crate::program::plan::{Address, Base, OutputPlan, Plan, Shape, Target};
use crate::program::queues::On;
use crate::tensor::{copy_strided, has_layout};

impl Context {
    /// Asks for the memory of outputs that are computed in place, but for those that it has asked for in this call.
    pub(in crate::program) fn set_outputs(&mut self, outputs: &mut dyn Outputs) -> Result<(), RunError> {
        let plan = self.plan.as_ref().expect("invariant: outputs are set after the plan");
        for (at, shape, device) in plan.direct.iter().skip(self.begun.outputs) {
            let is_there =
                self.outside != AddressSpace::Host || self.queues.space(*device) == AddressSpace::Host;
            self.bases[self.outputs_from + at] = match is_there {
                true => outputs.tensor(*at, &layout(shape))?.as_ptr(),
                false => {
                    self.results[*at].grow(&*self.queues.devices[*device], shape.bytes)?;
                    self.results[*at].as_ptr()
                }
            };
        }
        Ok(())
    }

    /// Hands over outputs that are not yet where they go, then makes the updates.
    pub(in crate::program) fn finish(&mut self, outputs: &mut dyn Outputs) -> Result<(), RunError> {
        let plan = Arc::clone(self.plan.as_ref().expect("invariant: a call has a plan"));
        self.check_results(&plan)?;
        for (at, output) in plan.outputs.iter().enumerate() {
            match output {
                OutputPlan::Direct(shape, device) => {
                    if self.outside == AddressSpace::Host && self.queues.space(*device) != AddressSpace::Host
                    {
                        let memory = outputs.tensor(at, &layout(shape))?;
                        let from = Address { base: Base::Output(at), offset: 0, device: *device };
                        self.bring(from, (On::Host, memory.as_ptr()), shape.bytes);
                    }
                }
                OutputPlan::Copied { shape, from } => {
                    if let Some((param, offset)) = self.donated_place(&plan, *from)
                        && outputs.in_input(at, param, offset, &layout(shape))
                    {
                        continue;
                    }
                    let memory = outputs.tensor(at, &layout(shape))?;
                    self.bring(*from, (self.outside(*from), memory.as_ptr()), shape.bytes);
                }
                OutputPlan::Number(from) => {
                    let (dtype, bits) = self.element(from)?;
                    outputs.scalar(at, Some(number::scalar(dtype, bits)));
                }
                OutputPlan::Scalar(scalar) => outputs.scalar(at, *scalar),
                OutputPlan::Text(text) => outputs.text(at, text),
            }
        }
        let mut extra = plan.outputs.len();
        for update in &plan.updates {
            match &update.to {
                Target::Const { to, bytes } => {
                    self.bring(update.from, (On::Device(to.device), self.address(*to)), *bytes);
                }
                Target::Input { param, shape } => {
                    match std::mem::replace(&mut self.updated[*param], Updated::Result) {
                        Updated::Result => {
                            let memory = outputs.tensor(extra, &layout(shape))?;
                            let outside = self.outside(update.from);
                            self.bring(update.from, (outside, memory.as_ptr()), shape.bytes);
                        }
                        Updated::InResult => {}
                        Updated::Back { data, strides, len } => {
                            self.give_back(update.from, shape, (data.as_ptr(), &strides, len))?;
                            outputs.scalar(extra, None);
                        }
                    }
                    extra += 1;
                }
            }
        }
        self.end()
    }

    /// Copies new contents to the memory that was lent: the address, strides and bytes of it. What was stored there is there.
    fn give_back(
        &mut self,
        from: Address,
        shape: &Shape,
        (data, strides, len): (*mut u8, &[usize], usize),
    ) -> Result<(), RunError> {
        let outside = self.outside(from);
        let is_outside =
            self.outside != AddressSpace::Host || self.queues.space(from.device) == AddressSpace::Host;
        if len == 0 || is_outside && self.address(from) == data {
            return Ok(());
        }
        if has_layout(&shape.sizes, strides, &shape.strides) {
            self.bring(from, (outside, data), shape.bytes);
            return Ok(());
        }
        if outside != On::Host {
            let message =
                format!("its new contents have other strides than the memory that was lent: {strides:?}");
            return Err(RunError::bug("an updated input", message));
        }
        let mut packed = AlignedBuf::new(shape.bytes)?;
        self.bring(from, (On::Host, packed.as_mut_ptr()), shape.bytes);
        self.queues.wait()?;
        // SAFETY: whoever lends memory lends all that sizes and strides reach.
        let bytes = unsafe { std::slice::from_raw_parts_mut(data, len) };
        copy_strided(shape.dtype.size(), &shape.sizes, (packed.as_slice(), &shape.strides), (bytes, strides));
        Ok(())
    }

    /// The donated input in whose own memory a place is, lent to the call, and how many bytes behind its first element. What an input
    /// is updated with stays the caller's: a result that is equal to it has memory of its own.
    fn donated_place(&self, plan: &Plan, place: Address) -> Option<(usize, usize)> {
        let Base::Param(param) = place.base else { return None };
        if !plan.params[param].is_donated {
            return None;
        }
        match &self.updated[param] {
            Updated::Back { data, .. } if self.bases[param] == data.as_ptr() => Some((param, place.offset)),
            Updated::Back { .. } | Updated::Result | Updated::InResult => None,
        }
    }

    /// Where results go that steps have on a device.
    fn outside(&self, from: Address) -> On {
        if self.outside == AddressSpace::Host { On::Host } else { On::Device(from.device) }
    }
}
