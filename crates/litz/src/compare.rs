//! Compares results with those of the interpreter of loops: one rule for every device, schedule and target.
//!
//! Integers and truth values are equal. Floats are NaN or infinite in the same places, and else no further apart than
//! twice the doubt that the interpreter has of the element: what other orders of summation, fused multiply-add and the
//! errors of mathematical functions can make of it. Elements whose doubt is infinite are *open*: every value is right.

use litz_ir::loops::{BufKind, Loops, Output};
use litz_ir::scalar::Scalar;
use litz_runtime::program::Value;
use litz_runtime::reference::loops::Results;
use litz_runtime::{RunError, Tensor};

/// One result as it has to be.
#[derive(Clone, Debug)]
pub struct Expected {
    /// What the interpreter gives.
    pub value: Value,
    /// For each element, row-major, how far a right one may be from it.
    pub doubts: Vec<f64>,
}

/// How many elements were compared, and how many of them are open.
#[derive(Clone, Copy, Default, Debug)]
pub struct Compared {
    /// All.
    pub elements: usize,
    /// Those with which anything goes.
    pub open: usize,
}

/// What calls of a compiled program return: the outputs, then the new contents of inputs.
pub fn expected(loops: &Loops, results: Results) -> Vec<Expected> {
    let mut doubts = results.doubts.into_iter();
    let outputs = results.outputs.into_iter().zip(&loops.outputs).map(|(value, output)| {
        let doubts = match output {
            Output::View { .. } | Output::Number(_) => doubts.next().unwrap_or_default(),
            Output::Int(_) | Output::Literal(_) | Output::Text(_) | Output::Nothing => Vec::new(),
        };
        Expected { value, doubts }
    });
    let mut all: Vec<Expected> = outputs.collect();
    for ((target, _), tensor) in loops.updates.iter().zip(results.updates) {
        let doubts = doubts.next().unwrap_or_default();
        if loops.bufs[*target].kind == BufKind::Input {
            all.push(Expected { value: Value::Tensor(tensor), doubts });
        }
    }
    all
}

/// Compares the results of a call.
///
/// # Errors
/// The first difference, in words.
pub fn results(found: &[Value], expected: &[Expected]) -> Result<Compared, String> {
    if found.len() != expected.len() {
        return Err(format!("{} results, expected {}", found.len(), expected.len()));
    }
    let mut compared = Compared::default();
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        match (found, &expected.value) {
            (Value::Tensor(found), Value::Tensor(wanted)) => {
                let one =
                    tensors(found, wanted, &expected.doubts).map_err(|why| format!("out.{at}: {why}"))?;
                compared.elements += one.elements;
                compared.open += one.open;
            }
            (found, wanted) if found == wanted => {}
            (Value::Scalar(Scalar::Float(found)), Value::Scalar(Scalar::Float(wanted)))
                if expected.doubts.iter().any(|doubt| (found - wanted).abs() <= 2.0 * doubt)
                    || found.is_nan() && wanted.is_nan() => {}
            (found, wanted) => return Err(format!("out.{at}: {found:?}, expected {wanted:?}")),
        }
    }
    Ok(compared)
}

/// Compares tensors, layouts aside.
///
/// # Errors
/// The first difference, in words.
pub fn tensors(found: &Tensor, expected: &Tensor, doubts: &[f64]) -> Result<Compared, String> {
    let shape = |tensor: &Tensor| format!("{}{:?}", tensor.dtype(), tensor.sizes());
    if shape(found) != shape(expected) {
        return Err(format!("{}, expected {}", shape(found), shape(expected)));
    }
    let mut compared = Compared { elements: doubts.len(), open: 0 };
    if found == expected {
        return Ok(compared);
    }
    if !expected.dtype().is_float() {
        // Numbers beyond 2^53 are compared as they are.
        let (found, wanted) = (element_bytes(found), element_bytes(expected));
        for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            compared.open += usize::from(doubts[at] > 0.0);
            if doubts[at] == 0.0 && found != wanted {
                return Err(format!("element {at}: bytes {found:?}, expected {wanted:?}"));
            }
        }
        return Ok(compared);
    }
    let values = found.to_f64().into_iter().zip(expected.to_f64()).zip(doubts);
    for (at, ((found, wanted), &doubt)) in values.enumerate() {
        let is_open = doubt == f64::INFINITY;
        compared.open += usize::from(is_open);
        let is_same = found == wanted || found.is_nan() && wanted.is_nan();
        let is_near = (found - wanted).abs() <= 2.0 * doubt;
        if !is_open && !is_same && !is_near {
            return Err(format!("element {at}: {found:e}, expected {wanted:e} within {:e}", 2.0 * doubt));
        }
    }
    Ok(compared)
}

