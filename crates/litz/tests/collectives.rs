//! Runs graphs with collective operators in worlds of one and of two, which exchange through a host.

mod toy_host;

use litz::Tensor;
use litz_ir::program::Program;
use litz_runtime::reference;
use std::collections::HashMap;
use std::sync::Arc;
use toy_host::collectives::{Rank, World};
use toy_host::compiled::{NoWeights, compile, copies, numbers, tensor};

const DECLARED: &str = "op _c10d_functional.all_reduce.default(Tensor input, Any reduce_op, Any group_name) -> Tensor
    op _c10d_functional.all_reduce_.default(Tensor(a!) input, Any reduce_op, Any group_name) -> Tensor(a!)
    op _c10d_functional.all_reduce_coalesced.default(Tensor[] inputs, Any reduce_op, Any group_name) -> Tensor[]
    op _c10d_functional.all_reduce_coalesced_.default(Tensor(a!)[] inputs, Any reduce_op, Any group_name) -> Tensor(a!)[]
    op _c10d_functional.all_gather_into_tensor.default(Tensor input, int group_size, Any group_name) -> Tensor
    op _c10d_functional.wait_tensor.default(Tensor tensor) -> Tensor
";

/// Inputs of a rank: 1, 2, .. times the number of the rank from 1 on.
fn input(rank: usize) -> Tensor {
    let values: Vec<f32> = (1..=6u8).map(|value| f32::from(value) * (rank + 1) as f32).collect();
    tensor(&[2, 3], &values)
}

/// What each rank gives in worlds of one and of two, on each device, and which operators are asked for by how many copies.
/// `expected` gets the first input of all ranks and a rank.
#[track_caller]
fn check(body: &str, asked: &[&str], copied: usize, expected: impl Fn(&[Vec<f64>], usize) -> Vec<Vec<f64>>) {
    let body = format!("{DECLARED}{body}");
    for size in [1, 2] {
        let ranks = World::of(size, true);
        let inputs: Vec<Tensor> = (0..size).map(input).collect();
        let given: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
        let compiled: Vec<_> = ranks.iter().map(|rank| compile(&body, rank)).collect();
        assert_eq!(copies(&compiled[0].loops), copied, "{}", compiled[0].loops);
        for device in 0..compiled[0].executables.len() {
            let run = |at: usize| compiled[at].executables[device].run(std::slice::from_ref(&inputs[at]));
            // The second call finds the memory that the first one left.
            for _ in 0..2 {
                let run = &run;
                let results: Vec<_> = std::thread::scope(|scope| {
                    let threads: Vec<_> = (0..size).map(|at| scope.spawn(move || run(at))).collect();
                    threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
                });
                for (at, result) in results.into_iter().enumerate() {
                    let found = numbers(&result.unwrap_or_else(|error| panic!("{error}")));
                    assert_eq!(found, expected(&given, at), "rank {at} of {size}, device {device}");
                    assert_eq!(ranks[at].take(), asked);
                    assert_eq!(inputs[at].to_f64(), given[at], "an input is the caller's");
                }
            }
        }
    }
    let alone = World::of(1, true);
    let loops = &compile(&body, &alone[0]).loops;
    let inputs = [input(0)];
    let found = reference::loops::run_with(loops, &HashMap::new(), &inputs, &NoWeights, Some(&*alone[0]));
    let found = numbers(&found.unwrap_or_else(|error| panic!("{error}")).outputs);
    assert_eq!(found, expected(&[inputs[0].to_f64()], 0));
}

/// The sum over ranks of a function of their inputs.
fn sum(given: &[Vec<f64>], of: impl Fn(f64) -> f64) -> Vec<f64> {
    (0..given[0].len()).map(|at| given.iter().map(|input| of(input[at])).sum()).collect()
}

