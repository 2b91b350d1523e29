//! Programs whose results follow from the definition of the IR, written down by hand.

use half::{bf16, f16};
use litz_ir::text;

use super::*;
use crate::tensor::Element;

fn tensor<T: Element>(sizes: &[usize], values: &[T]) -> Tensor {
    Tensor::from_slice(sizes, values).expect("lengths match")
}

fn loops(body: &str) -> Loops {
    let text = format!("loops @t on cpu {{\n{body}\n}}");
    text::loops::parse(&text).unwrap_or_else(|diags| panic!("{}\n{text}", diags[0]))
}

fn try_run(body: &str, sizes: &[(&str, i64)], inputs: &[Tensor]) -> Result<Results, RunError> {
    let sizes = sizes.iter().map(|&(name, value)| (Sym::new(name), value)).collect();
    run(&loops(body), &sizes, inputs, &HashMap::new())
}

/// The only result.
fn result(body: &str, inputs: &[Tensor]) -> Tensor {
    let results = try_run(body, &[], inputs).unwrap_or_else(|error| panic!("{error}"));
    results.outputs[0].tensor().expect("a tensor").clone()
}

/// What a program that breaks a rule is told.
fn refusal(body: &str, inputs: &[Tensor]) -> String {
    try_run(body, &[], inputs).expect_err("it breaks a rule").to_string()
}

