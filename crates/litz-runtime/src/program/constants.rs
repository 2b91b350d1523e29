//! Gives constants new contents while calls go on: made ready beside those in use, then swapped in.
//!
//! ```
//! # use litz_runtime::{Executable, RunError, Tensor};
//! # fn update(executable: &Executable, weight: &Tensor, bias: &Tensor) -> Result<(), RunError> {
//! let folded = executable.fold(&[("fc.weight", weight), ("fc.bias", bias)])?; // packs and folds; calls see nothing of it
//! let before = executable.swap(folded)?; // calls that begin from here on see both
//! executable.swap(before)?; // and from here on neither
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

use litz_ir::Dtype;
use litz_ir::graph;
use litz_ir::ids::Id;
use litz_ir::program::{Const, Program, Slot};
use litz_sym::Expr;

use super::context::Deadline;
use super::function::Running;
use super::memory::{self, Constant, Memory};
use super::prepare::{bases, written};
use super::prepared::{Origin, Prepared, PreparedStep};
use super::queues::Devices;
use super::{Code, ConstantSource, Executable, lock};
use crate::arena::AlignedBuf;
use crate::cache::{MemoryKeys, ObjectCache};
use crate::error::{ConstantError, RunError};
use crate::limits::Limit;
use crate::tensor::{Tensor, TensorError, span_bytes};
use crate::weights::{self, ConstMemory, ConstType, Weights};

/// Contents of all constants of an executable, with what its load steps made of them.
pub struct Generation {
    memory: Arc<Memory>,
    /// Whose they are.
    owner: Arc<Constants>,
}

/// A constant of a program, as [`Executable::constants`] lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConstantInfo<'a> {
    /// Its name in the model.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Extent of each dimension.
    pub sizes: &'a [usize],
    /// Whether calls write it.
    pub is_state: bool,
}

/// The constants of an executable, and of those that share them.
pub(super) struct Constants {
    pub(super) layout: Layout,
    current: Mutex<Arc<Memory>>,
    /// Held while new contents are made of those at hand, and swapped in.
    updating: Mutex<()>,
    /// Held during a call when constants are written.
    state: Option<Mutex<()>>,
    /// Whether a call failed that had begun to store to constants.
    pub(super) is_state_lost: AtomicBool,
}

/// What constants are, whatever they hold.
#[derive(PartialEq)]
pub(super) struct Layout {
    /// By position.
    types: Vec<Type>,
    /// Slot and bytes of what load steps keep.
    pub(super) kept: Vec<(usize, usize)>,
    /// The device of each constant, and then of what load steps keep; empty where all is in the host's memory.
    places: Vec<usize>,
    /// Why none of them can be given new contents.
    fixed: Option<ConstantError>,
}

/// Name, type and layout of a constant, and who writes it.
#[derive(PartialEq)]
struct Type {
    name: String,
    dtype: Dtype,
    sizes: Vec<usize>,
    strides: Vec<usize>,
    is_written: bool,
    is_state: bool,
}

impl Type {
    fn info(&self) -> ConstantInfo<'_> {
        let Type { name, dtype, sizes, is_state, .. } = self;
        ConstantInfo { name, dtype: *dtype, sizes, is_state: *is_state }
    }

    fn expected(&self) -> ConstType<'_> {
        let Type { name, dtype, sizes, strides, is_written, is_state: _ } = self;
        ConstType { name, dtype: *dtype, sizes, strides, is_written: *is_written }
    }
}