/// IP-40: what is computed and read nowhere else is reduced where it is.
#[test]
fn an_intermediate_is_reduced_in_place() {
    let body = "%x: f32[2, 3] = input
        %a: f32[2, 3] = aten.mul.Scalar(%x, 2)
        %r: f32[2, 3] = _c10d_functional.all_reduce.default(%a, \"sum\", \"0\")
        %w: f32[2, 3] = _c10d_functional.wait_tensor.default(%r)
        %y: f32[2, 3] = aten.add.Scalar(%w, 1, 1)
        return %y";
    let plus = |value: &f64| value + 1.0;
    check(body, &["all_reduce_.default", "wait_tensor.default"], 0, |given, _| {
        vec![sum(given, |value| 2.0 * value).iter().map(plus).collect()]
    });
}

/// IP-40: an input is the caller's, and what is read later is kept.
#[test]
fn an_input_is_copied_and_so_is_what_is_read_later() {
    let body = "%x: f32[2, 3] = input
        %r: f32[2, 3] = _c10d_functional.all_reduce.default(%x, \"max\", \"0\")
        %w: f32[2, 3] = _c10d_functional.wait_tensor.default(%r)
        return %w";
    let asked = ["all_reduce_.default", "wait_tensor.default"];
    let greatest = |given: &[Vec<f64>]| given.last().expect("a rank").clone();
    check(body, &asked, 1, |given, _| vec![greatest(given)]);
    let body = "%x: f32[2, 3] = input
        %a: f32[2, 3] = aten.mul.Scalar(%x, 2)
        %r: f32[2, 3] = _c10d_functional.all_reduce.default(%a, \"sum\", \"0\")
        %w: f32[2, 3] = _c10d_functional.wait_tensor.default(%r)
        %y: f32[2, 3] = aten.sub.Tensor(%w, %a, 1)
        return %y, %a";
    check(body, &asked, 1, |given, rank| {
        let own: Vec<f64> = given[rank].iter().map(|value| 2.0 * value).collect();
        let all = sum(given, |value| 2.0 * value);
        vec![all.iter().zip(&own).map(|(all, own)| all - own).collect(), own]
    });
}

const COALESCED: &str = "%x: f32[2, 3] = input
    %a: f32[2, 3] = aten.mul.Scalar(%x, 2)
    %b: f32[2] = aten.sum.dim_IntList(%x, [1], false, none)
    %r: f32[2, 3], %s: f32[2] = _c10d_functional.all_reduce_coalesced.default([%a, %b], \"sum\", \"0\")
    return %r, %s";

/// IP-40: tensors of a list are reduced where they are.
#[test]
fn a_list_is_reduced_in_place() {
    check(COALESCED, &["all_reduce_coalesced_.default"], 0, |given, _| {
        let rows = sum(given, |value| value);
        let rows = rows.chunks(3).map(|row| row.iter().sum()).collect();
        vec![sum(given, |value| 2.0 * value), rows]
    });
}

/// IP-40: one memory is never given twice; the host refuses that.
#[test]
fn one_tensor_twice_in_a_list_is_copied() {
    let body = COALESCED.replace("[%a, %b]", "[%a, %a]").replace("%s: f32[2]", "%s: f32[2, 3]");
    check(&body, &["all_reduce_coalesced_.default"], 1, |given, _| {
        vec![sum(given, |value| 2.0 * value), sum(given, |value| 2.0 * value)]
    });
}

#[test]
fn what_has_no_twin_is_called_as_it_is() {
    let body = "%x: f32[2, 3] = input
        %a: f32[2, 3] = aten.mul.Scalar(%x, 2)
        %g: f32[SIZE, 3] = _c10d_functional.all_gather_into_tensor.default(%a, RANKS, \"0\")
        return %g";
    for size in [1usize, 2] {
        let body = body.replace("SIZE", &(2 * size).to_string());
        let body = format!("{DECLARED}{}", body.replace("RANKS", &size.to_string()));
        let ranks = World::of(size, true);
        let compiled: Vec<_> = ranks.iter().map(|rank| compile(&body, rank)).collect();
        let expected: Vec<f64> =
            (0..size).flat_map(|rank| input(rank).to_f64()).map(|value| 2.0 * value).collect();
        std::thread::scope(|scope| {
            for (rank, compiled) in compiled.iter().enumerate() {
                let expected = &expected;
                scope.spawn(move || {
                    for executable in &compiled.executables {
                        let found = executable.run(&[input(rank)]).unwrap_or_else(|error| panic!("{error}"));
                        assert_eq!(&numbers(&found)[0], expected);
                    }
                });
            }
        });
    }
}

#[test]
fn a_host_without_twins_is_asked_for_the_functional_operator() {
    let declared: String =
        DECLARED.lines().filter(|line| !line.contains("(a!)")).collect::<Vec<_>>().join("\n");
    let ranks = World::of(1, false);
    let compiled = compile(&format!("{declared}\n{COALESCED}"), &ranks[0]);
    for executable in &compiled.executables {
        let found = numbers(&executable.run(&[input(0)]).unwrap_or_else(|error| panic!("{error}")));
        assert_eq!(found, [vec![2.0, 4.0, 6.0, 8.0, 10.0, 12.0], vec![6.0, 15.0]]);
        assert_eq!(ranks[0].take(), ["all_reduce_coalesced.default"]);
    }
}

/// Results of another type than the argument have memory of their own.
#[test]
fn a_twin_that_could_not_hold_the_result_is_not_called() {
    let body = "op _c10d_functional.all_reduce.default(Tensor input, Any reduce_op, Any group_name) -> Tensor
        op _c10d_functional.all_reduce_.default(Tensor(a!) input, Any reduce_op, Any group_name) -> Tensor(a!)
        %x: i32[2, 3] = input
        %a: i32[2, 3] = aten.mul.Scalar(%x, 2)
        %r: f32[2, 3] = _c10d_functional.all_reduce.default(%a, \"sum\", \"0\")
        return %r";
    let rank: Arc<Rank> = World::of(1, true).remove(0);
    let compiled = compile(body, &rank);
    let input = Tensor::from_slice(&[2, 3], &[1i32, 2, 3, 4, 5, 6]).expect("6 elements");
    for executable in &compiled.executables {
        let found = executable.run(std::slice::from_ref(&input)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(numbers(&found), [[2.0, 4.0, 6.0, 8.0, 10.0, 12.0]]);
        assert_eq!(rank.take(), ["all_reduce.default"]);
    }
}

/// Graphs that are not functional call the twin themselves, and go on with its result or with its argument.
#[test]
fn results_of_writes_are_the_memory_that_was_written() {
    let body = "%x: f32[2, 3] = input
        %a: f32[2, 3] = aten.mul.Scalar(%x, 2)
        %row: f32[3] = aten.select.int(%a, 0, 1)
        %r: f32[3] = _c10d_functional.all_reduce_.default(%row, \"sum\", \"0\")
        %s: f32[3] = aten.add_.Scalar(%r, 1, 1)
        return %s, %a";
    check(body, &["all_reduce_.default"], 1, |given, rank| {
        let mut all: Vec<f64> = given[rank].iter().map(|value| 2.0 * value).collect();
        for (at, value) in sum(given, |value| 2.0 * value).into_iter().enumerate().skip(3) {
            all[at] = value + 1.0;
        }
        vec![all[3..].to_vec(), all]
    });
}

/// Ranks whose batches differ call collectives in one order: that of the graph, though memory would be saved by another one for some sizes.
#[test]
fn sizes_do_not_change_the_order_of_collectives() {
    let reductions = |program: &Program| -> Vec<String> {
        let text = program.to_string();
        let calls = text.lines().filter(|line| line.contains("all_reduce"));
        calls.map(|line| line.split('"').nth(1).expect("how to reduce").to_owned()).collect()
    };
    for hint in [16, 4096, 1_000_000, 2_000_000, 16_000_000] {
        for (first, second) in [("x", "y"), ("y", "x")] {
            let input = |name: &str| match name {
                "x" => "%x: f32[1048576] = input",
                _ => "%y: f32[s0] = input",
            };
            let body = format!(
                "sym s0 in [2, 16777216] hint {hint}
                {DECLARED}
                {}
                {}
                %n: f32[1048576] = aten.neg.default(%x)
                %r1: f32[1048576] = _c10d_functional.all_reduce.default(%n, \"sum\", \"0\")
                %m: f32[s0] = aten.exp.default(%y)
                %r2: f32[s0] = _c10d_functional.all_reduce.default(%m, \"max\", \"0\")
                %s: f32[] = aten.sum.default(%r2, none)
                %z: f32[1048576] = aten.mul.Tensor(%r1, %s)
                return %z",
                input(first),
                input(second)
            );
            let compiled = compile(&body, &World::of(1, true)[0]);
            assert_eq!(reductions(&compiled.program), ["sum", "max"], "{hint}");
        }
    }
}
