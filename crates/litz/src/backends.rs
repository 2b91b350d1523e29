//! Finds the backend that options ask for, and compiles kernels through it, in parallel and by the cache.

use crate::error::Error;
use crate::options::Options;
use litz_backend::{Backend, Request};
use litz_ir::graph;
use litz_ir::kernel::Kernel;
use litz_ir::parallel::parallel;
use litz_ir::program::Program;
use litz_runtime::RunError;
use litz_runtime::cache::{CacheKey, ObjectCache};
use litz_runtime::reference::DistantDevice;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Something that runs kernels.
pub type Device = Arc<dyn litz_runtime::device::Device>;

/// The backend that options ask for.
///
/// # Errors
/// [`Error::Unsupported`] when it does not make code for the target.
pub fn backend(options: &Options) -> Result<Arc<dyn Backend>, Error> {
    let request = Request {
        target: options.target,
        threads: options.threads,
        device_number: options.device_number,
        architectures: &options.architectures,
    };
    (options.backend.make)(&request).map_err(Error::unsupported)
}

/// The device of a program's first line, and those that it names besides. `main` is what the target's code runs on; reference devices that a
/// program names interpret its kernels, each in memory of its own.
///
/// # Errors
/// When a kernel breaks the rules of kernels.
pub fn devices(
    program: &Program,
    kernels: &[Kernel],
    main: Device,
) -> Result<(Device, Vec<(graph::Device, Device)>), RunError> {
    let slots = program.all().into_iter().flat_map(|program| program.slots.values());
    let mut names: Vec<graph::Device> = slots.map(|slot| slot.device).chain([program.device]).collect();
    names.sort_unstable();
    names.dedup();
    let number = |name: &graph::Device| match name {
        graph::Device::Ref(number) => Some(*number as usize),
        graph::Device::Cpu | graph::Device::Cuda(_) => None,
    };
    // Only those that are named have kernels and memory; numbers may be far apart.
    let references = names.iter().filter(|name| number(name).is_some()).count();
    let mut references = DistantDevice::several(kernels, references)?.into_iter();
    let mut next = |name: &graph::Device| match number(name) {
        Some(_) => references.next().map(|device| Arc::new(device) as Device),
        None => Some(Arc::clone(&main)),
    };
    let mut all: Vec<(graph::Device, Device)> =
        names.iter().filter_map(|name| Some((*name, next(name)?))).collect();
    let first = all.iter().position(|(name, _)| *name == program.device);
    let (_, first) = all.swap_remove(first.expect("invariant: the program's device is among those it names"));
    Ok((first, all))
}

/// Code of the kernels, from the cache where it has them.
///
/// # Errors
/// [`Error::Bug`] when a kernel cannot be emitted or assembled.
pub fn compile_kernels(
    backend: &dyn Backend,
    kernels: &[Kernel],
    options: &Options,
    cache: Option<&ObjectCache>,
) -> Result<Vec<Vec<u8>>, Error> {
    let groups: Vec<&[Kernel]> = kernels.chunks(backend.kernels_per_text().max(1)).collect();
    let texts = parallel(options.threads, groups.len(), |at| {
        options.check_stop()?;
        Ok(backend.emit(groups[at])?)
    });
    let texts = texts.into_iter().collect::<Result<Vec<_>, Error>>()?;
    // The longest first: none of them is begun when the other threads are done.
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&at| Reverse(texts[at].len()));
    let key = format!("{:?} {}", options.backend, backend.key());
    let objects = parallel(options.threads, order.len(), |at| {
        options.check_stop()?;
        assemble(backend, &key, &texts[order[at]], cache)
    });
    let mut objects: Vec<_> = order.iter().zip(objects).collect();
    objects.sort_by_key(|&(&at, _)| at);
    objects.into_iter().map(|(_, object)| object).collect()
}

/// Code of kernels that were compiled one after another in one process, by what their texts say.
#[derive(Default)]
pub struct Objects {
    known: Mutex<HashMap<String, Vec<u8>>>,
}

impl Objects {
    /// Code of the kernels, of which those are compiled that have not been before.
    ///
    /// # Errors
    /// As [`compile_kernels`].
    pub fn compile(
        &self,
        backend: &dyn Backend,
        kernels: &[Kernel],
        options: &Options,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let at_once = backend.kernels_per_text().max(1);
        let texts: Vec<String> =
            kernels.chunks(at_once).map(|kernels| kernels.iter().map(Kernel::to_string).collect()).collect();
        let is_new = |text: &String| !self.lock().contains_key(text);
        let groups = kernels.chunks(at_once).zip(&texts).filter(|(_, text)| is_new(text));
        let (groups, new): (Vec<&[Kernel]>, Vec<&String>) = groups.unzip();
        let compiled =
            parallel(options.threads, groups.len(), |at| compile_kernels(backend, groups[at], options, None));
        for (text, objects) in new.into_iter().zip(compiled) {
            self.lock().extend(objects?.pop().map(|object| (text.clone(), object)));
        }
        let known = self.lock();
        Ok(texts.iter().filter_map(|text| known.get(text).cloned()).collect())
    }

    /// A compilation that panicked half way has added nothing.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn assemble(
    backend: &dyn Backend,
    key: &str,
    text: &str,
    cache: Option<&ObjectCache>,
) -> Result<Vec<u8>, Error> {
    let key = CacheKey::new(&[text.as_bytes(), key.as_bytes(), env!("CARGO_PKG_VERSION").as_bytes()]);
    if let Some(object) = cache.and_then(|c| c.get(&key)) {
        return Ok(object);
    }
    let object = backend.assemble(text)?;
    // A full or read-only disk costs the next start its cached code, nothing else.
    if let Some(cache) = cache {
        let _ = cache.put(&key, &object);
    }
    Ok(object)
}
