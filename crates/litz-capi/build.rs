//! Names the shared library in the form that programs ask the loader for.

fn main() {
    // Programs that were linked with one version of an interface run with no other; before 1.0 each minor version is one.
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblitz.so.{major}.{minor}");
    println!("cargo::rerun-if-changed=build.rs");
}
