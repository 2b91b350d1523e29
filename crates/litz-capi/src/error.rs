//! Turns errors and panics into status codes, and keeps their messages for the thread that they belong to.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use litz_runtime::RunError;
use litz_runtime::artifact::ArtifactError;
use litz_runtime::error::ConstantError;

/// What a function returns: `litz_status` of the header.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It did what it says.
    Ok = 0,
    /// An argument, a file or an input is wrong.
    Invalid = 1,
    /// What is asked for is right, and Litz does not have it.
    Unsupported = 2,
    /// A call failed because of what it computed.
    Run = 3,
    /// More memory, time or work than is allowed or there.
    Limit = 4,
    /// A file cannot be read.
    Io = 5,
    /// A mistake of Litz.
    Bug = 6,
}

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into() }
    }

    /// An argument that is wrong, by its name in the header.
    pub(crate) fn argument(name: &str, what: impl std::fmt::Display) -> Failure {
        Failure::new(Status::Invalid, format!("{name}: {what}"))
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        Failure::new(run_status(&error), run_message(&error))
    }
}

/// What an error says, and what to do where this build of the library is why.
fn run_message(error: &RunError) -> String {
    const IS_WHOLE: bool = cfg!(all(feature = "fourier", feature = "linalg"));
    match error {
        RunError::UnknownRoutine { .. } if !IS_WHOLE => {
            let help = "this library was built without Fourier transforms or linear algebra: use the one with the compiler";
            format!("{error}: {help}")
        }
        _ => error.to_string(),
    }
}

fn run_status(error: &RunError) -> Status {
    match error {
        RunError::WrongCount { .. }
        | RunError::WrongDtype { .. }
        | RunError::WrongRank { .. }
        | RunError::WrongSize { .. }
        | RunError::SizeOutOfRange { .. }
        | RunError::CheckFailed { .. }
        | RunError::MissingWeight { .. }
        | RunError::WrongWeight { .. }
        | RunError::Constants(ConstantError::Unknown { .. } | ConstantError::Foreign) => Status::Invalid,
        RunError::UnknownRoutine { .. }
        | RunError::MissingHost { .. }
        | RunError::MissingDevice { .. }
        | RunError::Constants(
            ConstantError::State { .. }
            | ConstantError::Folded
            | ConstantError::Entangled
            | ConstantError::Unlike,
        ) => Status::Unsupported,
        RunError::StateLost
        | RunError::AssertionFailed { .. }
        | RunError::NotFinite { .. }
        | RunError::BadIndex { .. }
        | RunError::Host { .. } => Status::Run,
        RunError::Limit(_) | RunError::OutOfMemory(_) => Status::Limit,
        RunError::Bug { .. } | RunError::NoRoom { .. } | RunError::Memory { .. } => Status::Bug,
    }
}

impl From<ArtifactError> for Failure {
    fn from(error: ArtifactError) -> Failure {
        let status = match &error {
            ArtifactError::Io { .. } => Status::Io,
            ArtifactError::NotAnArtifact
            | ArtifactError::Version { .. }
            | ArtifactError::Damaged { .. }
            | ArtifactError::Object(_) => Status::Invalid,
            ArtifactError::Image(_) => Status::Invalid,
            ArtifactError::WrongMachine { .. }
            | ArtifactError::Gpu { .. }
            | ArtifactError::MissingFeatures { .. } => Status::Unsupported,
            ArtifactError::Run(error) => return Failure::new(run_status(error), run_message(error)),
        };
        Failure::new(status, error.to_string())
    }
}

#[cfg(feature = "compiler")]
impl From<litz::Error> for Failure {
    fn from(error: litz::Error) -> Failure {
        use litz::Error;
        let status = match error {
            Error::Run(error) => return error.into(),
            Error::Artifact(error) => return error.into(),
            Error::Io { .. } | Error::Cache(_) => Status::Io,
            Error::Import(ref error) if error.is_unsupported() => Status::Unsupported,
            Error::Import(_) => Status::Invalid,
            Error::Unsupported(_) => Status::Unsupported,
            Error::Invalid(_) => Status::Invalid,
            Error::Limit(_) => Status::Limit,
            Error::Stopped => Status::Run,
            Error::Bug { .. } => Status::Bug,
        };
        Failure::new(status, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The message of the calling thread's latest error; empty where there was none. It stays until the thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn litz_last_error() -> *const c_char {
    // The thread may be about to end, with its message gone.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn remember(message: &str) {
    // C ends texts at the first zero.
    let text = CString::new(message.replace('\0', "?")).unwrap_or_default();
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Runs a function's body: its status, with the message kept where it failed. No panic gets past it.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(Failure { status, message })) => {
            remember(&message);
            status
        }
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            remember(&format!("bug in litz: {}", text.unwrap_or("it panicked")));
            // What a panic carries may panic when it is dropped.
            std::mem::forget(panic);
            Status::Bug
        }
    }
}

/// Runs the body of a function without status: what it returns, or nothing where it panics.
pub(crate) fn quietly<T: Default>(body: impl FnOnce() -> T) -> T {
    let mut result = T::default();
    guard(|| {
        result = body();
        Ok(())
    });
    result
}

/// What a pointer points to.
///
/// # Errors
/// Where it is null, with the name of the argument.
///
/// # Safety
/// It is null, or points to something that lives as long as the reference and that nobody writes meanwhile.
pub(crate) unsafe fn of<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument(name, "it is null"))
}

/// What a pointer points to, to be written.
///
/// # Errors
/// As [`of`].
///
/// # Safety
/// It is null, or points to something that lives as long as the reference and that nobody else uses meanwhile.
pub(crate) unsafe fn of_mut<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::argument(name, "it is null"))
}

/// Writes a result to where the caller wants it, whatever is there.
///
/// # Errors
/// As [`of`].
///
/// # Safety
/// It is null, or may be written.
pub(crate) unsafe fn put<T>(to: *mut T, name: &str, value: T) -> Result<(), Failure> {
    expect_place(to, name)?;
    // SAFETY: the caller's promise.
    unsafe { ptr::write(to, value) };
    Ok(())
}

/// # Errors
/// Where a place for a result is null, with the name of the argument.
pub(crate) fn expect_place<T>(to: *mut T, name: &str) -> Result<(), Failure> {
    if to.is_null() { Err(Failure::argument(name, "it is null")) } else { Ok(()) }
}

/// A row of so many.
///
/// # Errors
/// Where the pointer is null and they are not none.
///
/// # Safety
/// It is null, or points to so many that live as long as the slice and that nobody writes meanwhile.
pub(crate) unsafe fn row<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    match (count, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Failure::argument(name, "it is null")),
        // SAFETY: the caller's promise.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// A text.
///
/// # Errors
/// Where it is null or not UTF-8.
///
/// # Safety
/// It is null, or ends with a zero and nobody writes it as long as the reference lives.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::argument(name, "it is null"));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument(name, "it is no text in UTF-8"))
}