impl Layout {
    /// That of a program whose load steps keep so much.
    pub(super) fn new(
        program: &Program,
        prepared: &Prepared,
        devices: &Devices,
        kept: Vec<(usize, usize)>,
        source: ConstantSource,
    ) -> Result<Layout, RunError> {
        let state = written_consts(&prepared.steps, &prepared.updates, prepared);
        let types = program.consts.iter().enumerate();
        let types: Vec<Type> = types
            .map(|(at, constant)| ty(program, prepared, constant, state.contains(&at)))
            .collect::<Result<_, _>>()?;
        let mut places = Vec::new();
        if devices.iter().any(|device| device.memory().is_some()) {
            let slots = program.consts.iter().map(|constant| constant.slot.0 as usize);
            let slots = slots.chain(kept.iter().map(|&(slot, _)| slot));
            places = slots.map(|slot| prepared.slots[slot].device).collect();
        }
        let is_entangled = prepared.calls_write_kept
            || !written_consts(&prepared.load, &[], prepared).is_empty()
            || read_consts(&prepared.load, prepared).iter().any(|at| state.contains(at));
        let fixed = match source {
            ConstantSource::Folded => Some(ConstantError::Folded),
            ConstantSource::Model => is_entangled.then_some(ConstantError::Entangled),
        };
        Ok(Layout { types, kept, places, fixed })
    }

    /// Whether two executables, one with each, on these devices, may have their constants in the same memory: the host's, or those of the same GPUs.
    pub(super) fn may_share(&self, other: &Layout, [own, others]: [&Devices; 2]) -> bool {
        let is_same = |&place: &usize| match [own, others].map(|devices| devices.get(place)) {
            [Some(one), Some(other)] => {
                let is_gpu = matches!(one.name(), graph::Device::Cuda(_));
                is_gpu && one.name() == other.name() || one.memory().is_none() && other.memory().is_none()
            }
            _ => false,
        };
        self == other && self.places.iter().all(is_same)
    }

    /// Memory for constants and what load steps keep, these still to run where it is empty.
    pub(super) fn memory(
        &self,
        constants: Vec<Arc<Constant>>,
        devices: &Devices,
        prepared: &Prepared,
        kept_as: Option<(&ObjectCache, &MemoryKeys)>,
    ) -> Result<Memory, RunError> {
        let bytes = constants.iter().map(|constant| constant.len() as u64);
        let bytes = bytes.chain(self.kept.iter().map(|&(_, bytes)| bytes as u64));
        prepared.limits.check(Limit::ConstantBytes, bytes.fold(0, u64::saturating_add))?;
        if !self.places.is_empty() {
            return Memory::on_devices(constants, &self.kept, devices, &self.places);
        }
        // Kept memory is read only.
        let kept_as = kept_as.filter(|_| !prepared.calls_write_kept);
        Ok(Memory::new(constants, &self.kept, kept_as, prepared.guard_pages)?)
    }

    /// All constants as `weights` have them.
    pub(super) fn load(
        &self,
        weights: &dyn Weights,
        devices: &Devices,
        prepared: &Prepared,
    ) -> Result<Vec<Arc<Constant>>, RunError> {
        let mut total = 0u64;
        let mut loaded = Vec::with_capacity(self.types.len());
        for ty in &self.types {
            let bytes = span_bytes(ty.dtype, &ty.sizes, &ty.strides);
            total = total.saturating_add(bytes.map_or(u64::MAX, |bytes| bytes as u64));
            prepared.limits.check(Limit::ConstantBytes, total)?;
            loaded.push(weights::load(weights, &ty.expected(), prepared.guard_pages)?);
        }
        self.placed(loaded, devices, 0..self.types.len())
    }

    /// Constants at positions, brought to their devices.
    fn placed(
        &self,
        loaded: Vec<ConstMemory>,
        devices: &Devices,
        positions: impl Iterator<Item = usize>,
    ) -> Result<Vec<Arc<Constant>>, RunError> {
        if self.places.is_empty() {
            return Ok(loaded.into_iter().map(|constant| Arc::new(constant.into())).collect());
        }
        let places: Vec<usize> = positions.map(|at| self.places[at]).collect();
        Ok(memory::on_devices(&loaded, devices, &places)?.into_iter().map(Arc::new).collect())
    }

