//! Faults that are put into the compiler are cut down to a few nodes by `litz minify`, and named by `litz bisect`; `faults try` tries all of them.

use std::process::Command;

#[test]
fn faults_are_cut_down_and_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faults"));
    command.args([
        "try",
        "negative_of_absolute",
        "indices_are_swapped",
        "kernel_of_minimum",
        "panic_at_sign",
    ]);
    let output = command.output().expect("the program is there");
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{errors}");
    assert!(out.contains("of 4: 4 to at most 3 nodes, 4 named by bisection, 4 in time"), "{out}");
}
