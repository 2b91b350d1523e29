//! Runs the toy's kernels on a thread of their own: each stream is a thread that takes work in order.

use litz_ir::kernel::Kernel;
use litz_runtime::RunError;
use litz_runtime::device::{Copy, Device, DeviceMemory, Event, KernelId, Launch, Stream};
use litz_runtime::reference::ReferenceDevice;
use std::any::Any;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How late a launch begins, so that whoever did not wait for it comes too early.
pub const DELAY: Duration = Duration::from_micros(50);

/// The made-up machine, which works in the host's memory.
pub struct ToyDevice {
    processor: ReferenceDevice,
}

impl ToyDevice {
    pub fn new(kernels: &[Kernel]) -> Result<ToyDevice, RunError> {
        Ok(ToyDevice { processor: ReferenceDevice::new(kernels)? })
    }
}

impl Device for ToyDevice {
    fn find(&self, name: &str) -> Option<KernelId> {
        self.processor.find(name)
    }

    fn concurrency(&self) -> usize {
        0
    }

    fn memory(&self) -> Option<Arc<dyn DeviceMemory>> {
        None
    }

    fn stream(&self) -> Result<Box<dyn Stream>, RunError> {
        let processor = self.processor.stream()?;
        let (work, orders) = channel();
        let thread = std::thread::spawn(move || follow(processor, &orders));
        Ok(Box::new(ToyStream { work: Some(work), thread: Some(thread) }))
    }
}

enum Work {
    Launch { kernel: KernelId, args: Vec<*mut u8>, sizes: Vec<i64>, points: i64 },
    Copy(Copy),
    Record(Arc<ToyEvent>),
    WaitFor(Arc<dyn Event>),
    Wait(Sender<Result<(), RunError>>),
}

// SAFETY: what the addresses point to stays valid and untouched until somebody has waited, as streams demand.
unsafe impl Send for Work {}

fn follow(mut processor: Box<dyn Stream>, orders: &Receiver<Work>) {
    for work in orders {
        match work {
            Work::Launch { kernel, args, sizes, points } => {
                std::thread::sleep(DELAY);
                let (scratch, scratch_bytes, scratch_stride) = (std::ptr::null_mut(), 0, 0);
                let (args, sizes) = (&args[..], &sizes[..]);
                let launch =
                    Launch { kernel, number: 0, args, sizes, points, scratch, scratch_bytes, scratch_stride };
                // SAFETY: by the contract of whoever enqueued it.
                unsafe { processor.launch(&launch) };
            }
            // SAFETY: as above.
            Work::Copy(copy) => unsafe { processor.copy(copy) },
            Work::Record(event) => event.happen(),
            Work::WaitFor(event) => event.wait(),
            Work::Wait(reply) => {
                // Nobody listens where the stream was dropped.
                let _ = reply.send(processor.wait());
            }
        }
    }
}

struct ToyStream {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl ToyStream {
    fn push(&self, work: Work) {
        let sender = self.work.as_ref().expect("invariant: it is there until the stream is dropped");
        sender.send(work).expect("invariant: the thread takes work until then");
    }
}

impl Stream for ToyStream {
    unsafe fn launch(&mut self, launch: &Launch<'_>) {
        let Launch { kernel, args, sizes, points, .. } = *launch;
        self.push(Work::Launch { kernel, args: args.to_vec(), sizes: sizes.to_vec(), points });
    }

    unsafe fn copy(&mut self, copy: Copy) {
        self.push(Work::Copy(copy));
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, RunError> {
        let event = Arc::new(ToyEvent::default());
        self.push(Work::Record(Arc::clone(&event)));
        Ok(event)
    }

    fn wait_for(&mut self, event: &Arc<dyn Event>) {
        self.push(Work::WaitFor(Arc::clone(event)));
    }

    fn wait(&mut self) -> Result<(), RunError> {
        let (reply, answer) = channel();
        self.push(Work::Wait(reply));
        answer.recv().expect("invariant: the thread answers")
    }
}

impl Drop for ToyStream {
    fn drop(&mut self) {
        drop(self.work.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()), "the toy's thread panicked");
    }
}

#[derive(Default)]
struct ToyEvent {
    happened: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl ToyEvent {
    fn happen(&self) {
        *self.happened.lock().expect("nobody panics with it") = Some(Instant::now());
        self.changed.notify_all();
    }
}

impl Event for ToyEvent {
    fn wait(&self) {
        let happened = self.happened.lock().expect("nobody panics with it");
        drop(self.changed.wait_while(happened, |happened| happened.is_none()).expect("nobody panics"));
    }

    fn since(&self, earlier: &dyn Event) -> Option<Duration> {
        let earlier: &dyn Any = earlier;
        let earlier = *earlier.downcast_ref::<ToyEvent>()?.happened.lock().ok()?;
        Some((*self.happened.lock().ok()?)?.saturating_duration_since(earlier?))
    }
}