    /// The contents of a piece: of a constant, or of what load steps keep.
    ///
    /// # Safety
    /// As [`Memory::read`].
    unsafe fn read<'m>(
        &self,
        memory: &'m Memory,
        at: usize,
        devices: &Devices,
    ) -> Result<Cow<'m, [u8]>, RunError> {
        let count = self.types.len();
        let bytes = if at < count { memory.constant(at).len() } else { self.kept[at - count].1 };
        let device = self.places.get(at).map(|&place| &*devices[place]);
        // SAFETY: the caller's promise.
        unsafe { memory.read(at, bytes, device) }
    }
}

impl Constants {
    pub(super) fn new(layout: Layout, memory: Memory) -> Constants {
        Constants {
            state: layout.types.iter().any(|ty| ty.is_written).then(Mutex::default),
            layout,
            current: Mutex::new(Arc::new(memory)),
            updating: Mutex::default(),
            is_state_lost: AtomicBool::new(false),
        }
    }

    /// What a call takes that begins at this moment.
    pub(super) fn current(&self) -> Arc<Memory> {
        Arc::clone(&lock(&self.current))
    }

    /// Waits for the calls that write constants, where any does.
    pub(super) fn lock_state(&self) -> Option<MutexGuard<'_, ()>> {
        self.state.as_ref().map(lock)
    }

    /// Whether calls write constants.
    pub(super) fn have_state(&self) -> bool {
        self.state.is_some()
    }
}

