//! Provides a host with collective operators, for a world of one or several executions that exchange through memory.

use litz::{Host, HostArg, HostError, HostResult, Tensor};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What PyTorch 2.15 declares, as it prints it.
const SCHEMAS: [&str; 6] = [
    "_c10d_functional::all_reduce(Tensor input, Any reduce_op, Any group_name) -> Tensor",
    "_c10d_functional::all_reduce_(Tensor(a!) input, Any reduce_op, Any group_name) -> Tensor(a!)",
    "_c10d_functional::all_reduce_coalesced(Tensor[] inputs, Any reduce_op, Any group_name) -> Tensor[]",
    "_c10d_functional::all_reduce_coalesced_(Tensor[](a!) inputs, Any reduce_op, Any group_name) -> Tensor[](a!)",
    "_c10d_functional::all_gather_into_tensor(Tensor input, int group_size, Any group_name) -> Tensor",
    "_c10d_functional::wait_tensor(Tensor tensor) -> Tensor",
];

/// The elements of each tensor that a rank gives to a collective.
type Part = Vec<Vec<f64>>;

/// Where ranks meet: each gives its part and gets all parts.
pub struct World {
    size: usize,
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

#[derive(Default)]
struct Meeting {
    parts: Vec<Option<Part>>,
    left: usize,
}

/// The host of one execution.
pub struct Rank {
    world: Arc<World>,
    rank: usize,
    has_twins: bool,
    calls: Mutex<Vec<String>>,
}

impl World {
    /// One host for each of the executions.
    pub fn of(size: usize, has_twins: bool) -> Vec<Arc<Rank>> {
        let meeting = Mutex::new(Meeting { parts: vec![None; size], left: 0 });
        let world = Arc::new(World { size, meeting, changed: Condvar::new() });
        let rank = |rank| Rank { world: Arc::clone(&world), rank, has_twins, calls: Mutex::default() };
        (0..size).map(|at| Arc::new(rank(at))).collect()
    }

    /// The parts of all ranks, as soon as all are there.
    fn exchange(&self, rank: usize, part: Part) -> Result<Vec<Part>, HostError> {
        let patience = Duration::from_secs(60);
        let meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken = |meeting: &mut Meeting| meeting.parts[rank].is_some();
        let waited = self.changed.wait_timeout_while(meeting, patience, is_taken);
        let (mut meeting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        meeting.parts[rank] = Some(part);
        self.changed.notify_all();
        let is_alone = |meeting: &mut Meeting| meeting.parts.iter().any(Option::is_none);
        let waited = self.changed.wait_timeout_while(meeting, patience, is_alone);
        let (mut meeting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let all: Option<Vec<Part>> = meeting.parts.iter().cloned().collect();
        meeting.left += 1;
        if meeting.left == self.size {
            *meeting = Meeting { parts: vec![None; self.size], left: 0 };
            self.changed.notify_all();
        }
        all.ok_or_else(|| "another rank did not come".into())
    }
}

impl Rank {
    /// Operators since the last time that this was asked.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The elements that all ranks get.
    fn reduced(&self, part: Part, by: &str) -> Result<Part, HostError> {
        let parts = self.world.exchange(self.rank, part)?;
        let count = parts.len() as f64;
        let merge = |one: f64, other: f64| if by == "max" { one.max(other) } else { one + other };
        let mut parts = parts.into_iter();
        let mut all = parts.next().ok_or("a world of nobody")?;
        for part in parts {
            for (into, from) in all.iter_mut().flatten().zip(part.into_iter().flatten()) {
                *into = merge(*into, from);
            }
        }
        if by == "avg" {
            all.iter_mut().flatten().for_each(|value| *value /= count);
        }
        Ok(all)
    }
}

impl Host for Rank {
    fn declaration(&self, op: &str) -> Option<String> {
        let (base, is_twin) = (op.strip_suffix(".default")?, op.ends_with("_.default"));
        let name = base.replacen('.', "::", 1);
        let found = SCHEMAS.into_iter().find(|schema| schema.split('(').next() == Some(&*name))?;
        (self.has_twins || !is_twin).then(|| found.to_owned())
    }

    fn call(
        &self,
        op: &str,
        args: &mut [HostArg<'_>],
        results: &mut [HostResult<'_>],
    ) -> Result<(), HostError> {
        let name = op.strip_prefix("_c10d_functional.").ok_or("another namespace")?;
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
        let inputs = match &args[0] {
            HostArg::List(list) => list.items().iter().map(tensor).collect::<Result<Vec<_>, _>>()?,
            input => vec![tensor(input)?],
        };
        let part: Part = inputs.iter().map(Tensor::to_f64).collect();
        let by = args.get(1).and_then(HostArg::text).unwrap_or("sum");
        match name {
            "all_reduce.default" | "all_reduce_coalesced.default" => {
                let all = self.reduced(part, by)?;
                let tensors = inputs.iter().zip(all).map(|(input, values)| of_values(input.sizes(), &values));
                results.iter_mut().zip(tensors).try_for_each(|(result, tensor)| result.set(&tensor?))
            }
            "all_reduce_.default" | "all_reduce_coalesced_.default" => {
                let all = self.reduced(part, by)?;
                let targets = match &mut args[0] {
                    HostArg::List(list) => list.items_mut(),
                    one => std::slice::from_mut(one),
                };
                let mut addresses: Vec<usize> =
                    targets.iter().filter_map(|target| Some(target.tensor()?.data().addr())).collect();
                addresses.sort_unstable();
                if addresses.windows(2).any(|pair| pair[0] == pair[1]) {
                    return Err("one memory is given twice".into());
                }
                targets.iter_mut().zip(all).try_for_each(|(target, values)| {
                    let target = target.tensor_mut().ok_or("expected a tensor")?;
                    let tensor = of_values(target.sizes(), &values)?;
                    target.write(&tensor)
                })
            }
            "all_gather_into_tensor.default" => {
                let parts = self.world.exchange(self.rank, part)?;
                let values: Vec<f64> = parts.into_iter().flatten().flatten().collect();
                let sizes = results[0].tensor().sizes().to_vec();
                results[0].set(&of_values(&sizes, &values)?)
            }
            "wait_tensor.default" => results[0].set(&inputs[0]),
            _ => Err(format!("there is no {op}").into()),
        }
    }
}

fn tensor(arg: &HostArg<'_>) -> Result<Tensor, HostError> {
    arg.tensor().ok_or("expected a tensor")?.to_tensor()
}

fn of_values(sizes: &[usize], values: &[f64]) -> Result<Tensor, HostError> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    Ok(Tensor::from_slice(sizes, &values)?)
}
