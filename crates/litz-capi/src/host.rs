//! Lets operators be computed by two functions of C's.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use litz_runtime::host::{Host, HostArg, HostError, HostResult};

use crate::error::{Failure, Status, guard, of_mut, put, row};

/// `litz_host` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CHost {
    /// What both functions are given first.
    pub context: *mut c_void,
    /// What the host says of an operator that it has; null: it does not have it.
    pub declaration: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> *const c_char>,
    /// Runs an operator: 0, or anything else where it fails, with a message where there is one.
    pub call: Option<
        unsafe extern "C" fn(
            *mut c_void,
            *const c_char,
            *mut HostArg<'_>,
            usize,
            *mut HostResult<'_>,
            usize,
            *mut *const c_char,
        ) -> c_int,
    >,
}

/// A host of C's, both functions of which are there.
pub(crate) struct Functions(CHost);

// SAFETY: the header says that both functions may be called from any thread, and from several at a time.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

impl Functions {
    /// Takes a host over.
    ///
    /// # Errors
    /// Where one of the functions is null.
    pub(crate) fn new(host: CHost) -> Result<Functions, Failure> {
        for (is_there, name) in [(host.declaration.is_some(), "declaration"), (host.call.is_some(), "call")] {
            if !is_there {
                return Err(Failure::argument("host", format!("its function {name} is null")));
            }
        }
        Ok(Functions(host))
    }
}

impl Host for Functions {
    fn declaration(&self, op: &str) -> Option<String> {
        let (op, declaration) = (CString::new(op).ok()?, self.0.declaration?);
        // SAFETY: the host's functions take what the header says.
        let text = unsafe { declaration(self.0.context, op.as_ptr()) };
        // SAFETY: null, or text that ends with a zero and stays until the host is asked again.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    fn call(
        &self,
        op: &str,
        args: &mut [HostArg<'_>],
        results: &mut [HostResult<'_>],
    ) -> Result<(), HostError> {
        let (op, call) = (CString::new(op)?, self.0.call.ok_or("the host has no function to call")?);
        let mut message = ptr::null();
        // SAFETY: the host's functions take what the header says: arguments and results have the layouts declared there, and stay until
        // the function returns.
        let outcome = unsafe {
            let (args, results) = ((args.as_mut_ptr(), args.len()), (results.as_mut_ptr(), results.len()));
            call(self.0.context, op.as_ptr(), args.0, args.1, results.0, results.1, &raw mut message)
        };
        match outcome {
            0 => Ok(()),
            code if message.is_null() => Err(format!("it returned {code}").into()),
            // SAFETY: text that ends with a zero and stays until the host is called again.
            _ => Err(unsafe { CStr::from_ptr(message) }.to_string_lossy().into()),
        }
    }
}

/// Memory, row by row, for a result whose sizes the operator decides.
///
/// # Safety
/// `result` is null or one that the host was given and has not returned from, `sizes` null or so many numbers, `data` null or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_host_allocate(
    result: *mut HostResult<'_>,
    sizes: *const i64,
    rank: usize,
    data: *mut *mut c_void,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (result, sizes) = unsafe { (of_mut(result, "result")?, row(sizes, rank, "sizes")?) };
        let size = |&size: &i64| {
            usize::try_from(size).map_err(|_| Failure::argument("sizes", format!("a size is {size}")))
        };
        let sizes = sizes.iter().map(size).collect::<Result<Vec<_>, _>>()?;
        let wrong = |error: HostError| Failure::argument("result", error);
        let memory = result.allocate(&sizes).map_err(wrong)?;
        let bytes = memory.bytes_mut().expect("invariant: nothing shares a fresh tensor");
        // SAFETY: the caller's promise.
        unsafe { put(data, "data", bytes.as_mut_ptr().cast()) }
    })
}
