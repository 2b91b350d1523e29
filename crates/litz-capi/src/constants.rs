//! Lets C read constants and give them new contents.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use litz_runtime::Tensor;
use litz_runtime::program::Generation;

use crate::engine::Engine;
use crate::error::{Failure, Status, expect_place, guard, of, put, quietly, text};
use crate::model::{Model, describe, release};
use crate::tensor::{CTensor, CType, Given};

/// How many constants a model has.
///
/// # Safety
/// `model` is null or a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_constant_count(model: *const Model) -> usize {
    // SAFETY: the caller's promise.
    quietly(|| unsafe { model.as_ref() }.map_or(0, |model| model.constants().len()))
}

/// Name and type of a constant.
///
/// # Safety
/// `model` is null or a model, `constant` null or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_constant(
    model: *const Model,
    index: usize,
    constant: *mut CType,
) -> Status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { describe(of(model, "model")?.constants(), index, (constant, "constant")) })
}

/// Copies what a constant holds, row by row.
///
/// # Safety
/// `model` is null or a model, `name` null or text, `data` null or so many bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_read_constant(
    model: *const Model,
    name: *const c_char,
    data: *mut c_void,
    bytes: usize,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, name) = unsafe { (of(model, "model")?, text(name, "name")?) };
        let tensor = model.engine.executable().constant(name)?;
        let contents = tensor.bytes();
        if bytes != contents.len() {
            let message = format!("expected {} for constant \"{name}\", found {bytes}", contents.len());
            return Err(Failure::argument("bytes", message));
        }
        if bytes > 0 {
            expect_place(data, "data")?;
            // SAFETY: the caller's memory is as large as this, and the tensor is a copy that nobody else has.
            unsafe { ptr::copy_nonoverlapping(contents.as_ptr(), data.cast(), bytes) };
        }
        Ok(())
    })
}

/// `litz_update` of the header: new contents that no call sees yet.
pub struct Update {
    engine: Arc<Engine>,
    /// One thread at a time is meant to use it; where several do, one after the other.
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    contents: Vec<(String, Tensor)>,
    /// What load steps made of them.
    folded: Option<Generation>,
}

impl Pending {
    fn contents(&self) -> Vec<(&str, &Tensor)> {
        self.contents.iter().map(|(name, tensor)| (&**name, tensor)).collect()
    }
}

impl Update {
    fn with<R>(&self, change: impl FnOnce(&mut Pending) -> R) -> R {
        change(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Begins an update without contents.
///
/// # Safety
/// `model` is null or a model, `update` null or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_update_new(model: *const Model, update: *mut *mut Update) -> Status {
    guard(|| {
        expect_place(update, "update")?;
        // SAFETY: the caller's promise.
        let engine = unsafe { Arc::clone(&of(model, "model")?.engine) };
        let made = Update { engine, pending: Mutex::default() };
        // SAFETY: the caller's promise.
        unsafe { put(update, "update", Box::into_raw(Box::new(made))) }
    })
}

/// Copies new contents of a constant.
///
/// # Safety
/// `update` is null or one that was begun, `name` null or text, `contents` null or a tensor that can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_update_set(
    update: *const Update,
    name: *const c_char,
    contents: *const CTensor,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (update, name) = unsafe { (of(update, "update")?, text(name, "name")?) };
        let executable = update.engine.executable();
        let called = || "contents".to_owned();
        // SAFETY: the caller's promise.
        let tensor = unsafe {
            let given = Given::new(of(contents, "contents")?, &called)?;
            executable.expect_contents(name, given.dtype(), given.sizes())?;
            given.copy(&called)?
        };
        update.with(|pending| {
            pending.contents.retain(|(other, _)| other != name);
            pending.contents.push((name.to_owned(), tensor));
            pending.folded = None;
        });
        Ok(())
    })
}

/// Runs load steps on what was set.
///
/// # Safety
/// `update` is null or one that was begun.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_update_fold(update: *const Update) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let update = unsafe { of(update, "update")? };
        update.with(|pending| {
            pending.folded = Some(update.engine.executable().fold(&pending.contents())?);
            Ok(())
        })
    })
}

/// Gives calls that begin from here on what was set. The update is empty afterwards.
///
/// # Safety
/// `update` is null or one that was begun.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_update_swap(update: *const Update) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let update = unsafe { of(update, "update")? };
        let executable = update.engine.executable();
        update.with(|pending| {
            match pending.folded.take() {
                Some(folded) => drop(executable.swap(folded)?),
                None => executable.update(&pending.contents())?,
            }
            *pending = Pending::default();
            Ok(())
        })
    })
}

/// Releases an update.
///
/// # Safety
/// It is null, or one that was begun and that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_update_free(update: *mut Update) {
    // SAFETY: the caller's promise.
    unsafe { release(update) }
}
