//! Holds the streams of a call on all devices of its program, and waits and copies between them.

use std::sync::Arc;

use crate::device::{AddressSpace, Copy, Device, Event, RawStream, Stream};
use crate::error::RunError;

/// The devices that a program runs on, that of its first line first.
pub(super) type Devices = Arc<[Arc<dyn Device>]>;

/// Where some memory is: on a device, by position among those of the program, or outside of all of them, with the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum On {
    Device(usize),
    Host,
}

/// The streams of one call. The first ones are the first streams of the devices, in their order.
pub(super) struct Queues {
    pub(super) devices: Devices,
    spaces: Vec<AddressSpace>,
    streams: Vec<Box<dyn Stream>>,
    /// The device of each stream.
    places: Vec<usize>,
    /// Those that the call has recorded, by number.
    events: Vec<Option<Arc<dyn Event>>>,
    /// Devices that the call has entered.
    entered: Vec<usize>,
}

impl Queues {
    /// Streams on devices, by position; `places` begins with each device once.
    pub(super) fn new(devices: &Devices, places: &[usize]) -> Result<Queues, RunError> {
        let space = |device: &Arc<dyn Device>| match device.memory() {
            Some(_) => AddressSpace::Device,
            None => AddressSpace::Host,
        };
        Ok(Queues {
            devices: Arc::clone(devices),
            spaces: devices.iter().map(space).collect(),
            streams: places.iter().map(|&at| devices[at].stream()).collect::<Result<_, _>>()?,
            places: places.to_vec(),
            events: Vec::new(),
            entered: Vec::new(),
        })
    }

    /// Where launches of a device find memory.
    pub(super) fn space(&self, device: usize) -> AddressSpace {
        self.spaces[device]
    }

    /// The device of a queue.
    pub(super) fn device_of(&self, queue: usize) -> usize {
        self.places[queue]
    }

    pub(super) fn stream(&mut self, queue: usize) -> &mut dyn Stream {
        &mut *self.streams[queue]
    }

    /// Returns when all that is enqueued has ended.
    ///
    /// # Errors
    /// The first error of the first stream that has one.
    pub(super) fn wait(&mut self) -> Result<(), RunError> {
        if let [only] = &mut self.streams[..] {
            return only.wait();
        }
        let mut ended = Ok(());
        for stream in &mut self.streams {
            // All of them, also behind one that failed: memory is used again afterwards.
            ended = ended.and(stream.wait());
        }
        ended
    }

    /// Enqueues on the caller's stream what is enqueued on the first one.
    pub(super) fn follow(&mut self, stream: Option<RawStream>) {
        self.streams[0].follow(stream);
    }

    /// What has gone wrong so far on the first stream, without waiting.
    pub(super) fn check(&mut self) -> Result<(), RunError> {
        self.streams[0].check()
    }

    /// Lets what is enqueued from here on begin after all that is enqueued so far on the first stream of its device, such as inputs that
    /// are copied there.
    pub(super) fn begin(&mut self) -> Result<(), RunError> {
        self.events.clear();
        for queue in self.devices.len()..self.streams.len() {
            let event = self.streams[self.places[queue]].record()?;
            self.streams[queue].wait_for(&event);
        }
        Ok(())
    }

    pub(super) fn enter(&mut self, device: usize) {
        self.devices[device].enter();
        self.entered.push(device);
    }

    /// Leaves the device that was entered last.
    pub(super) fn leave(&mut self) {
        if let Some(device) = self.entered.pop() {
            self.devices[device].leave();
        }
    }

    /// Leaves all devices that were entered, as behind a call that failed.
    pub(super) fn leave_all(&mut self) {
        while !self.entered.is_empty() {
            self.leave();
        }
    }

    /// Whether a device is entered.
    pub(super) fn is_entered(&self, device: usize) -> bool {
        self.entered.contains(&device)
    }

    /// Whether steps are enqueued on more than one queue.
    pub(super) fn are_many(&self) -> bool {
        self.streams.len() > 1
    }

    pub(super) fn record(&mut self, event: usize, queue: usize) -> Result<(), RunError> {
        let recorded = self.streams[queue].record()?;
        self.events.resize(self.events.len().max(event + 1), None);
        self.events[event] = Some(recorded);
        Ok(())
    }

    pub(super) fn wait_for(&mut self, event: usize, queue: usize) -> Result<(), RunError> {
        let recorded = self.events.get(event).cloned().flatten();
        let unknown = || RunError::bug("the program", format!("event {event} was not recorded"));
        self.streams[queue].wait_for(&recorded.ok_or_else(unknown)?);
        Ok(())
    }

    /// Enqueues a copy.
    ///
    /// # Safety
    /// As [`Stream::copy`]; each address is one of the place that it comes with.
    pub(super) unsafe fn copy(
        &mut self,
        queue: usize,
        from: (On, *const u8),
        to: (On, *mut u8),
        bytes: usize,
    ) {
        let own = self.places[queue];
        let space = |place: On| match place {
            On::Device(device) if self.spaces[device] == AddressSpace::Device && device != own => {
                AddressSpace::Peer
            }
            On::Device(device) => self.spaces[device],
            On::Host => AddressSpace::Host,
        };
        let copy = Copy { from: (space(from.0), from.1), to: (space(to.0), to.1), bytes };
        // SAFETY: by the contract.
        unsafe { self.streams[queue].copy(copy) };
    }
}
