//! Compares measurements of kernels with the figures that they must reach.
//!
//! Three kinds. Pointwise kernels and norms are set against Inductor, all threads on both sides. Products with constant
//! weights, and the convolutions of a network, are set against the peak of fused multiply-adds on one thread, which
//! `litz bench` measures in turns with the calls. The convolutions are those of the compiled network itself: whatever
//! kernels compute a convolution, with what is fused to them and the borders they need, summed over one call.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::bar::{Bar, Unit};
use crate::bench::{self, Driver, Measured};
use crate::command::output;

/// Pointwise kernels and norms, at a size that caches hold and at one that they do not.
const FAMILIES: [&str; 5] = ["gelu_erf", "gelu_tanh", "softmax", "layer_norm", "rms_norm"];
const SIZES: [&str; 2] = ["128x1024", "4096x1024"];
const SPEED_UP: f64 = 2.0;

/// Products, rows x columns x terms.
pub const PRODUCTS: [&str; 4] =
    ["linear_128x768x768", "linear_128x3072x768", "linear_512x512x512", "linear_1024x1024x1024"];
const OF_PEAK_PRODUCT: f64 = 0.92;

/// The network whose convolutions count.
pub const NETWORK: &str = "resnet50";
const OF_PEAK_CONVOLUTION: f64 = 0.85;

/// Calls of a product, and of the network, on one thread.
const PRODUCT_CALLS: usize = 200;
const NETWORK_CALLS: usize = 30;

/// The last block of the report: against Inductor from `measured`, against the peak by running `litz bench`.
pub fn report(
    driver: &Driver,
    kernels: &Path,
    network: Option<&Path>,
    inductor: Option<usize>,
    measured: &Measured,
) -> String {
    let mut bars = against_inductor(inductor, measured);
    for name in PRODUCTS.iter().filter(|name| measured.iter().any(|(n, _)| n == **name)) {
        bars.push(Bar {
            what: format!("{name}, one thread, of FMA peak"),
            figure: reported(name, product(driver, &kernels.join(format!("{name}.pt2")))),
            least: Some(OF_PEAK_PRODUCT),
            unit: Unit::Percent,
        });
    }
    if let Some(network) = network {
        bars.push(Bar {
            what: format!("convolutions of {NETWORK}, one thread, of FMA peak"),
            figure: reported(NETWORK, convolutions(driver, network)),
            least: Some(OF_PEAK_CONVOLUTION),
            unit: Unit::Percent,
        });
    }
    bars.iter().map(|bar| bar.line() + "\n").collect()
}

fn reported(name: &str, figure: anyhow::Result<f64>) -> Option<f64> {
    figure.inspect_err(|error| eprintln!("{name}: {error:#}")).ok()
}

fn against_inductor(inductor: Option<usize>, measured: &Measured) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut ratios = Vec::new();
    for name in FAMILIES.iter().flat_map(|family| SIZES.map(|size| format!("{family}_{size}"))) {
        let Some((_, timing)) = measured.iter().find(|(n, _)| *n == name) else { continue };
        let peer = inductor.and_then(|at| timing.as_ref().ok()?.peers.get(at)?.as_ref().ok());
        let figure = peer.map(|peer| peer.ratio);
        ratios.extend(figure);
        bars.push(Bar { what: format!("{name}, against inductor"), figure, least: None, unit: Unit::Times });
    }
    if !bars.is_empty() {
        bars.push(Bar {
            what: "geometric mean of these".to_owned(),
            figure: bench::geometric_mean(&ratios),
            least: Some(SPEED_UP),
            unit: Unit::Times,
        });
    }
    bars
}

/// The kernel that does most of a product's operations, as a fraction of the peak.
fn product(driver: &Driver, model: &Path) -> anyhow::Result<f64> {
    let kernels = kernels(driver, model, PRODUCT_CALLS)?;
    let largest = kernels.iter().max_by(|a, b| a.flops.total_cmp(&b.flops));
    Ok(largest.context("no kernel was recorded")?.of_peak)
}

/// All kernels that compute convolutions, together, as a fraction of the peak.
fn convolutions(driver: &Driver, model: &Path) -> anyhow::Result<f64> {
    let kernels = kernels(driver, model, NETWORK_CALLS)?;
    let convolutions: Vec<&Kernel> = kernels.iter().filter(|k| k.is_convolution).collect();
    ensure!(!convolutions.is_empty(), "no kernel computes a convolution");
    together(&convolutions).context("kernels without operations")
}

/// Operations over the time they took, in units of the peak: a kernel's time is its operations over its rate. Kernels
/// without operations, such as those that fill borders, count with the time they took, at the rate of the others.
fn together(kernels: &[&Kernel]) -> Option<f64> {
    let computing: Vec<&&Kernel> = kernels.iter().filter(|k| k.of_peak > 0.0).collect();
    let flops: f64 = computing.iter().map(|k| k.flops).sum();
    let ideal: f64 = computing.iter().map(|k| k.flops / k.of_peak).sum();
    let ms: f64 = computing.iter().map(|k| k.ms).sum();
    let all: f64 = kernels.iter().map(|k| k.ms).sum();
    (ideal > 0.0).then(|| flops / ideal * ms / all)
}

/// What `litz bench` says of one kernel, for one call.
struct Kernel {
    is_convolution: bool,
    flops: f64,
    ms: f64,
    of_peak: f64,
}

fn kernels(driver: &Driver, model: &Path, calls: usize) -> anyhow::Result<Vec<Kernel>> {
    let cache = bench::empty_folder("bars")?;
    let mut litz = driver.litz(&cache);
    litz.args(["bench", "--json", "--threads", "1", "--runs"]).arg(calls.to_string()).arg(model);
    let found: Value = serde_json::from_str(&output(&mut litz)?)?;
    let rows = found["kernels"].as_array().context("expected a list of kernels")?;
    if rows.iter().any(|row| row["of_peak"].is_null()) {
        bail!("the peak could not be measured: the machine is busy, or its clock moves");
    }
    rows.iter().map(kernel).collect::<Option<Vec<_>>>().context("expected `ops`, `flops`, `ms` and `of_peak`")
}

fn kernel(row: &Value) -> Option<Kernel> {
    let ops = row["ops"].as_array()?;
    let is_convolution = |op: &Value| op.as_str().is_some_and(|op| op.starts_with("aten.conv"));
    Some(Kernel {
        is_convolution: ops.iter().any(is_convolution),
        flops: row["flops"].as_f64()?,
        ms: row["ms"].as_f64()?,
        of_peak: row["of_peak"].as_f64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_together_weigh_by_their_time() {
        let kernel = |flops, ms, of_peak| Kernel { is_convolution: true, flops, ms, of_peak };
        let (fast, slow, border) = (kernel(9.0, 1.0, 0.9), kernel(5.0, 1.0, 0.5), kernel(0.0, 1.0, 0.0));
        assert_eq!(together(&[&fast, &slow]), Some(0.7));
        assert_eq!(together(&[&fast, &fast, &border]), Some(0.6));
        assert_eq!(together(&[&border]), None);
    }

    #[test]
    fn rows_are_read() {
        let row = serde_json::json!({"ops": ["aten.relu.default", "aten.conv2d.default"], "flops": 2.0, "ms": 1, "of_peak": 0.5});
        let kernel = kernel(&row).expect("complete");
        assert!(kernel.is_convolution && kernel.of_peak == 0.5);
        assert!(super::kernel(&serde_json::json!({"ops": []})).is_none());
    }
}
