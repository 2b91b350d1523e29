//! Makes long graphs of bounded numbers in which each of some rare patterns of operators occurs once, somewhere.

use std::collections::HashMap;
use std::fmt::Write;

use litz::case::Case;
use litz_ir::Dtype;
use litz_ir::text;

use crate::choices::Random;
use crate::models::{Fill, fill_tensor};

/// Rows and columns of every tensor.
const SIZE: usize = 16;

/// Patterns that occur once: nodes of a graph with `{a}` and `{b}` for what they read, `{n}` for names of their own, and `{y}` for what others read. No
/// other operator of the graph is one of those that patterns have alone.
const RARE: [&str; 14] = [
    "%{n}t: T = aten.abs.default({a})\n%{y}: T = aten.neg.default(%{n}t)\n",
    "%{n}t: T = aten.tanh.default({a})\n%{y}: T = aten.sub.Tensor(%{n}t, {b}, 1)\n",
    "%{n}t: f32[32, 16] = aten.cat.default([{a}, {b}], 0)\n%{y}: T = aten.slice.Tensor(%{n}t, 0, 8, 24, 1)\n",
    "%{n}s: T = aten.sub.Tensor(%x0, %x1, 1)\n%{n}t: T = aten.maximum.default(%{n}s, %x2)\n%{y}: T = aten.relu.default(%{n}t)\n",
    "%{y}: T = aten.gelu.default({a}, \"tanh\")\n",
    "%{n}t: f32[16, 1] = aten.amax.default({a}, [1], true)\n%{y}: T = aten.mul.Tensor({b}, %{n}t)\n",
    "%{n}t: f32[16, 1] = aten.mean.dim({a}, [1], true, none)\n%{y}: T = aten.mul.Tensor({b}, %{n}t)\n",
    "%{n}s: T = aten.mul.Tensor({a}, {a})\n%{n}t: T = aten.exp.default(%{n}s)\n%{y}: T = aten.rsqrt.default(%{n}t)\n",
    "%{n}t: T = aten.floor.default({a})\n%{y}: T = aten.tanh.default(%{n}t)\n",
    "%{y}: T = aten.sign.default({a})\n",
    "%{y}: T = aten.minimum.default({a}, {b})\n",
    "%{y}: T = aten.add.Tensor({a}, {b}, 2)\n",
    "%{n}t: f32[16, 16]{1, 16} = aten.permute.default({a}, [1, 0])\n%{n}u: T = aten.clone.default(%{n}t, contiguous)\n%{y}: T = aten.cos.default(%{n}u)\n",
    "%{y}: T = aten.atan.default({a})\n",
];

/// What there is besides, often.
const COMMON: [&str; 9] = [
    "%{y}: T = aten.add.Tensor({a}, {b}, 1)\n",
    "%{y}: T = aten.mul.Tensor({a}, {b})\n",
    "%{y}: T = aten.mm.default({a}, %w{w})\n",
    "%{y}: T = aten.relu.default({a})\n",
    "%{y}: T = aten.tanh.default({a})\n",
    "%{y}: T = aten.sigmoid.default({a})\n",
    "%{y}: T = aten.sin.default({a})\n",
    "%{y}: T = aten.softmax.int({a}, -1, none)\n",
    "%{y}: T = aten.layer_norm.default({a}, [16], none, none, 1e-5, true)\n",
];

/// The place in [`COMMON`] from which on results are bounded whatever is read.
const BOUNDED: usize = 4;

/// A call of a graph with at least so many nodes.
pub fn long(nodes: usize, seed: u64) -> Case {
    let mut random = Random::new(seed);
    let mut pick = |count: usize| random.below(count as u64) as usize;
    let mut text = String::from("graph @long on cpu {\n");
    let mut values: Vec<String> = (0..4).map(|at| format!("%x{at}")).collect();
    values.iter().for_each(|value| text += &format!("{value}: T = input\n"));
    (0..4).for_each(|at| text += &format!("%w{at}: T = const \"w{at}\"\n"));
    let mut places: Vec<usize> = (0..RARE.len()).map(|_| nodes / 10 + pick(nodes * 8 / 10)).collect();
    let mut read = vec![false; values.len()];
    // Bounds on the size of each value.
    let mut bounds = vec![4.0; values.len()];
    let mut made = 0;
    while made < nodes {
        // Mostly what is new, sometimes what was there long ago.
        let mut operand = || match pick(4) {
            0 => pick(values.len()),
            _ => values.len() - 1 - pick(values.len().min(12)),
        };
        let (a, b) = (operand(), operand());
        let rare = places.iter().position(|&place| place <= made);
        let (pattern, bound) = match rare {
            Some(at) => {
                places[at] = usize::MAX;
                (RARE[at], (bounds[a] + bounds[b]) * 2.0 + bounds[a] * bounds[b])
            }
            None => {
                let grows = [bounds[a] + bounds[b], bounds[a] * bounds[b], 2.0 * bounds[a], bounds[a]];
                let at = pick(COMMON.len());
                // Sums of rounding errors stay as small as the numbers do.
                if at < BOUNDED && grows[at] <= 16.0 {
                    (COMMON[at], grows[at])
                } else {
                    let at = BOUNDED + pick(COMMON.len() - BOUNDED);
                    (COMMON[at], 4.0)
                }
            }
        };
        let y = format!("v{}", values.len());
        let lines = pattern
            .replace("{a}", &values[a])
            .replace("{b}", &values[b])
            .replace("{n}", &y)
            .replace("{y}", &y);
        made += lines.lines().count();
        text += &lines.replace("{w}", &pick(4).to_string());
        read[a] = true;
        read[b] |= pattern.contains("{b}");
        values.push(format!("%{y}"));
        read.push(false);
        bounds.push(bound);
    }
    let unread = values.iter().zip(&read).filter(|(_, read)| !**read).map(|(value, _)| value.as_str());
    let _ = write!(text, "return {}\n}}\n", unread.collect::<Vec<_>>().join(", "));
    let text = text.replace(": T", ": f32[16, 16]");
    let graph = text::graph::parse(&text).unwrap_or_else(|diags| panic!("{text}\n{diags:?}"));
    let tensor = |seed| fill_tensor(Dtype::F32, &[SIZE, SIZE], &[SIZE, 1], Fill::Small, seed);
    let inputs = (0..4).map(|at| tensor(seed ^ at)).collect();
    let weight = |at: u64| {
        // Columns whose products with bounded rows are bounded.
        let values: Vec<f32> =
            tensor(seed ^ (at + 100)).to_f64().into_iter().map(|value| value as f32 / 32.0).collect();
        let tensor = litz::Tensor::from_slice(&[SIZE, SIZE], &values).expect("invariant: lengths match");
        (format!("w{at}"), tensor)
    };
    Case { graph, inputs, weights: (0..4).map(weight).collect::<HashMap<_, _>>(), expected: None }
}
