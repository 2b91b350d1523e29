//! Runs graphs with operators of a host: natively, on the reference device, on one with memory of its own, and by the interpreter
//! of loops.

mod toy_host;

use litz::{Fallback, Model, Options, Runner, Stage, Tensor, Value, Verify, pipeline, tune};
use litz_runtime::RunError;
use litz_runtime::program::Executable;
use litz_runtime::reference::{self, ReferenceDevice};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use toy_host::compiled::{Compiled, NoWeights, compile, copies, graph, launches, numbers, options, tensor};
use toy_host::{Call, Toy};

/// What each device gives is what the interpreter gives; so is what the host was asked for. Returns both.
fn run(body: &str, inputs: &[Tensor]) -> (Vec<Vec<f64>>, Vec<Call>, Compiled) {
    let toy = Toy::new();
    let compiled = compile(body, &toy);
    let results =
        reference::loops::run_with(&compiled.loops, &HashMap::new(), inputs, &NoWeights, Some(&*toy));
    let expected = numbers(&results.unwrap_or_else(|error| panic!("{error}")).outputs);
    let calls = by_operator(toy.take());
    for executable in &compiled.executables {
        // The second call finds the memory that the first one left.
        for _ in 0..2 {
            let found = executable.run(inputs).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(numbers(&found), expected);
            assert_eq!(by_operator(toy.take()), calls);
        }
    }
    (expected, calls, compiled)
}

/// Those of each operator in their order: each operator that the tests here use has an effect of its own, or none.
fn by_operator(mut calls: Vec<Call>) -> Vec<Call> {
    calls.sort_by(|one, other| one.op.cmp(&other.op));
    calls
}

const X: [f32; 12] = [1.0, -2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0];

fn x() -> Tensor {
    tensor(&[3, 4], &X)
}

/// FO-1: one call of the host, which is counted, between two kernels.
#[test]
fn pointwise_kernels_do_not_fuse_across_a_call() {
    let body = "op mylib.foo.default(Tensor x) -> Tensor
        %x: f32[3, 4] = input
        %a: f32[3, 4] = aten.add.Scalar(%x, 1, 1)
        %f: f32[3, 4] = mylib.foo.default(%a) at \"model.py:3\"
        %y: f32[3, 4] = aten.relu.default(%f)
        return %y";
    let (outputs, calls, compiled) = run(body, &[x()]);
    assert_eq!(outputs, [X.map(|value| (2.0 * f64::from(value) + 2.0).max(0.0)).to_vec()]);
    assert_eq!((calls.len(), launches(&compiled.program)), (1, 2));
    let statistics = compiled.executables[0].statistics();
    assert_eq!((&*statistics.host_calls[0].op, statistics.host_calls[0].calls), ("mylib.foo.default", 2));
    assert!(statistics.host_calls[0].time > std::time::Duration::ZERO);
}

/// FO-2: what no host may run is refused with its line.
#[test]
fn without_a_host_or_against_it_nothing_runs() {
    let body = "op mylib.foo.default(Tensor x) -> Tensor
        %x: f32[4] = input
        %f: f32[4] = mylib.foo.default(%x) at \"model.py:3\"
        return %f";
    let refused = |options: &Options| {
        let backend = litz::backend(options).expect("there is a backend");
        let mut silent = |_: &str| {};
        let mut runner = Runner::new(Verify::Passes, None, &mut silent);
        pipeline::compile(graph(body), &*backend, options, Stage::Program, &mut runner)
    };
    let error =
        refused(&Options { fallback: Fallback::Error, ..options(&Toy::new()) }).err().expect("refused");
    let message = error.to_string();
    assert!(message.contains("mylib.foo.default") && message.contains("model.py:3"), "{message}");
    let realized = refused(&Options::default()).expect("a program").realized.expect("a program");
    let device = Arc::new(ReferenceDevice::new(&realized.kernels).expect("kernels"));
    let error = Executable::new(&realized.program, &realized.kernels, device, &NoWeights).err();
    assert!(matches!(error, Some(RunError::MissingHost { ops }) if ops == ["mylib.foo.default"]));
}