impl Executable {
    /// The constants in the program's order, each name once. Parameters that are equal, or that no call uses, may be left out.
    pub fn constants(&self) -> Vec<ConstantInfo<'_>> {
        let mut names = HashSet::new();
        let types = self.constants.layout.types.iter().filter(|ty| names.insert(&*ty.name));
        types.map(Type::info).collect()
    }

    /// A copy of what a constant holds, row by row. Waits for a call that writes constants.
    ///
    /// # Errors
    /// Where there is no such constant, or no memory.
    pub fn constant(&self, name: &str) -> Result<Tensor, RunError> {
        let layout = &self.constants.layout;
        let at = layout.types.iter().position(|ty| ty.name == name).ok_or_else(|| self.unknown(name))?;
        let ty = &layout.types[at];
        let _state = self.constants.lock_state();
        let memory = self.constants.current();
        // SAFETY: load steps have ended, and calls write constants only while they hold the lock.
        let bytes = unsafe { layout.read(&memory, at, &self.code.devices)? };
        let mut copy = AlignedBuf::new(bytes.len())?;
        copy.as_mut_slice().copy_from_slice(&bytes);
        let copy = Tensor::from_buffer(ty.dtype, &ty.sizes, &ty.strides, copy);
        copy.to_contiguous().map_err(|error| match error {
            TensorError::OutOfMemory(error) => error.into(),
            TensorError::Rank { .. } | TensorError::Length { .. } | TensorError::Reversed { .. } => {
                RunError::bug(format!("constant \"{name}\""), error.to_string())
            }
        })
    }

    /// Says whether a constant can be given contents of a type and of sizes.
    ///
    /// # Errors
    /// As [`Executable::fold`].
    pub fn expect_contents(&self, name: &str, dtype: Dtype, sizes: &[usize]) -> Result<(), RunError> {
        let layout = &self.constants.layout;
        if let Some(fixed) = &layout.fixed {
            return Err(fixed.clone().into());
        }
        let ty = layout.types.iter().find(|ty| ty.name == name).ok_or_else(|| self.unknown(name))?;
        if ty.is_state {
            return Err(ConstantError::State { name: name.to_owned() }.into());
        }
        if (ty.dtype, &*ty.sizes) != (dtype, sizes) {
            let (expected, found) = (format!("{}{:?}", ty.dtype, ty.sizes), format!("{dtype}{sizes:?}"));
            return Err(RunError::WrongWeight { name: name.to_owned(), expected, found });
        }
        Ok(())
    }

    /// Makes constants ready that hold these contents, and what they hold at this moment where none are given: load steps run on them,
    /// which pack and fold. Calls go on, and see nothing of it until [`Executable::swap`].
    ///
    /// Memory is taken for what is given, where it lies in another way than kernels expect it, and for all that load steps keep.
    ///
    /// # Errors
    /// [`RunError::Constants`] where these cannot be given new contents, and where a name is unknown; contents of another type or
    /// size; out of memory, and beyond the limits.
    pub fn fold(&self, contents: &[(&str, &Tensor)]) -> Result<Generation, RunError> {
        let Constants { layout, .. } = &*self.constants;
        if let Some(fixed) = &layout.fixed {
            return Err(fixed.clone().into());
        }
        contents
            .iter()
            .try_for_each(|(name, tensor)| self.expect_contents(name, tensor.dtype(), tensor.sizes()))?;
        let (devices, prepared) = (&self.code.devices, &self.code.function.prepared);
        let given = Given(contents);
        let is_given = |at: &usize| contents.iter().any(|(name, _)| layout.types[*at].name == *name);
        let positions: Vec<usize> = (0..layout.types.len()).filter(is_given).collect();
        let load = |at: &usize| weights::load(&given, &layout.types[*at].expected(), prepared.guard_pages);
        let loaded = positions.iter().map(load).collect::<Result<_, _>>()?;
        let loaded = layout.placed(loaded, devices, positions.iter().copied())?;
        let current = self.constants.current();
        let mut constants: Vec<Arc<Constant>> =
            (0..layout.types.len()).map(|at| Arc::clone(current.constant(at))).collect();
        positions.into_iter().zip(loaded).for_each(|(at, constant)| constants[at] = constant);
        let memory = layout.memory(constants, devices, prepared, None)?;
        self.code.load(&memory, &|_| {})?;
        Ok(Generation { memory: Arc::new(memory), owner: Arc::clone(&self.constants) })
    }

    /// Gives calls that begin from here on other constants, all of them at once, and returns those before. Calls that have begun go on
    /// with what they began with; its memory is freed when the last of them has ended, and nobody has the generation. Executables
    /// that share the constants have them, too. State stays as it is: all generations have the same.
    ///
    /// What another swap has brought since these were folded is gone, where they do not have it as well.
    ///
    /// # Errors
    /// [`RunError::Constants`] where they are another program's.
    pub fn swap(&self, generation: Generation) -> Result<Generation, RunError> {
        let Generation { memory, owner } = generation;
        if !Arc::ptr_eq(&owner, &self.constants) {
            return Err(ConstantError::Foreign.into());
        }
        let memory = std::mem::replace(&mut *lock(&self.constants.current), memory);
        Ok(Generation { memory, owner })
    }

    /// Folds new contents and swaps them in. Updates of several threads are made one after the other, so that each is there in the end.
    ///
    /// # Errors
    /// As [`Executable::fold`].
    pub fn update(&self, contents: &[(&str, &Tensor)]) -> Result<(), RunError> {
        let _updating = lock(&self.constants.updating);
        self.swap(self.fold(contents)?).map(drop)
    }

    /// Shows `read` what the constants hold, in the program's order, and by slot what load steps keep. No call writes
    /// them meanwhile.
    pub(crate) fn with_memory<R>(
        &self,
        read: impl FnOnce(&[&[u8]], &[(Slot, &[u8])]) -> R,
    ) -> Result<R, RunError> {
        let Constants { layout, .. } = &*self.constants;
        let _state = self.constants.lock_state();
        let memory = self.constants.current();
        let count = layout.types.len();
        let contents = (0..count + layout.kept.len()).map(|at| {
            // SAFETY: load steps have ended, and calls write constants only while they hold the lock.
            unsafe { layout.read(&memory, at, &self.code.devices) }
        });
        let contents: Vec<Cow<'_, [u8]>> = contents.collect::<Result<_, _>>()?;
        let contents: Vec<&[u8]> = contents.iter().map(|bytes| &**bytes).collect();
        let (constants, kept) = contents.split_at(count);
        let slots = layout.kept.iter().map(|&(slot, _)| Slot::new(slot));
        let kept: Vec<(Slot, &[u8])> = slots.zip(kept.iter().copied()).collect();
        Ok(read(constants, &kept))
    }

    /// Whether constants are as the model has them, and not what load steps made of them.
    pub(crate) fn has_constants_of_model(&self) -> bool {
        self.constants.layout.fixed != Some(ConstantError::Folded)
    }

    fn unknown(&self, name: &str) -> RunError {
        ConstantError::Unknown { name: name.to_owned() }.into()
    }
}

