//! Identifies an open file: tells it from every other file, and from itself after a change.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

/// A file that changed less long ago may change again without another time: file systems count in steps of up to 2 s.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Where a file lies, how long it is, and when it was written and last changed in any way. The system sets the last of
/// these times, and no program can set it back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    len: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileIdentity {
    /// `None` for a file that changed just before: a change just after would not be told from that.
    pub fn of(file: &File) -> Option<FileIdentity> {
        let metadata = file.metadata().ok()?;
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let since = Duration::new(u64::try_from(changed.0).ok()?, u32::try_from(changed.1).ok()?);
        let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + since).ok()?;
        (age > SETTLED_AFTER).then(|| FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// What the identity of a file is once it has settled.
    fn settled(path: &std::path::Path) -> FileIdentity {
        let file = File::open(path).expect("there");
        loop {
            if let Some(identity) = FileIdentity::of(&file) {
                return identity;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn a_file_that_was_replaced_or_changed_is_another() {
        let folder = std::env::temp_dir().join(format!("litz-identity-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("writable");
        let (path, other) = (folder.join("a"), folder.join("b"));
        fs::write(&path, b"one").expect("writable");
        assert_eq!(FileIdentity::of(&File::open(&path).expect("there")), None);
        let first = settled(&path);
        assert_eq!(settled(&path), first);

        // Changed in place, with the time of modification set back.
        let modified = fs::metadata(&path).and_then(|m| m.modified()).expect("it has one");
        fs::write(&path, b"two").expect("writable");
        File::options().write(true).open(&path).and_then(|f| f.set_modified(modified)).expect("settable");
        let changed = settled(&path);
        assert_eq!((changed.len, changed.modified), (first.len, first.modified));
        assert_ne!(changed, first);

        // Replaced by a file with the same times.
        fs::write(&other, b"six").expect("writable");
        File::options().write(true).open(&other).and_then(|f| f.set_modified(modified)).expect("settable");
        fs::rename(&other, &path).expect("same folder");
        assert_ne!(settled(&path), changed);
        fs::remove_dir_all(&folder).expect("there");
    }
}