/// The host's view of a transposed operand of an operator with that layout, and how many copies were made.
fn transposed(layout: &str) -> (Vec<usize>, usize) {
    let body = format!(
        "op mylib.exact.default(Tensor x) -> Tensor {layout}
        %x: f32[3, 4] = input
        %t: f32[4, 3]{{1, 4}} = aten.permute.default(%x, [1, 0])
        %y: f32[4, 3]{{1, 4}} = mylib.exact.default(%t)
        return %y"
    );
    let (outputs, calls, compiled) = run(&body, &[x()]);
    let expected: Vec<f64> = (0..12).map(|at| 2.0 * f64::from(X[at % 3 * 4 + at / 3])).collect();
    assert_eq!(outputs, [expected]);
    (calls[0].strides[0].clone(), copies(&compiled.loops))
}

/// FO-3: the host sees the strides of the traced operand, without a copy.
#[test]
fn exact_operands_keep_their_strides() {
    assert_eq!(transposed("exact"), (vec![1, 4], 0));
}

/// FO-4: the host sees rows, which takes one copy.
#[test]
fn contiguous_operands_are_copied() {
    assert_eq!(transposed("contiguous"), (vec![3, 1], 1));
}

/// FO-5: the host sees the order of dimensions of the traced operand.
#[test]
fn operands_have_the_order_that_they_were_traced_with() {
    // Inference gives a contiguous result, where the file says that it was channels last.
    let body = "op mylib.exact.default(Tensor x) -> Tensor order
        %x: f32[1, 2, 2, 3] = input
        %r: f32[1, 2, 2, 3]{12, 1, 6, 2} = aten.relu.default(%x)
        %y: f32[1, 2, 2, 3]{12, 1, 6, 2} = mylib.exact.default(%r)
        return %y";
    let values = &X.map(f32::abs);
    let (outputs, calls, _) = run(body, &[tensor(&[1, 2, 2, 3], values)]);
    assert_eq!(outputs, [values.map(|value| f64::from(2.0 * value)).to_vec()]);
    assert_eq!(calls[0].strides[0], [12, 1, 6, 2]);
    // Gaps are right, as long as the order is.
    let body = "op mylib.exact.default(Tensor x) -> Tensor order
        %x: f32[3, 4] = input
        %r: f32[3, 2]{4, 1} = aten.slice.Tensor(%x, 1, 0, 2, 1)
        %y: f32[3, 2] = mylib.exact.default(%r)
        return %y";
    let (_, calls, compiled) = run(body, &[x()]);
    assert_eq!((&*calls[0].strides[0], copies(&compiled.loops)), (&[4, 1][..], 0));
}

#[test]
fn any_strides_are_taken_where_they_are_asked_for() {
    assert_eq!(transposed("any"), (vec![1, 4], 0));
}

/// FO-6: no pass removes or merges calls with an effect.
#[test]
fn calls_with_an_effect_stay() {
    let body = "op mylib.log.default(Tensor x) -> () effect log
        op mylib.foo.default(Tensor x) -> Tensor
        %x: f32[4] = input
        mylib.log.default(%x)
        mylib.log.default(%x)
        %unused: f32[4] = mylib.foo.default(%x)
        %a: f32[4] = mylib.foo.default(%x)
        %b: f32[4] = mylib.foo.default(%x)
        %y: f32[4] = aten.add.Tensor(%a, %b, 1)
        return %y";
    let (outputs, calls, _) = run(body, &[tensor(&[4], &X[..4])]);
    assert_eq!(outputs, [[4.0, -8.0, 12.0, 16.0]]);
    let ops: Vec<&str> = calls.iter().map(|call| &*call.op).collect();
    let count = |op: &str| ops.iter().filter(|other| **other == op).count();
    // Nothing is known of a call without an effect but its result.
    assert_eq!((count("mylib.log.default"), count("mylib.foo.default")), (2, 1));
}