fn element_bytes(tensor: &Tensor) -> Vec<Vec<u8>> {
    let size = tensor.dtype().size();
    match tensor.to_contiguous() {
        Ok(tensor) => tensor.bytes().chunks(size).map(<[u8]>::to_vec).collect(),
        Err(_) => Vec::new(),
    }
}

/// Whether two calls failed alike: for the same kind of reason. Sizes are one kind: the interpreter is given sizes, not
/// tensors that have them, and cannot say of which input they are.
pub fn fail_alike(found: &RunError, expected: &RunError) -> bool {
    let is_of_sizes = |error: &RunError| {
        use RunError::{CheckFailed, SizeOutOfRange, WrongSize};
        matches!(error, WrongSize { .. } | SizeOutOfRange { .. } | CheckFailed { .. })
    };
    std::mem::discriminant(found) == std::mem::discriminant(expected)
        || is_of_sizes(found) && is_of_sizes(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(values: &[f32]) -> Tensor {
        Tensor::from_slice(&[values.len()], values).expect("lengths match")
    }

    #[test]
    fn floats_may_be_as_far_off_as_doubted() {
        let wanted = tensor(&[1.0, 2.0, f32::NAN, f32::INFINITY]);
        let check = |values: &[f32; 4], doubt: f64| tensors(&tensor(values), &wanted, &[doubt; 4]);
        assert!(check(&[1.0, 2.0, f32::NAN, f32::INFINITY], 0.0).is_ok());
        assert!(check(&[1.015, 1.985, f32::NAN, f32::INFINITY], 0.01).is_ok());
        assert!(
            check(&[1.025, 2.0, f32::NAN, f32::INFINITY], 0.01)
                .is_err_and(|why| why.starts_with("element 0"))
        );
        assert!(check(&[1.0, f32::NAN, f32::NAN, f32::INFINITY], 0.01).is_err());
        assert!(check(&[1.0, 2.0, 3.0, f32::INFINITY], 0.01).is_err());
        assert!(check(&[1.0, 2.0, f32::NAN, f32::NEG_INFINITY], 0.01).is_err());
        assert_eq!(check(&[9.0, 9.0, 9.0, 9.0], f64::INFINITY).map(|compared| compared.open), Ok(4));
    }

    #[test]
    fn integers_are_equal_to_the_last_bit() {
        let big = |low: i64| Tensor::from_slice(&[1], &[(1i64 << 60) + low]).expect("lengths match");
        assert!(tensors(&big(0), &big(0), &[0.0]).is_ok());
        assert!(tensors(&big(1), &big(0), &[0.0]).is_err());
        assert!(tensors(&big(1), &big(0), &[f64::INFINITY]).is_ok());
    }

    #[test]
    fn results_are_counted_and_of_one_kind() {
        let one = Expected { value: Value::Tensor(tensor(&[1.0])), doubts: vec![0.0] };
        let nothing = Expected { value: Value::Nothing, doubts: Vec::new() };
        let found = [Value::Tensor(tensor(&[1.0])), Value::Nothing];
        assert!(results(&found, &[one.clone(), nothing.clone()]).is_ok());
        assert!(results(&found, std::slice::from_ref(&one)).is_err());
        assert!(results(&found, &[nothing, one]).is_err());
    }
}