impl Code {
    /// Runs the load steps, and says `release` which constants nothing reads any more.
    pub(super) fn load(&self, memory: &Memory, release: &dyn Fn(usize)) -> Result<(), RunError> {
        let Code { function, load, counters, hosted, .. } = self;
        let mut context = self.context()?;
        context.bind_addresses(memory);
        context.use_plan(Arc::clone(load))?;
        let deadline = Deadline::of(&function.prepared.limits);
        context.run(function, Running { deadline, counters, hosted, release })?;
        Ok(())
    }
}

/// Contents by name; of one that is there twice the last ones.
struct Given<'a>(&'a [(&'a str, &'a Tensor)]);

impl Weights for Given<'_> {
    fn get(&self, name: &str) -> Option<Tensor> {
        self.0.iter().rfind(|(given, _)| *given == name).map(|(_, tensor)| (*tensor).clone())
    }
}

fn ty(program: &Program, prepared: &Prepared, constant: &Const, is_state: bool) -> Result<Type, RunError> {
    let bug = |what| RunError::bug(format!("program @{}", program.name), what);
    let number = |expr: &Expr| {
        let unknown = || bug(format!("the type of \"{}\" depends on {expr}", constant.name));
        expr.as_int().and_then(|value| usize::try_from(value).ok()).ok_or_else(unknown)
    };
    let numbers = |exprs: &[Expr]| exprs.iter().map(number).collect::<Result<Vec<_>, _>>();
    let (sizes, strides) = (numbers(&constant.ty.sizes)?, numbers(&constant.ty.strides)?);
    let slot = &prepared.slots[constant.slot.0 as usize];
    let extent = slot.extent.eval(&[]).and_then(|extent| usize::try_from(extent).ok());
    let needed = extent.and_then(|extent| extent.checked_mul(slot.dtype.size()));
    let bytes = span_bytes(constant.ty.dtype, &sizes, &strides);
    if bytes.is_some() && needed.is_none_or(|needed| Some(needed) > bytes) {
        return Err(bug(format!(
            "{} is larger than \"{}\", which has {} bytes",
            slot.name,
            constant.name,
            bytes.unwrap_or(0)
        )));
    }
    let (name, dtype, is_written) = (constant.name.clone(), constant.ty.dtype, slot.is_written);
    Ok(Type { name, dtype, sizes, strides, is_written, is_state })
}

/// The constants that steps or updates write, by position.
fn written_consts(steps: &[PreparedStep], updates: &[(usize, usize)], prepared: &Prepared) -> HashSet<usize> {
    let slots = written(steps, &prepared.kernels).into_iter().chain(updates.iter().map(|&(to, _)| to));
    slots.filter_map(|slot| const_of(prepared, slot)).collect()
}

/// The constants that steps mention, but for views of them, by position.
fn read_consts(steps: &[PreparedStep], prepared: &Prepared) -> HashSet<usize> {
    let uses = steps.iter().filter(|step| !matches!(step, PreparedStep::View(_)));
    let slots = uses.flat_map(PreparedStep::mentioned);
    slots.filter_map(|slot| const_of(prepared, slot)).collect()
}

/// The constant that a slot lies in.
fn const_of(prepared: &Prepared, slot: usize) -> Option<usize> {
    bases(&prepared.slots, slot).find_map(|slot| match prepared.slots[slot].origin {
        Origin::Const(at) => Some(at),
        Origin::Param(_) | Origin::Alloc | Origin::View { .. } | Origin::None => None,
    })
}