/// Nothing can come of a call but what the host does.
const LOG: &str = "op mylib.log.default(Tensor x) -> ()
    %x: f32[4] = input
    mylib.log.default(%x)
    return";

#[test]
fn an_operator_that_gives_and_writes_nothing_is_its_own_effect() {
    assert_eq!(run(LOG, &[tensor(&[4], &X[..4])]).1.len(), 1);
}

#[test]
fn calls_with_effects_are_not_made_to_be_timed() {
    let toy = Toy::new();
    let model = Model::from_graph(graph(LOG), HashMap::new()).expect("it is valid");
    let (stop, time) = (AtomicBool::new(false), Duration::from_secs(5));
    let tuned = tune::tune_once(&model, &options(&toy), &tune::Budget { time, stop: &stop }, &mut |_| {});
    let message = tuned.expect_err("it would log what nobody called for").to_string();
    assert!(message.contains("`mylib.log.default`"), "{message}");
    assert!(toy.take().is_empty());
}

/// FO-7: calls of one effect keep their order, those of another may come anywhere.
#[test]
fn calls_of_one_effect_keep_their_order() {
    let body = "op mylib.a.default(Tensor x) -> () effect a
        op mylib.b.default(Tensor x) -> () effect b
        %x: f32[4] = input
        %one: f32[4] = aten.add.Scalar(%x, 1, 1)
        %big: f32[] = aten.sum.default(%x)
        mylib.a.default(%big)
        mylib.b.default(%one)
        mylib.a.default(%x)
        return";
    let (_, calls, _) = run(body, &[tensor(&[4], &X[..4])]);
    let of_a: Vec<f64> =
        calls.iter().filter(|call| call.op == "mylib.a.default").map(|call| call.elements[0][0]).collect();
    assert_eq!((of_a, calls.len()), (vec![6.0, 1.0], 3));
}

const TWO: &str = "op mylib.two.default(Tensor(a!) x, Tensor(b!) y) -> ()
    %x: f32[3, 4] = input";

/// FO-8, IP-35: what is read later is copied, and nothing else.
#[test]
fn what_is_written_is_copied_where_it_is_read_later() {
    // x's old value is dead, that of y is read later: one copy, of y.
    let body = format!(
        "{TWO}
        op mylib.foo.default(Tensor x) -> Tensor
        op mylib.half.default(Tensor x) -> Tensor
        %s: f32[3, 4] = mylib.foo.default(%x)
        %t: f32[3, 4] = mylib.half.default(%x)
        %s2: f32[3, 4], %t2: f32[3, 4] = functional mylib.two.default(%s, %t)
        %y: f32[3, 4] = aten.sub.Tensor(%t2, %t, 1)
        return %s2, %y"
    );
    let (outputs, _, compiled) = run(&body, &[x()]);
    assert_eq!(outputs[0], X.map(|value| 2.0 * f64::from(value) + 1.0));
    assert_eq!(outputs[1], X.map(|value| 0.5 * f64::from(value)));
    assert_eq!(copies(&compiled.loops), 1);
}

/// FO-8, IP-36: one tensor for two arguments takes one copy.
#[test]
fn one_tensor_is_never_given_twice() {
    let body = format!(
        "{TWO}
        %s: f32[3, 4] = aten.mul.Scalar(%x, 2)
        %s2: f32[3, 4], %t2: f32[3, 4] = functional mylib.two.default(%s, %s)
        return %s2, %t2"
    );
    let (outputs, _, compiled) = run(&body, &[x()]);
    assert_eq!(outputs[0], X.map(|value| 2.0 * f64::from(value) + 1.0));
    assert_eq!(outputs[1], X.map(|value| 4.0 * f64::from(value)));
    assert_eq!(copies(&compiled.loops), 1);
}