#[test]
fn the_first_example_of_the_definition() {
    let program = "sym s0 in [2, 1024]
        buf x: f32[s0, 3] = input
        buf w: f32[2, 3] = const \"fc1.weight\"
        buf h: f32[s0, 2]
        nest n0 [i in s0, j in 2 | k in 3] {
            %0: f32 = load x[i, k]
            %1: f32 = load w[j, k]
            %2: f32 = mul %0, %1
            %3: f32 = reduce.sum %2
            store h[i, j] = %3
        }
        return h, int(s0), 7, none";
    let weights =
        HashMap::from([("fc1.weight".to_owned(), tensor(&[2, 3], &[1f32, 0.0, 2.0, 0.0, 1.0, -1.0]))]);
    let call = |s0: i64, input: Tensor| {
        run(&loops(program), &HashMap::from([(Sym::new("s0"), s0)]), &[input], &weights)
    };
    let x = tensor(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let outputs = call(2, x.clone()).expect("it fits").outputs;
    let number = |n| Value::Scalar(litz_ir::Scalar::Int(n));
    let h = Value::Tensor(tensor(&[2, 2], &[7f32, -1.0, 16.0, -1.0]));
    assert_eq!(outputs, [h, number(2), number(7), Value::Nothing]);
    assert!(matches!(call(3, x.clone()), Err(RunError::WrongSize { dim: 0, found: 2, .. })));
    assert!(matches!(call(1, x), Err(RunError::CheckFailed { sides, .. }) if sides == [[1, 2]]));
    assert!(matches!(call(2, tensor(&[2, 3], &[1i32; 6])), Err(RunError::WrongDtype { .. })));
    assert!(matches!(run(&loops(program), &HashMap::new(), &[], &weights), Err(RunError::Bug { .. })));
}

#[test]
fn conditions_of_what_overflows_do_not_hold() {
    let program = "sym m in [0, inf]
        sym n in [0, inf]
        guard m*n <= 100 for \"model.py:3\"
        return int(m)";
    let call = |m: i64, n: i64| {
        run(&loops(program), &HashMap::from([(Sym::new("m"), m), (Sym::new("n"), n)]), &[], &HashMap::new())
    };
    assert!(call(25, 4).is_ok());
    assert!(matches!(call(26, 4), Err(RunError::CheckFailed { sides, .. }) if sides == [[104, 100]]));
    assert!(matches!(call(i64::MAX, 4), Err(RunError::CheckFailed { sides, .. }) if sides.is_empty()));
}

#[test]
fn layouts_of_inputs_are_free_and_gaps_are_nobodys() {
    let transposed = tensor(&[3, 2], &[1i64, 2, 3, 4, 5, 6]);
    let owner = std::sync::Arc::new(transposed.bytes().to_vec());
    let x = Tensor::from_shared(Dtype::I64, &[2, 3], &[1, 2], owner, 0).expect("long enough");
    let copy = |index: &str| {
        format!(
            "buf x: i64[2, 3]{{4, 1}} = input
            buf y: i64[2, 3]
            nest n [i in 2, j in 3] {{ %0: i64 = load x[{index}] store y[i, j] = %0 }}
            return y"
        )
    };
    assert_eq!(result(&copy("i, j"), std::slice::from_ref(&x)), x);
    // The fourth of each row's places belongs to no element.
    for (index, dim, outside, size) in [("i, j + 1", 1, 3, 3), ("2*i, j", 0, 2, 2), ("i, -j", 1, -1, 3)] {
        let said = refusal(&copy(index), std::slice::from_ref(&x));
        let expected = format!("index {outside} is outside of dimension {dim} of `x`, which has size {size}");
        assert!(said.contains(&expected), "{said}");
    }
    assert!(refusal(&copy("3*i + j"), &[x]).contains("1 coordinates for `x` of 2 dimensions"));
}

#[test]
fn guards_keep_loads_inside() {
    let shifted = "buf x: f32[4] = input
        buf y: f32[6]
        nest n [i in 6] { %0: f32 = load x[i - 1] if 1 <= i, i < 5 else -2.0 store y[i] = %0 }
        return y";
    let x = tensor(&[4], &[1f32, 2.0, 3.0, 4.0]);
    assert_eq!(result(shifted, &[x]), tensor(&[6], &[-2f32, 1.0, 2.0, 3.0, 4.0, -2.0]));
}

#[test]
fn what_is_bound_is_checked_and_the_last_of_equal_positions_stays() {
    let scatter = "buf at: i64[3] = input
        buf v: f32[3] = input
        buf y: f32[4]
        nest zero [i in 4] { %0: f32 = const 0.0 store y[i] = %0 }
        nest put from %y [i in 3] {
            %0: i64 = load at[i]
            bind t = %0 in 4
            %2: f32 = load v[i]
            store y[t] = %2
        }
        return y";
    let v = tensor(&[3], &[1f32, 2.0, 3.0]);
    assert_eq!(
        result(scatter, &[tensor(&[3], &[2i64, 0, 2]), v.clone()]),
        tensor(&[4], &[2f32, 0.0, 3.0, 0.0])
    );
    for outside in [4i64, -1] {
        let error = try_run(scatter, &[], &[tensor(&[3], &[0, outside, 1]), v.clone()]).expect_err("outside");
        assert!(matches!(&error, RunError::BadIndex { check, .. } if check == "index of y is out of range"));
    }
    let plain = "buf y: f32[2]
        nest n [i in 3] { %0: f32 = const 1.0 store y[mod(i, 2)] = %0 }
        return y";
    assert!(refusal(plain, &[]).contains("two points store to element 0 of `y`"));
}

#[test]
fn reductions_over_nothing_give_their_identity_and_what_follows_runs() {
    let sums = "sym n in [0, 8]
        buf x: i32[2, n] = input
        buf w: i32[2] = input
        buf y: i32[2]
        nest r [i in 2 | k in n] {
            %0: i32 = load x[i, k]
            %1: i32 = reduce.max %0
            %2: i32 = load w[i]
            %3: i32 = add %1, %2
            store y[i] = %3
        }
        return y";
    let w = tensor(&[2], &[1i32, -1]);
    let run = |n: usize, x: &[i32]| {
        let results = try_run(sums, &[("n", n as i64)], &[tensor(&[2, n], x), w.clone()]).expect("it fits");
        results.outputs[0].tensor().expect("a tensor").clone()
    };
    assert_eq!(run(2, &[5, 7, -3, -4]), tensor(&[2], &[8, -4]));
    assert_eq!(run(0, &[]), tensor(&[2], &[i32::MIN + 1, i32::MAX]));
    let arg = "buf y: i64[]
        nest r [ | k in 0] { %0: f32 = const 1.0 %1: i64 = reduce.argmax %0 store y[] = %1 }
        return y";
    assert_eq!(result(arg, &[]), tensor(&[], &[0i64]));
}

#[test]
fn arg_reductions_take_the_first_of_equals_and_nan_first() {
    let arg = "buf x: f32[2, 3] = input
        buf hi: i64[] buf lo: i64[]
        nest a [ | i in 2, j in 3] { %0: f32 = load x[i, j] %1: i64 = reduce.argmax %0 store hi[] = %1 }
        nest b [ | i in 2, j in 3] { %0: f32 = load x[i, j] %1: i64 = reduce.argmin %0 store lo[] = %1 }
        return hi, lo";
    let both = |x: &[f32; 6]| {
        let outputs = try_run(arg, &[], &[tensor(&[2, 3], x)]).expect("it fits").outputs;
        outputs.iter().map(|value| value.tensor().expect("a tensor").to_f64()[0]).collect::<Vec<_>>()
    };
    assert_eq!(both(&[1.0, 3.0, -2.0, 3.0, -2.0, 0.0]), [1.0, 2.0]);
    assert_eq!(both(&[1.0, 3.0, f32::NAN, f32::INFINITY, f32::NAN, 0.0]), [2.0, 2.0]);
    assert_eq!(both(&[f32::NEG_INFINITY; 6]), [0.0, 0.0]);
}

#[test]
fn scans_run_along_their_axis_for_each_point_of_the_others() {
    let scans = "buf x: f32[2, 3] = input
        buf along: f32[2, 3] buf across: f32[2, 3]
        nest a [i in 2, j in 3] {
            %0: f32 = load x[i, j]
            %1: f32 = scan.sum %0 over j
            store along[i, j] = %1
        }
        nest b [i in 2, j in 3] {
            %0: f32 = load x[i, j]
            %1: f32 = scan.max %0 over i
            store across[i, j] = %1
        }
        return along, across";
    let outputs =
        try_run(scans, &[], &[tensor(&[2, 3], &[1f32, 5.0, 2.0, 4.0, 0.5, 3.0])]).expect("it fits").outputs;
    assert_eq!(outputs[0], Value::Tensor(tensor(&[2, 3], &[1f32, 6.0, 8.0, 4.0, 4.5, 7.5])));
    assert_eq!(outputs[1], Value::Tensor(tensor(&[2, 3], &[1f32, 5.0, 2.0, 4.0, 5.0, 3.0])));
}

#[test]
fn regions_repeat_their_nests_and_carry_between_iterations() {
    let region = "buf x: f32[6] = input
        buf sum: f32[] buf most: f32[3]
        region total over block in 3 carry sum {
            nest zero [] { %0: f32 = const 10.0 store sum[] = %0 }
            nest add [block in 3 | i in 2] {
                %0: f32 = load x[2*block + i]
                %1: f32 = reduce.sum %0
                %2: f32 = load sum[]
                %3: f32 = add %1, %2
                store sum[] = %3
            }
            nest keep [block in 3] { %0: f32 = load sum[] store most[block] = %0 }
        }
        return sum, most";
    let x = tensor(&[6], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let outputs = try_run(region, &[], &[x]).expect("it fits").outputs;
    assert_eq!(outputs[0], Value::Tensor(tensor(&[], &[31f32])));
    assert_eq!(outputs[1], Value::Tensor(tensor(&[3], &[13f32, 20.0, 31.0])));
}

#[test]
fn combining_stores_meet_and_need_something_to_combine_with() {
    let program = |first: &str| {
        format!(
            "buf x: f32[4] = input
            buf y: f32[2]
            {first}
            nest add [i in 4] {{ %0: f32 = load x[i] store.sum y[mod(i, 2)] = %0 }}
            return y"
        )
    };
    let x = tensor(&[4], &[1f32, 2.0, 3.0, 4.0]);
    let zero = "nest zero [i in 2] { %0: f32 = const 0.0 store y[i] = %0 }";
    assert_eq!(result(&program(zero), std::slice::from_ref(&x)), tensor(&[2], &[4f32, 6.0]));
    assert!(refusal(&program(""), &[x]).contains("nothing wrote element 0 of `y`"));
}

#[test]
fn narrow_types_compute_in_f32_and_sums_of_them_stay_there() {
    let sum = "buf x: bf16[300] = input
        buf y: bf16[] buf z: bf16[2]
        nest r [ | i in 300] { %0: bf16 = load x[i] %1: bf16 = reduce.sum %0 store y[] = %1 }
        nest zero [i in 2] { %0: bf16 = const 0.0 store z[i] = %0 }
        nest each [i in 300] { %0: bf16 = load x[i] store.sum z[0] = %0 }
        nest wide [ | i in 300] { %0: f32 = load x[i] %1: f32 = reduce.sum %0 %2: bf16 = cast %1 store.sum z[1] = %2 }
        return y, z";
    let outputs = try_run(sum, &[], &[tensor(&[300], &[bf16::ONE; 300])]).expect("it fits").outputs;
    assert_eq!(outputs[0], Value::Tensor(tensor(&[], &[bf16::from_f32(300.0)])));
    // One by one in bf16, 256 + 1 is 256.
    assert_eq!(outputs[1], Value::Tensor(tensor(&[2], &[bf16::from_f32(256.0), bf16::from_f32(300.0)])));
    let product = "buf x: f16[2] = input
        buf y: f16[2]
        nest n [i in 2] { %0: f16 = load x[i] %1: f16 = mul %0, %0 store y[i] = %1 }
        return y";
    let x = tensor(&[2], &[f16::from_f32(300.0), f16::from_f32(0.1)]);
    let tenth = f16::from_f32(0.1).to_f32();
    assert_eq!(result(product, &[x]), tensor(&[2], &[f16::INFINITY, f16::from_f32(tenth * tenth)]));
}

#[test]
fn bits_and_casts_are_those_of_the_types() {
    let program = "buf x: f32[3] = input
        buf bits: i32[3] buf small: u8[3] buf tiny: f8e5m2[3] buf truth: bool[3]
        nest n [i in 3] {
            %0: f32 = load x[i]
            %1: i32 = bitcast %0
            store bits[i] = %1
            %3: u8 = cast %0
            store small[i] = %3
            %5: f8e5m2 = cast %0
            store tiny[i] = %5
            %7: bool = cast %0
            store truth[i] = %7
        }
        return bits, small, tiny, truth";
    let outputs = try_run(program, &[], &[tensor(&[3], &[1f32, -1.9, 300.7])]).expect("it fits").outputs;
    let values: Vec<Vec<f64>> = outputs.iter().map(|v| v.tensor().expect("a tensor").to_f64()).collect();
    assert_eq!(values[0], [1f32, -1.9, 300.7].map(|x| f64::from(x.to_bits() as i32)));
    assert_eq!(values[1], [1.0, 255.0, 44.0]);
    assert_eq!(values[2], [1.0, -2.0, 320.0]);
    assert_eq!(values[3], [1.0, 1.0, 1.0]);
}

#[test]
fn routines_are_the_runtimes_and_updates_are_returned() {
    let program = "buf x: f32[4] = input
        buf y: f32[4] buf at: i64[4]
        extern s = sort(x) -> (y, at) ints (1, 4, 1, 1)
        update x = y
        return at";
    let results = try_run(program, &[], &[tensor(&[4], &[1f32, 4.0, 2.0, 4.0])]).expect("it fits");
    assert_eq!(results.outputs, [Value::Tensor(tensor(&[4], &[1i64, 3, 2, 0]))]);
    assert_eq!(results.updates, [tensor(&[4], &[4f32, 4.0, 2.0, 1.0])]);
}

/// Doubts of the only result, each element's.
fn doubts(body: &str, inputs: &[Tensor]) -> Vec<f64> {
    let results = try_run(body, &[], inputs).unwrap_or_else(|error| panic!("{error}"));
    results.doubts[0].clone()
}

#[test]
fn sums_are_in_doubt_by_their_terms_and_whole_numbers_are_not() {
    let sum = "buf x: f32[3] = input
        buf y: f32[]
        nest r [ | i in 3] { %0: f32 = load x[i] %1: f32 = reduce.sum %0 store y[] = %1 }
        return y";
    assert_eq!(doubts(sum, &[tensor(&[3], &[1f32, 2.0, 3.0])]), [0.0]);
    let cancelling = doubts(sum, &[tensor(&[3], &[1e8f32, 0.5, -1e8])])[0];
    // Two roundings of at most half a unit of 1e8 in either order, which is 4.
    assert!((8.0..=80.0).contains(&cancelling), "{cancelling}");
    assert_eq!(doubts(sum, &[tensor(&[3], &[3e38f32, 3e38, -3e38])]), [f64::INFINITY]);
    assert_eq!(doubts(sum, &[tensor(&[3], &[f32::INFINITY, 1.5, 2.5])]), [0.0]);
}

#[test]
fn products_are_in_doubt_where_those_of_some_factors_leave_the_type() {
    let product = "buf x: f32[3] = input buf y: f32[]
        nest r [ | i in 3] { %0: f32 = load x[i] %1: f32 = reduce.prod %0 store y[] = %1 } return y";
    assert_eq!(doubts(product, &[tensor(&[3], &[0f32, 2.0, -3.0])]), [0.0]);
    // Infinity times zero, or zero.
    assert_eq!(doubts(product, &[tensor(&[3], &[0f32, 3e38, 3.0])]), [f64::INFINITY]);
    assert_eq!(doubts(product, &[tensor(&[3], &[1e30f32, 1e-30, 1e-30])]), [f64::INFINITY]);
}

#[test]
fn doubts_pass_through_operations() {
    // The quotient is in doubt by its rounding; what follows is as steep as it is.
    let program = |line: &str| {
        format!(
            "buf x: f32[1] = input
            buf y: f32[1]
            nest n [i in 1] {{
                %0: f32 = load x[i]
                %1: f32 = exp %0
                {line}
                store y[i] = %2
            }}
            return y"
        )
    };
    let at = |line: &str, x: f32| doubts(&program(line), &[tensor(&[1], &[x])])[0];
    let exp = at("%2: f32 = neg %1", 1.0);
    assert!((1e-7..1e-5).contains(&exp), "{exp}");
    let square = at("%2: f32 = mul %1, %1", 1.0);
    assert!(square > 2.0 * 2.7 * exp && square < 3.0 * 2.8 * exp, "{square}");
    assert!(at("%2: f32 = exp %1", 3.0) > 1e8 * at("%2: f32 = neg %1", 3.0));
    // exp(0) may be a little less than 1: its floor is 0 or 1, and its logarithm of either sign.
    assert_eq!(at("%2: f32 = floor %1", 0.0), 1.0);
    assert_eq!(at("%2: f32 = floor %1", 1.0), 0.0);
    assert!(at("%2: f32 = log %1", 0.0) < 1e-5);
    // The square root of a negative number has either sign.
    let sign = "buf x: f32[1] = input buf y: f32[1]
        nest n [i in 1] {
            %0: f32 = load x[i] %1: f32 = sqrt %0 %2: f32 = copysign %0, %1 store y[i] = %2
        }
        return y";
    assert_eq!(doubts(sign, &[tensor(&[1], &[-2f32])]), [f64::INFINITY]);
    assert_eq!(doubts(sign, &[tensor(&[1], &[4f32])]), [0.0]);
    // Half of pi, on either side of which the tangent is as large as it gets.
    assert_eq!(at("%2: f32 = tan %1", std::f32::consts::FRAC_PI_2.ln()), f64::INFINITY);
}

#[test]
fn what_is_near_is_not_told_apart() {
    let program = "buf x: f32[2] = input
        buf y: i64[] buf less: bool[1] buf chosen: f32[1]
        nest n [ | i in 2] { %0: f32 = load x[i] %1: f32 = exp %0 %2: i64 = reduce.argmax %1 store y[] = %2 }
        nest m [i in 1] {
            %0: f32 = load x[0]
            %1: f32 = exp %0
            %2: f32 = load x[1]
            %3: f32 = exp %2
            %4: bool = lt %1, %3
            store less[i] = %4
            %6: f32 = select %4, %1, %3
            store chosen[i] = %6
        }
        return y, less, chosen";
    let at = |x: [f32; 2]| {
        let results = try_run(program, &[], &[tensor(&[2], &x)]).expect("it fits");
        [results.doubts[0][0], results.doubts[1][0], results.doubts[2][0]]
    };
    let [position, less, chosen] = at([1.0, 1.0 + f32::EPSILON]);
    assert!(position == f64::INFINITY && less == f64::INFINITY && chosen < 1e-5, "{chosen}");
    let [position, less, _] = at([1.0, 1.5]);
    assert!(position == 0.0 && less == 0.0);
}

/// Which of two zeros is the smaller one depends on the order of elements, and so does the sign of what it divides.
#[test]
fn signs_of_zeros_that_tie_are_open() {
    let program = "buf x: f32[2] = input
        buf y: f32[] buf z: f32[1]
        nest n [ | i in 2] { %0: f32 = load x[i] %1: f32 = reduce.min %0 store y[] = %1 }
        nest m [i in 1] { %0: f32 = load y[] %1: f32 = const 1.0 %2: f32 = div %1, %0 store z[i] = %2 }
        return y, z";
    let at = |x: [f32; 2]| {
        let results = try_run(program, &[], &[tensor(&[2], &x)]).expect("it fits");
        [results.doubts[0][0], results.doubts[1][0]]
    };
    for x in [[0.0, -0.0], [-0.0, 0.0]] {
        let [least, quotient] = at(x);
        assert!(least > 0.0 && least < f64::from(f32::MIN_POSITIVE) && quotient == f64::INFINITY);
    }
    for x in [[0.0, 0.0], [-0.0, -0.0], [-0.0, 1.0]] {
        assert_eq!(at(x)[1], 0.0, "{x:?}");
    }
}

#[test]
fn positions_in_doubt_leave_nothing_certain() {
    let program = "buf x: f32[2] = input
        buf y: f32[1]
        nest n [i in 1] {
            %0: f32 = load x[0]
            %1: f32 = exp %0
            %2: i64 = cast %1
            bind t = %2 in 2
            %4: f32 = load x[t]
            store y[i] = %4
        }
        return y";
    assert_eq!(doubts(program, &[tensor(&[2], &[0f32, 1.0])]), [f64::INFINITY]);
    assert_eq!(doubts(program, &[tensor(&[2], &[-3f32, 1.0])]), [0.0]);
}
