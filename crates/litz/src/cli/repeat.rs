//! Repeats calls of a model and compares the bits of their results.

use super::failure::Failure;
use super::load;
use litz::{Compiled, Model, Options, Tensor, Value};

/// Makes `calls` calls with the same inputs and says how a result differs in bits from what the promise of equal bits
/// allows, if one does.
///
/// Results of a model without state are equal to those of the first call. Those of one that writes to its inputs or
/// constants are equal, call by call, to those of the same compilation loaded once more.
///
/// # Errors
/// When a call fails.
pub fn differing(
    model: &Model,
    compiled: &Compiled,
    options: &Options,
    inputs: &[Tensor],
    calls: usize,
) -> Result<Option<String>, Failure> {
    let has_state = !model.imported.graph.updates.is_empty();
    // What other calls did to the state of the first would tell them apart.
    let twins =
        if has_state { Some((load::compile(model, options)?, load::compile(model, options)?)) } else { None };
    let first = match &twins {
        Some(_) => Vec::new(),
        None => compiled.run(inputs)?,
    };
    for call in 1..=calls {
        let differs = match &twins {
            Some((one, other)) => differs(&one.run(inputs)?, &other.run(inputs)?)?,
            None => differs(&first, &compiled.run(inputs)?)?,
        };
        if let Some(at) = differs {
            return Ok(Some(format!("out.{at}: call {call} of {calls} gives other bits")));
        }
    }
    Ok(None)
}

/// The first value whose bits differ.
fn differs(ones: &[Value], others: &[Value]) -> Result<Option<usize>, Failure> {
    for (at, pair) in ones.iter().zip(others).enumerate() {
        if !is_equal(pair.0, pair.1)? {
            return Ok(Some(at));
        }
    }
    Ok((ones.len() != others.len()).then_some(ones.len().min(others.len())))
}

fn is_equal(one: &Value, other: &Value) -> Result<bool, Failure> {
    let (Some(one), Some(other)) = (one.tensor(), other.tensor()) else { return Ok(one == other) };
    if one.is_contiguous() && other.is_contiguous() {
        return Ok(one.sizes() == other.sizes() && one.bytes() == other.bytes());
    }
    // Bytes between elements say nothing.
    let dense = |tensor: &Tensor| tensor.to_contiguous().map_err(Failure::invalid);
    let (one, other) = (dense(one)?, dense(other)?);
    Ok(one.sizes() == other.sizes() && one.bytes() == other.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_tell_apart_what_numbers_do_not() {
        let value = |x: f32| Value::Tensor(Tensor::from_slice(&[2], &[1.0, x]).expect("lengths match"));
        let first = |a: f32, b: f32| differs(&[value(1.0), value(a)], &[value(1.0), value(b)]).ok().flatten();
        assert_eq!(first(f32::NAN, f32::NAN), None);
        assert_eq!(first(0.0, -0.0), Some(1));
        assert_eq!(first(1.0, 1.0 + f32::EPSILON), Some(1));
        assert_eq!(differs(&[value(1.0)], &[]).ok().flatten(), Some(0));
    }
}