/// FO-8, IP-37: lists, and arguments that are not given.
#[test]
fn lists_and_what_is_not_given() {
    let body = |call: &str| {
        format!(
            "op mylib.both.default(Tensor(a!)? x, Tensor(b!)[] ys) -> Tensor
            %x: f32[3, 4] = input
            %p: f32[3, 4] = aten.mul.Scalar(%x, 2)
            %q: f32[3, 4] = aten.add.Scalar(%x, 1, 1)
            {call}"
        )
    };
    let call = "%r: f32[3, 4], %p2: f32[3, 4], %q2: f32[3, 4] = functional mylib.both.default(none, [%p, %q])
        return %r, %p2, %q2";
    let (outputs, calls, compiled) = run(&body(call), &[x()]);
    assert_eq!(outputs[0], X.map(|value| 6.0 * f64::from(value)));
    assert_eq!((&outputs[1], &calls[0].others[..]), (&outputs[0], &["none".to_owned()][..]));
    assert_eq!(outputs[2], X.map(|value| 3.0 * f64::from(value) + 3.0));
    assert_eq!(copies(&compiled.loops), 0);
    let call = "%r: f32[3, 4], %p2: f32[3, 4], %q2: f32[3, 4], %p3: f32[3, 4] =
            functional mylib.both.default(%p, [%q, %p])
        return %p2, %q2, %p3";
    let (outputs, _, compiled) = run(&body(call), &[x()]);
    assert_eq!(outputs[0], X.map(|value| 2.0 * f64::from(value) + 1.0));
    assert_eq!(outputs[2], X.map(|value| 6.0 * f64::from(value)));
    assert_eq!(copies(&compiled.loops), 1);
}

/// What `two` leaves of twice `X`, of which the first `count` elements are its x and the others its y.
fn two_of_twice(count: usize) -> Vec<f64> {
    let changed = |(at, &value): (usize, &f32)| {
        let doubled = 2.0 * f64::from(value);
        if at < count { doubled + 1.0 } else { 2.0 * doubled }
    };
    X.iter().enumerate().map(changed).collect()
}

/// IP-38: two views of a base are written where they are.
#[test]
fn two_parts_of_one_tensor_are_written_in_place() {
    for views in [
        "%a: f32[1, 4] = aten.slice.Tensor(%s, 0, 0, 1, 1)
        %b: f32[2, 4] = aten.slice.Tensor(%s, 0, 1, 3, 1)",
        "%a: f32[4] = aten.select.int(%s, 0, 0)
        %b: f32[2, 4] = aten.slice.Tensor(%s, 0, 1, 3, 1)",
        "%a: f32[2, 2]{2, 1} = aten.as_strided.default(%s, [2, 2], [2, 1], 0)
        %b: f32[8]{1} = aten.as_strided.default(%s, [8], [1], 4)",
    ] {
        let calls = format!(
            "{TWO}
            %s: f32[3, 4] = aten.mul.Scalar(%x, 2)
            {views}
            mylib.two.default(%a, %b)"
        );
        let (outputs, calls_of_host, compiled) = run(&format!("{calls}\nreturn %s"), &[x()]);
        assert_eq!(outputs[0], two_of_twice(4));
        assert_eq!(calls_of_host.len(), 1);
        assert_eq!(copies(&compiled.loops), 0, "{}", compiled.loops);
        // One that is read later is copied: as a whole, or the part that is.
        let old = "%old: f32[3, 4] = aten.mul.Scalar(%x, 2)
            %d: f32[3, 4] = aten.sub.Tensor(%s, %old, 1)
            return %d, %s";
        let (outputs, _, _) = run(&format!("{calls}\n{old}"), &[x()]);
        assert_eq!(outputs[1], two_of_twice(4));
    }
}

