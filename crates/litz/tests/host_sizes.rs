//! Calls operators of the host that decide the sizes of their results.

mod toy_host;

use litz::Tensor;
use litz_runtime::{RunError, reference};
use std::collections::HashMap;
use toy_host::Toy;
use toy_host::compiled::{NoWeights, compile, numbers, tensor};

/// What each device, and the interpreter of loops, gives for several inputs in turn.
#[track_caller]
fn check(body: &str, cases: &[(Tensor, Vec<Vec<f64>>)]) {
    let toy = Toy::new();
    let compiled = compile(body, &toy);
    for (input, expected) in cases.iter().chain(cases) {
        let inputs = [input.clone()];
        for executable in &compiled.executables {
            let found = executable.run(&inputs).unwrap_or_else(|error| panic!("{error}\n{}", compiled.loops));
            assert_eq!(numbers(&found), *expected, "{}", compiled.loops);
        }
        let loops = &compiled.loops;
        let found = reference::loops::run_with(loops, &HashMap::new(), &inputs, &NoWeights, Some(&*toy));
        let found = found.unwrap_or_else(|error| panic!("{error}\n{loops}"));
        assert_eq!(numbers(&found.outputs), *expected, "{loops}");
    }
}

fn vector(values: &[f32]) -> Tensor {
    tensor(&[values.len()], values)
}

#[test]
fn sizes_of_results_are_values_of_symbols() {
    let body = "sym u0 in [0, 4]
        op mylib.keep.default(Tensor x) -> Tensor
        %x: f32[4] = input
        %k: f32[u0] = mylib.keep.default(%x)
        %d: f32[u0] = aten.mul.Scalar(%k, 2)
        %s: f32[] = aten.sum.default(%d, none)
        return %d, %s";
    let cases = [
        (vector(&[1.0, -2.0, 3.0, 0.0]), vec![vec![2.0, 6.0], vec![8.0]]),
        (vector(&[-1.0, -2.0, -3.0, 0.0]), vec![vec![], vec![0.0]]),
        (vector(&[1.0, 2.0, 3.0, 4.0]), vec![vec![2.0, 4.0, 6.0, 8.0], vec![20.0]]),
    ];
    check(body, &cases);
}

#[test]
fn several_results_have_a_size_and_others_are_known() {
    let body = "sym u0 in [0, 3]
        op mylib.rows.default(Tensor x) -> (Tensor, Tensor)
        %x: f32[3, 2] = input
        %r: f32[u0, 2], %n: i64[u0] = mylib.rows.default(%x)
        %a: f32[u0] = aten.select.int(%r, 1, 1)
        %b: f32[u0] = aten.add.Tensor(%a, %n, 1)
        _, %m: i64[u0] = mylib.rows.default(%x)
        return %b, %m";
    let rows = |values: [f32; 6]| tensor(&[3, 2], &values);
    let cases = [
        (rows([1.0, 5.0, -1.0, 6.0, 2.0, 7.0]), vec![vec![5.0, 9.0], vec![0.0, 2.0]]),
        (rows([-1.0, 5.0, -1.0, 6.0, -2.0, 7.0]), vec![vec![], vec![]]),
    ];
    check(body, &cases);
}

#[test]
fn sizes_in_branches_and_loops_are_of_each_call() {
    let body = "op mylib.keep.default(Tensor x) -> Tensor
        graph @cond on cpu {
          %i: i64[] = input
          %c: f32[4] = input
          %more: bool[] = aten.lt.Scalar(%i, 3)
          return %more
        }
        graph @body on cpu {
          sym u0 in [0, 4]
          %i: i64[] = input
          %c: f32[4] = input
          %j: i64[] = aten.add.Scalar(%i, 1, 1)
          %k: f32[u0] = mylib.keep.default(%c)
          %s: f32[] = aten.sum.default(%k, none)
          %d: f32[4] = aten.sub.Tensor(%c, %s, 1)
          return %j, %d
        }
        %x: f32[4] = input
        %n: i64[] = aten.full.default([], 0, i64, strided, cpu, false)
        %i: i64[], %y: f32[4] = higher_order.while_loop.default(@cond, @body, [%n, %x], [])
        return %y";
    let step = |values: Vec<f64>| {
        let sum: f64 = values.iter().filter(|&&value| value > 0.0).sum();
        values.iter().map(|value| value - sum).collect::<Vec<f64>>()
    };
    let first = vec![1.0, -2.0, 3.0, 0.5];
    let last = step(step(step(first.clone())));
    let given: Vec<f32> = first.iter().map(|&value| value as f32).collect();
    check(body, &[(vector(&given), vec![last])]);
}

#[test]
fn what_is_not_as_the_graph_says_ends_the_call_alone() {
    let toy = Toy::new();
    let body = |how: &str| {
        format!(
            "sym u0 in [0, 2]
            op mylib.wrong.default(Tensor x, str how) -> Tensor
            %x: f32[4] = input
            %k: f32[u0] = mylib.wrong.default(%x, \"{how}\") at \"model.py:3\"
            return %k"
        )
    };
    let few = || [vector(&[1.0, -1.0, 2.0, 0.0])];
    for (how, expected) in [
        ("nothing", "result 0: expected i64[2], it was not set"),
        ("type", "expected f32, found i64"),
        ("rank", "expected 1 dimensions, found 2"),
    ] {
        for executable in compile(&body(how), &toy).executables {
            let error = executable.run(&few()).expect_err("the host does not give what it should");
            assert!(matches!(error, RunError::Host { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.to_string().contains("model.py:3"), "{error}");
        }
    }
    for executable in compile(&body("right"), &toy).executables {
        let many = [vector(&[1.0, 1.0, 2.0, 0.0])];
        for _ in 0..2 {
            let error = executable.run(&many).expect_err("the size is out of its range");
            assert!(matches!(error, RunError::CheckFailed { .. }), "{error}");
            assert!(
                error
                    .to_string()
                    .starts_with("expected u0 <= 2 (asked for by mylib.wrong.default at model.py:3)"),
                "{error}"
            );
            let found = executable.run(&few()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(numbers(&found), [[1.0, 2.0]]);
        }
    }
}
