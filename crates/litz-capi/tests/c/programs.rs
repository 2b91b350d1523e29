//! PR-3: runs programs in C against the library: as they are, and with the compiler's sanitizers.

use std::ffi::OsStr;

use super::folder::Folder;

/// Of constants, while eight threads call.
const SWAPS: &str = "1000";

/// Builds and runs all programs, each with these flags.
fn all(flags: &[&str], most_growth: &str) {
    let folder = Folder::new();
    let calls = folder.build("calls", flags);
    let files = ["pair.litzc", "folded.litzc", "kinds.litzc", "counter.litzc"].map(|name| folder.path(name));
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits.pt2");
    let files: Vec<&OsStr> = files.iter().map(|path| path.as_os_str()).chain([OsStr::new(model)]).collect();
    assert_eq!(folder.execute(&calls, &files), "all is as it should be\n");
    let host = folder.build("host", flags);
    assert_eq!(folder.execute(&host, &[folder.path("host.litzc").as_os_str()]), "the host was called\n");
    let threads = folder.build("threads", flags);
    let pair = folder.path("pair.litzc");
    let said = folder.execute(&threads, &[pair.as_os_str(), OsStr::new(SWAPS), OsStr::new(most_growth)]);
    assert!(said.starts_with(&format!("{SWAPS} swaps, ")), "{said}");
}

#[test]
fn programs_in_c_open_call_and_update_models() {
    // What eight threads and their heaps take at most; a generation of constants that stayed would be 8 KB a swap.
    all(&[], "4000000");
}

/// What the program does to memory, and what the library does to memory of the heap by functions of the C library; not the
/// loads and stores of the library itself, which valgrind sees (`cargo xtask c-library --check`).
#[test]
fn programs_in_c_run_under_the_address_and_undefined_behaviour_sanitizers() {
    all(&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], "1000000000");
}