/// Parts whose memory is interleaved are apart, and both are written where they are: the host is told that they share memory.
#[test]
fn parts_that_lie_between_each_other_are_written_in_place() {
    let body = format!(
        "{TWO}
        %s: f32[3, 4] = aten.mul.Scalar(%x, 2)
        %a: f32[3, 2]{{4, 1}} = aten.slice.Tensor(%s, 1, 0, 2, 1)
        %b: f32[3, 2]{{4, 1}} = aten.slice.Tensor(%s, 1, 2, 4, 1)
        mylib.two.default(%a, %b)
        return %s"
    );
    let (outputs, _, compiled) = run(&body, &[x()]);
    let expected = |(at, &value): (usize, &f32)| {
        let doubled = 2.0 * f64::from(value);
        if at % 4 < 2 { doubled + 1.0 } else { 2.0 * doubled }
    };
    assert_eq!(outputs[0], X.iter().enumerate().map(expected).collect::<Vec<_>>());
    assert_eq!(copies(&compiled.loops), 0, "{}", compiled.loops);
}

/// IP-41: what is written between two other calls of one effect is written where it is, in their order.
#[test]
fn writes_with_an_effect_keep_its_order() {
    let body = "op mylib.log.default(Tensor x) -> () effect log
        op mylib.two.default(Tensor(a!) x, Tensor(b!) y) -> () effect log
        %x: f32[3, 4] = input
        %s: f32[3, 4] = aten.mul.Scalar(%x, 2)
        %t: f32[3, 4] = aten.add.Scalar(%x, 1, 1)
        mylib.log.default(%s)
        mylib.two.default(%s, %t)
        mylib.log.default(%s)
        return %s";
    let toy = Toy::new();
    let compiled = compile(body, &toy);
    for executable in &compiled.executables {
        let found = numbers(&executable.run(&[x()]).expect("it runs"));
        let expected = X.map(|value| 2.0 * f64::from(value) + 1.0);
        assert_eq!(found[0], expected);
        let calls = toy.take();
        let ops: Vec<&str> = calls.iter().map(|call| &*call.op).collect();
        assert_eq!(ops, ["mylib.log.default", "mylib.two.default", "mylib.log.default"]);
        assert_eq!(calls[0].elements[0], X.map(|value| 2.0 * f64::from(value)));
        assert_eq!(calls[2].elements[0], expected);
    }
    assert_eq!(copies(&compiled.loops), 0);
}

/// IP-41: a functional operator with an effect is called in place as well, in the order of its effect.
#[test]
fn functional_operators_with_an_effect_keep_its_order() {
    let body = "op mylib.log.default(Tensor x) -> () effect log
        op mylib.inc.default(Tensor x) -> Tensor effect log
        op mylib.inc_.default(Tensor(a!) x) -> Tensor(a!)
        %x: f32[3, 4] = input
        %s: f32[3, 4] = aten.mul.Scalar(%x, 2)
        mylib.log.default(%s)
        %t: f32[3, 4] = mylib.inc.default(%s)
        mylib.log.default(%t)
        %unused: f32[3, 4] = mylib.inc.default(%x)
        return %t";
    let toy = Toy::new();
    let compiled = compile(body, &toy);
    for executable in &compiled.executables {
        let found = numbers(&executable.run(&[x()]).expect("it runs"));
        let (old, new) = (X.map(|value| 2.0 * f64::from(value)), X.map(|value| 2.0 * f64::from(value) + 1.0));
        assert_eq!(found[0], new);
        let calls = toy.take();
        let ops: Vec<&str> = calls.iter().map(|call| &*call.op).collect();
        let expected = ["mylib.log.default", "mylib.inc_.default", "mylib.log.default", "mylib.inc_.default"];
        assert_eq!(ops, expected);
        assert_eq!((&calls[0].elements[0][..], &calls[2].elements[0][..]), (&old[..], &new[..]));
    }
    // That of the input, whose result nobody reads.
    assert_eq!(copies(&compiled.loops), 1);
}

