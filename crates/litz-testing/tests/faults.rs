//! Faults that are put into the compiler are cut down to a few nodes by `litz minify`, and named by `litz bisect`; `faults try` tries all of them.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use litz::attempt::{Check, attempt};
use litz::bisect::{Culprit, bisect};
use litz::case::{Case, beside};
use litz::minify::{Budget, minify};
use litz::{Options, Passes};
use litz_ir::loops::{InstOp, Loops, Stmt};
use litz_ir::scalar::ScalarOp;
use litz_passes::loops::{Cx, Pass};
use litz_testing::faults::{Fault, long};

#[test]
fn faults_are_cut_down_and_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faults"));
    command.args(["try", "negative_of_absolute", "indices_are_swapped", "panic_at_sign"]);
    let output = command.output().expect("the program is there");
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{errors}");
    assert!(out.contains("of 3: 3 to at most 3 nodes, 3 named by bisection, 3 in time"), "{out}");
}

/// Cuts a graph of 400 nodes down for a compiler of these options, and finds what is at fault in what is left. That is one text, with its tensors
/// beside it, which fails alike when it is read again.
fn found(name: &str, options: &Options) -> (Case, Culprit) {
    let case = long(400, 400);
    assert!(case.graph.nodes.len() >= 400);
    let mut attempts = |case: &Case, check| Ok(attempt(case, options, check, &mut |_| {}));
    let budget = Budget { time: Duration::from_secs(300), stop: &AtomicBool::new(false) };
    let found =
        minify(&case, Check::Verify, &mut attempts, &budget, &mut |_| {}).expect("it can be attempted");
    let found = found.expect("something is wrong");
    assert!(found.case.graph.nodes.len() <= 3, "{}", found.case.graph);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.litz"));
    found.case.write(&path).expect("it can be written");
    let read = Case::read(&path).expect("it was written");
    [path.clone(), beside(&path)].iter().for_each(|path| std::fs::remove_file(path).expect("it was written"));
    let outcome = attempt(&read, options, Check::Verify, &mut |_| {});
    assert!(outcome.is_like(&found.outcome), "{outcome}, expected {}", found.outcome);
    let culprit = bisect(&read, options, &outcome, &mut |_| {}).expect("it can be bisected");
    (read, culprit.expect("something is at fault"))
}

/// PV-5: of a kernel.
#[test]
fn a_wrong_kernel_of_a_long_graph_is_named_with_its_node() {
    let fault = Fault::named("kernel_of_minimum").expect("it is in the table");
    let (case, culprit) = found("wrong-kernel", &fault.options());
    assert!(case.graph.to_string().contains("aten.minimum.default"), "{}", case.graph);
    let text = culprit.to_string();
    assert!(text.starts_with("wrong from machine code on (kernel): "), "{text}");
    let kernel = culprit.kernel.as_deref().expect("the kernel is named");
    assert!(
        text.contains(&format!("\nkernel @{kernel}\n")) && text.contains("aten.minimum.default"),
        "{text}"
    );
}

/// `atan(x) => sin(x)`.
fn wrong_arctangent(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let mut changed = 0;
    for stmt in &mut loops.stmts {
        let Stmt::Nest(nest) = stmt else { continue };
        for inst in &mut nest.body {
            if let InstOp::Op(op @ ScalarOp::Atan, _) = &mut inst.op {
                *op = ScalarOp::Sin;
                changed += 1;
            }
        }
    }
    changed
}

/// PV-5: of a pass.
#[test]
fn a_pass_of_loops_of_a_long_graph_is_named_with_the_line_that_it_changes() {
    let mut passes = Passes::default();
    let mut of_loops = passes.loops.to_vec();
    of_loops.insert(1, Pass::new("wrong_arctangent", wrong_arctangent));
    passes.loops = of_loops.leak();
    let plain = Fault::named("kernel_of_minimum").expect("it is in the table").options();
    let options = Options { passes, backend: Options::default().backend, ..plain };
    let (case, culprit) = found("pass-of-loops", &options);
    assert!(case.graph.to_string().contains("aten.atan.default"), "{}", case.graph);
    assert_eq!((culprit.step.as_str(), culprit.stage), ("wrong_arctangent", "loops"));
    let changed =
        |mark: char, op: &str| culprit.changes.iter().any(|line| line.starts_with(mark) && line.contains(op));
    assert!(changed('-', "atan") && changed('+', "sin"), "{culprit}");
}
