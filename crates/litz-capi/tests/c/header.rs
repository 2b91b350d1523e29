//! Checks that the header is C99 and C++17, declares what the library exports and nothing else, and lays structs out as the library does.

use std::collections::BTreeSet;
use std::fs;
use std::mem::{offset_of, size_of};
use std::process::Command;

use super::{include, library, run};
use litz_capi::{CHost, CTensor, CType, CValue, Memory};
use litz_runtime::dlpack::{Managed, ManagedVersioned};
use litz_runtime::host::{HostArg, HostResult, HostTensor};

/// Names of functions, which are followed by their parameters.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(include().join("litz.h")).expect("readable");
    let mut code = String::new();
    // Comments name functions, too.
    for (at, part) in header.split("/*").enumerate() {
        code += if at == 0 { part } else { part.split_once("*/").expect("comments end").1 };
    }
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices('(') {
        let name =
            code[..at].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        if name.starts_with("litz_") {
            names.insert(name.to_owned());
        }
    }
    names
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let exported: BTreeSet<String> =
        symbols.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect();
    assert!(exported.len() > 20, "{exported:?}");
    assert_eq!(declared(), exported);
}

#[test]
fn the_headers_are_c99_and_cpp17_in_any_order() {
    let folder = tempfile::tempdir().expect("writable");
    for (compiler, standard, extension) in [("cc", "c99", "c"), ("c++", "c++17", "cpp")] {
        for headers in [["litz.h", "litz_dlpack.h"], ["litz_dlpack.h", "litz.h"]] {
            let source = folder.path().join(format!("headers.{extension}"));
            let text = headers.map(|header| format!("#include <{header}>\n")).concat();
            fs::write(
                &source,
                format!("{text}{text}int main(void) {{ return litz_last_error() == NULL; }}\n"),
            )
            .expect("writable");
            let mut command = Command::new(compiler);
            command.args([
                &format!("-std={standard}"),
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pedantic",
                "-c",
                "-o",
            ]);
            run(command.arg("/dev/null").arg("-I").arg(include()).arg(&source));
        }
    }
}

#[test]
fn structs_have_the_librarys_layouts() {
    let sizes = [
        ("litz_tensor", size_of::<CTensor>()),
        ("litz_value", size_of::<CValue>()),
        ("litz_type", size_of::<CType>()),
        ("litz_memory", size_of::<Memory>()),
        ("litz_host", size_of::<CHost>()),
        ("litz_host_arg", size_of::<HostArg<'_>>()),
        ("litz_host_tensor", size_of::<HostTensor<'_>>()),
        ("litz_host_result", size_of::<HostResult<'_>>()),
        ("DLManagedTensor", size_of::<Managed>()),
        ("DLManagedTensorVersioned", size_of::<ManagedVersioned>()),
    ];
    let offsets = [
        ("litz_tensor", "dtype", offset_of!(CTensor, dtype)),
        ("litz_tensor", "rank", offset_of!(CTensor, rank)),
        ("litz_tensor", "sizes", offset_of!(CTensor, sizes)),
        ("litz_tensor", "strides", offset_of!(CTensor, strides)),
        ("litz_value", "of", offset_of!(CValue, of)),
        ("litz_type", "kind", offset_of!(CType, kind)),
        ("litz_type", "dtype", offset_of!(CType, dtype)),
        ("litz_type", "rank", offset_of!(CType, rank)),
        ("litz_type", "sizes", offset_of!(CType, sizes)),
        ("litz_type", "size_texts", offset_of!(CType, size_texts)),
        ("litz_type", "is_state", offset_of!(CType, is_state)),
        ("litz_memory", "bytes", offset_of!(Memory, bytes)),
        ("litz_host", "declaration", offset_of!(CHost, declaration)),
        ("litz_host", "call", offset_of!(CHost, call)),
        ("DLManagedTensor", "deleter", offset_of!(Managed, deleter)),
        ("DLManagedTensorVersioned", "dl_tensor", offset_of!(ManagedVersioned, tensor)),
    ];
    let sizes = sizes.map(|(name, size)| format!("_Static_assert(sizeof({name}) == {size}, \"{name}\");\n"));
    let offsets = offsets.map(|(name, field, offset)| {
        format!("_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");\n")
    });
    let text = format!("#include <litz.h>\n#include <litz_dlpack.h>\n{}{}", sizes.concat(), offsets.concat());
    let folder = tempfile::tempdir().expect("writable");
    let source = folder.path().join("layouts.c");
    fs::write(&source, text).expect("writable");
    run(Command::new("cc").args(["-std=c11", "-c", "-o", "/dev/null", "-I"]).arg(include()).arg(&source));
}