/// FO-15: no backend can put what follows into the kernel of somebody else: besides the host's, one launch fills the fresh memory, and
/// one computes what follows.
#[test]
fn pointwise_operators_do_not_fuse_into_kernels_of_others() {
    let kernel = "op triton.add_kernel.default(Tensor x_ptr, Tensor(a!) out_ptr, int n, int[] grid, int num_warps) -> ()
        %x: f32[3, 4] = input
        %out: f32[3, 4] = aten.empty.memory_format([3, 4], f32, strided, cpu, false, none)
        %k: f32[3, 4] = functional triton.add_kernel.default(%x, %out, 12, [1, 1, 1], 4)";
    let plus = X.map(|value| f64::from(value) + 1.0);
    let (outputs, calls, compiled) =
        run(&format!("{kernel}\n%y: f32[3, 4] = aten.relu.default(%k)\nreturn %y"), &[x()]);
    assert_eq!(outputs, [plus.map(|value| value.max(0.0))]);
    assert_eq!((calls.len(), launches(&compiled.program), copies(&compiled.loops)), (1, 1, 0));
    let two = format!(
        "{kernel}
        %y: f32[3, 4] = aten.relu.default(%k)
        %z: f32[3, 4] = aten.mul.Scalar(%k, 2)
        return %y, %z"
    );
    let (outputs, calls, compiled) = run(&two, &[x()]);
    assert_eq!(outputs, [plus.map(|value| value.max(0.0)), plus.map(|value| 2.0 * value)]);
    assert_eq!((calls.len(), launches(&compiled.program), copies(&compiled.loops)), (1, 1, 0));
}

#[test]
fn writes_of_graphs_that_are_not_functional_are_those_of_the_operator() {
    let body = format!(
        "{TWO}
        %s: f32[3, 4] = aten.mul.Scalar(%x, 2)
        %t: f32[3, 4] = aten.add.Scalar(%x, 1, 1)
        %row: f32[4] = aten.select.int(%s, 0, 1)
        %other: f32[4] = aten.select.int(%t, 0, 0)
        mylib.two.default(%row, %other)
        return %s, %t"
    );
    let (outputs, _, _) = run(&body, &[x()]);
    let row = |at: usize, from: usize| (from * 4..from * 4 + 4).contains(&at);
    let expected = |at: usize, value: f32| 2.0 * f64::from(value) + if row(at, 1) { 1.0 } else { 0.0 };
    assert_eq!(outputs[0], X.iter().enumerate().map(|(at, &value)| expected(at, value)).collect::<Vec<_>>());
    let expected = |at: usize, value: f32| (f64::from(value) + 1.0) * if row(at, 0) { 2.0 } else { 1.0 };
    assert_eq!(outputs[1], X.iter().enumerate().map(|(at, &value)| expected(at, value)).collect::<Vec<_>>());
}

#[test]
fn an_input_that_is_written_has_its_new_contents_in_an_output() {
    let toy = Toy::new();
    let body =
        format!("{TWO}\n %t: f32[3, 4] = aten.add.Scalar(%x, 1, 1)\n mylib.two.default(%x, %t)\n return %t");
    let compiled = compile(&body, &toy);
    for executable in &compiled.executables {
        let found = numbers(&executable.run(&[x()]).expect("it runs"));
        assert_eq!(found[0], X.map(|value| 2.0 * f64::from(value) + 2.0));
        assert_eq!(found[1], X.map(|value| f64::from(value) + 1.0));
    }
}

