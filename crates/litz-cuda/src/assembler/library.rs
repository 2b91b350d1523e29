//! Assembles PTX by nvJitLink, which PyTorch's wheels bring.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};

use libloading::{Library, Symbol};

use super::Assembled;

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle, c_uint, *const *const c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Handle) -> c_int;
type Add = unsafe extern "C" fn(Handle, c_int, *const c_void, usize, *const c_char) -> c_int;
type Complete = unsafe extern "C" fn(Handle) -> c_int;
type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;
type Version = unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> c_int;

/// `NVJITLINK_INPUT_PTX` of the header.
const INPUT_PTX: c_int = 2;

/// The library.
pub struct JitLink {
    library: Library,
    /// Which version it is, such as 1300 for 13.0.
    pub version: u32,
}

impl JitLink {
    /// That of this machine, if there is one.
    pub fn of_machine() -> Option<JitLink> {
        candidates().into_iter().find_map(|path| JitLink::open(&path).ok())
    }

    /// The library of that name or path.
    ///
    /// # Errors
    /// When there is none, or it lacks a function.
    pub fn open(path: &Path) -> Result<JitLink, libloading::Error> {
        // SAFETY: the library does nothing when it is loaded; the function is of that type.
        unsafe {
            let library = Library::new(path)?;
            let (mut major, mut minor) = (0, 0);
            library.get::<Version>("nvJitLinkVersion")?(&raw mut major, &raw mut minor);
            Ok(JitLink { library, version: 100 * major + minor })
        }
    }

    /// The file that it is.
    pub fn path(&self) -> Option<PathBuf> {
        let mut found = libc::Dl_info {
            dli_fname: std::ptr::null(),
            dli_fbase: std::ptr::null_mut(),
            dli_sname: std::ptr::null(),
            dli_saddr: std::ptr::null_mut(),
        };
        // SAFETY: the address is one of the library, which is loaded; the name that it leaves is a string for as long as that is so.
        unsafe {
            let function: Symbol<'_, Version> = self.library.get("nvJitLinkVersion").ok()?;
            let is_known = libc::dladdr(*function as *const c_void, &raw mut found) != 0;
            (is_known && !found.dli_fname.is_null())
                .then(|| PathBuf::from(CStr::from_ptr(found.dli_fname).to_string_lossy().into_owned()))
        }
    }

    /// Machine code for an architecture such as `sm_90a`.
    ///
    /// # Errors
    /// What the library says.
    pub fn assemble(&self, ptx: &str, arch: &str) -> Result<Assembled, String> {
        let options = [format!("-arch={arch}"), "-verbose".into()];
        let options = options.map(|option| CString::new(option).unwrap_or_default());
        let pointers = options.each_ref().map(|option| option.as_ptr());
        let text = CString::new(ptx).map_err(|_| "the text has a zero byte".to_owned())?;
        let missing = |error: libloading::Error| error.to_string();
        // SAFETY: the functions are of these types (nvJitLink.h); all that is passed lives longer than the calls.
        unsafe {
            let create: Symbol<'_, Create> = self.library.get("nvJitLinkCreate").map_err(missing)?;
            let add: Symbol<'_, Add> = self.library.get("nvJitLinkAddData").map_err(missing)?;
            let complete: Symbol<'_, Complete> = self.library.get("nvJitLinkComplete").map_err(missing)?;
            let mut handle = std::ptr::null_mut();
            let created = create(&raw mut handle, pointers.len() as c_uint, pointers.as_ptr());
            if created != 0 {
                return Err(format!("nvJitLink takes no `{arch}` (error {created})"));
            }
            let linker = Linker { library: &self.library, handle };
            let bytes = text.as_bytes_with_nul();
            let added = add(handle, INPUT_PTX, bytes.as_ptr().cast(), bytes.len(), c"kernels".as_ptr());
            let failed = if added != 0 { added } else { complete(handle) };
            if failed != 0 {
                return Err(linker.text("ErrorLog").unwrap_or_else(|| format!("error {failed}")));
            }
            let log = linker.text("InfoLog").unwrap_or_default();
            let cubin = linker.bytes("LinkedCubin").ok_or("there is no machine code")?;
            Ok(Assembled { cubin, log })
        }
    }
}

struct Linker<'a> {
    library: &'a Library,
    handle: Handle,
}

impl Linker<'_> {
    /// What a pair of functions gives: `nvJitLinkGet<name>Size`, `nvJitLinkGet<name>`.
    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let library = self.library;
        // SAFETY: the functions are of these types; there is room for as many bytes as the first one says.
        unsafe {
            let size: Symbol<'_, Size> = library.get(format!("nvJitLinkGet{name}Size")).ok()?;
            let get: Symbol<'_, Get> = library.get(format!("nvJitLinkGet{name}")).ok()?;
            let mut count = 0;
            if size(self.handle, &raw mut count) != 0 {
                return None;
            }
            let mut bytes = vec![0_u8; count];
            (get(self.handle, bytes.as_mut_ptr().cast()) == 0).then_some(bytes)
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        let bytes = self.bytes(name)?;
        Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim().to_owned())
    }
}

impl Drop for Linker<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle was created, and is not used any more.
        unsafe {
            if let Ok(destroy) = self.library.get::<Destroy>("nvJitLinkDestroy") {
                destroy(&raw mut self.handle);
            }
        }
    }
}

/// Where the library may be: loaded already, known to the system, or in an installation of CUDA.
fn candidates() -> Vec<PathBuf> {
    let names = ["libnvJitLink.so.13", "libnvJitLink.so.12"];
    let folders =
        std::env::var_os("CUDA_HOME").map(PathBuf::from).into_iter().chain(["/usr/local/cuda".into()]);
    let installed = folders.flat_map(|folder| names.map(|name| folder.join("lib64").join(name)));
    names.into_iter().map(PathBuf::from).chain(installed).collect()
}
