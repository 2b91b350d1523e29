//! Computes the operators of a host that the graphs call, as PyTorch does.

use litz::{Host, HostArg, HostError, HostResult, Tensor};

/// The host.
pub struct Eager;

const HYPOT: &str = "aten.hypot.default";
const INDEX_PUT: &str = "aten.index_put_.default";

impl Host for Eager {
    fn declaration(&self, op: &str) -> Option<String> {
        let rest = match op {
            HYPOT => "(Tensor self, Tensor other) -> Tensor any",
            INDEX_PUT => {
                "(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!) any"
            }
            _ => return None,
        };
        Some(format!("{op}{rest}"))
    }

    fn call(
        &self,
        op: &str,
        args: &mut [HostArg<'_>],
        results: &mut [HostResult<'_>],
    ) -> Result<(), HostError> {
        match (op, args) {
            (HYPOT, [a, b]) => {
                let pairs = floats(a)?.into_iter().zip(floats(b)?);
                let values: Vec<f32> = pairs.map(|(a, b)| a.hypot(b)).collect();
                let sizes = a.tensor().ok_or("expected a tensor")?.sizes();
                results[0].set(&Tensor::from_slice(sizes, &values)?)
            }
            (INDEX_PUT, [to, HostArg::List(indices), values, HostArg::Bool(true)]) => {
                let [HostArg::Tensor(index)] = indices.items() else {
                    return Err("expected one index".into());
                };
                let index = index.to_tensor()?.to_vec::<i64>().ok_or("expected i64")?;
                let mut sums = floats(to)?;
                for (at, value) in index.into_iter().zip(floats(values)?) {
                    sums[usize::try_from(at)?] += value;
                }
                let HostArg::Tensor(to) = to else { return Err("expected a tensor".into()) };
                to.write(&Tensor::from_slice(&[sums.len()], &sums)?)
            }
            (op, _) => Err(format!("{op} is called otherwise").into()),
        }
    }
}

fn floats(arg: &HostArg<'_>) -> Result<Vec<f32>, HostError> {
    let tensor = arg.tensor().ok_or("expected a tensor")?.to_tensor()?;
    Ok(tensor.to_vec::<f32>().ok_or("expected f32")?)
}