/// FO-9: lists, and results that are not given.
#[test]
fn lists_and_none_are_results() {
    let body = "op mylib.many.default(Tensor?[] xs, int n, str mode) -> (Tensor[], Tensor?)
        %x: f32[3, 4] = input
        %t: f32[4, 3]{1, 4} = aten.permute.default(%x, [1, 0])
        %a: f32[4, 3], %b: f32[3, 4], _ = mylib.many.default([%x, none, %t], 7, \"reversed\")
        return %a, %b";
    let (outputs, calls, _) = run(body, &[x()]);
    assert_eq!(outputs[1], X.map(f64::from));
    assert_eq!(outputs[0], (0..12).map(|at| f64::from(X[at % 3 * 4 + at / 3])).collect::<Vec<_>>());
    assert_eq!(calls[0].others, ["none", "7", "reversed"]);
}

/// FO-9: an integer that the host gives is a size of what follows.
#[test]
fn an_integer_is_the_value_of_a_size() {
    let toy = Toy::new();
    // As many rows as there are positive elements.
    let compiled = compile(
        "sym u0 in [0, 12]
        op mylib.count.default(Tensor x) -> int
        %x: f32[3, 4] = input
        %n: int(u0) = mylib.count.default(%x)
        %y: f32[u0] = aten.full.default([u0], 2.0, f32, strided, cpu, false)
        %z: f32[u0] = aten.add.Scalar(%y, 1, 1)
        return %z, %n",
        &toy,
    );
    for executable in &compiled.executables {
        for positive in [11usize, 0, 3] {
            let values: Vec<f32> = (0..12).map(|at| if at < positive { 1.0 } else { -1.0 }).collect();
            let found = executable.run(&[tensor(&[3, 4], &values)]).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(numbers(&found), [vec![3.0; positive]]);
            assert_eq!(found[1], Value::Scalar(litz_ir::Scalar::Int(positive as i64)));
        }
    }
}

const BRANCHES: &str = "graph @then on cpu {
          %a: f32[4] = input
          CALL
          return %b
        }
        graph @else on cpu {
          %a: f32[4] = input
          %b: f32[4] = aten.neg.default(%a)
          return %b
        }
        %p: bool[] = input
        %x: f32[4] = input
        %y: f32[4] = higher_order.cond.default(%p, @then, @else, [%x])
        return %y";

#[test]
fn branches_call_the_host() {
    let call = BRANCHES.replace("CALL", "%b: f32[4] = mylib.foo.default(%a)");
    let body = format!("op mylib.foo.default(Tensor x) -> Tensor\n{call}");
    for (holds, factor) in [(true, 2.0), (false, -1.0)] {
        let inputs = [Tensor::scalar(holds).expect("one element"), tensor(&[4], &X[..4])];
        let (outputs, calls, _) = run(&body, &inputs);
        assert_eq!(outputs, [X[..4].iter().map(|&value| factor * f64::from(value)).collect::<Vec<_>>()]);
        assert_eq!(calls.len(), usize::from(holds));
    }
}

/// FO-7: calls in branches and loops keep their order among those of the same effect around them.
#[test]
fn calls_in_branches_and_loops_keep_their_order() {
    let logs = |scale: f32| {
        format!(
            "%s: f32[4] = aten.mul.Scalar(%a, {scale}.0)
            mylib.log.default(%s)"
        )
    };
    let branch = |name: &str, scale: f32| {
        let logs = logs(scale);
        format!(
            "graph @{name} on cpu {{
              %a: f32[4] = input
              {logs}
              %b: f32[4] = aten.relu.default(%a)
              return %b
            }}"
        )
    };
    let (then, other, body) = (branch("then", 2.0), branch("else", 3.0), logs(4.0));
    let body = format!(
        "op mylib.log.default(Tensor x) -> () effect log
        {then}
        {other}
        graph @more on cpu {{
          %i: i64[] = input
          %a: f32[4] = input
          %more: bool[] = aten.lt.Scalar(%i, 2)
          return %more
        }}
        graph @body on cpu {{
          %i: i64[] = input
          %a: f32[4] = input
          {body}
          %j: i64[] = aten.add.Scalar(%i, 1, 1)
          %c: f32[4] = aten.neg.default(%a)
          return %j, %c
        }}
        %p: bool[] = input
        %n: i64[] = input
        %x: f32[4] = input
        %y: f32[4] = aten.exp.default(%x)
        mylib.log.default(%y)
        _ = higher_order.cond.default(%p, @then, @else, [%x])
        mylib.log.default(%x)
        _ = higher_order.cond.default(%p, @then, @else, [%x])
        _, %d: f32[4] = higher_order.while_loop.default(@more, @body, [%n, %x], [])
        mylib.log.default(%y)
        return %d"
    );
    for (holds, scale) in [(true, 2.0), (false, 3.0)] {
        let inputs = [
            Tensor::scalar(holds).expect("one element"),
            Tensor::scalar(0i64).expect("one element"),
            tensor(&[4], &[1.0; 4]),
        ];
        let (outputs, calls, _) = run(&body, &inputs);
        let e = f64::from(1f32.exp());
        let logged: Vec<f64> = calls.iter().map(|call| call.elements[0][0]).collect();
        let expected = [e, scale, 1.0, scale, 4.0, -4.0, e];
        assert!(logged.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-6), "{logged:?}");
        assert_eq!((logged.len(), &outputs), (expected.len(), &vec![vec![1.0; 4]]));
    }
}

