//! Tells who may write to a file or a folder, and so decides what runs.

use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How others may have changed a file or a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exposed {
    /// It is somebody else's, and not the administrator's.
    Foreign {
        /// Whose.
        owner: u32,
        /// Who runs this process.
        user: u32,
    },
    /// Its group, or everybody, may write to it.
    Writable {
        /// Its permissions.
        mode: u32,
    },
}

impl Exposed {
    /// What this owner and mode let others do. The administrator may do anything.
    pub(super) fn find(owner: u32, mode: u32, user: u32) -> Option<Exposed> {
        if owner != user && owner != 0 {
            return Some(Exposed::Foreign { owner, user });
        }
        (mode & 0o022 != 0).then_some(Exposed::Writable { mode: mode & 0o7777 })
    }
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exposed::Foreign { owner, user } => write!(f, "belongs to user {owner}, and this is user {user}"),
            Exposed::Writable { mode } => write!(f, "can be written by others (mode {mode:o})"),
        }
    }
}

/// Who runs this process.
pub(super) fn user() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether the system lets this process write to a folder: the folder may be another user's, or on a disk that is read only.
pub(super) fn is_writable(dir: &Path) -> bool {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is a string of C's that lives as long as the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_but_the_user_and_the_administrator_may_own_it() {
        assert_eq!((Exposed::find(7, 0o700, 7), Exposed::find(0, 0o755, 7)), (None, None));
        let foreign = Exposed::find(8, 0o700, 7).expect("another user's");
        assert_eq!(foreign.to_string(), "belongs to user 8, and this is user 7");
    }
}