/// FO-10: one node is a call of the host, its neighbours fuse among themselves.
#[test]
fn the_host_runs_what_it_is_asked_to() {
    let body = "%x: f32[3, 4] = input
        %a: f32[3, 4] = aten.add.Tensor(%x, %x, 1)
        %b: f32[3, 4] = aten.relu.default(%a)
        %c: f32[3, 4] = host aten.add.Tensor(%b, %x, 1)
        %d: f32[3, 4] = aten.add.Tensor(%c, %x, 1)
        %e: f32[3, 4] = aten.relu.default(%d)
        return %e";
    let (outputs, calls, compiled) = run(body, &[x()]);
    let expected = |value: f64| (2.0 * value).max(0.0) + 2.0 * value;
    assert_eq!(outputs, [X.map(|value| expected(f64::from(value)).max(0.0)).to_vec()]);
    assert_eq!((calls.len(), launches(&compiled.program)), (1, 2));
}

/// FO-12: complex numbers go to the host, and kernels compute with what comes back.
#[test]
fn complex_numbers_go_to_the_host_and_back() {
    let toy = Toy::new();
    let body = "%x: c64[2] = input
        %y: c64[2] = input
        %p: c64[2] = host aten.mul.Tensor(%x, %y)
        %z: c64[2] = aten.add.Tensor(%p, %x, 1)
        return %z";
    let compiled = compile(body, &toy);
    let complex = |parts: [f32; 4]| {
        let bytes: Vec<u8> = parts.into_iter().flat_map(f32::to_ne_bytes).collect();
        Tensor::from_bytes(litz_ir::Dtype::C64, &[2], &bytes).expect("two numbers")
    };
    let inputs = [complex([1.0, 2.0, 0.0, 1.0]), complex([3.0, -1.0, 0.0, 1.0])];
    for executable in &compiled.executables {
        let found = executable.run(&inputs).expect("it runs");
        assert_eq!(found, [Value::Tensor(complex([6.0, 7.0, -1.0, 1.0]))]);
    }
}

/// FO-13: errors, panics and wrong sizes name operator and line, and the executable stays usable.
#[test]
fn a_host_that_fails_ends_the_call_alone() {
    for (op, why) in [
        ("fails", "the library has no licence"),
        ("panics", "it panicked: the library is not there"),
        ("short", "expected f32[4], found f32[1]"),
        ("idle", "result 0: expected f32[4], it was not set"),
    ] {
        let toy = Toy::new();
        let body = format!(
            "op mylib.{op}.default(Tensor x) -> Tensor
            %x: f32[4] = input
            %y: f32[4] = mylib.{op}.default(%x) at \"model.py:3\"
            return %y"
        );
        let compiled = compile(&body, &toy);
        for executable in &compiled.executables {
            *toy.failures.lock().expect("nobody panics") = 1;
            let input = [tensor(&[4], &X[..4])];
            let error = executable.run(&input).expect_err("the host fails").to_string();
            assert_eq!(error, format!("operator mylib.{op}.default at model.py:3: {why}"));
            let again = executable.run(&input);
            if op == "fails" {
                assert_eq!(numbers(&again.expect("it runs")), [[1.0, -2.0, 3.0, 4.0]]);
            } else {
                assert!(matches!(again, Err(RunError::Host { .. })));
            }
        }
    }
}
