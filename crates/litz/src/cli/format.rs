//! Formats numbers and rows for people.

use litz::{Tensor, Value};
use litz_ir::Dtype;
use litz_ir::graph::TensorType;
use std::fmt;

/// Columns of text. Heads that begin with `>` are of columns that end flush.
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// No rows yet.
    pub fn new(heads: &[&str]) -> Table {
        Table { heads: heads.iter().map(|&head| head.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads: Vec<String> =
            self.heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).chain([&heads[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, head), &width) in row.iter().zip(&self.heads).zip(&widths) {
                line += &if head.starts_with('>') {
                    format!("{cell:>width$}  ")
                } else {
                    format!("{cell:<width$}  ")
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// `f32[2, 3]`.
pub fn tensor_type(tensor: &Tensor) -> String {
    format!("{}{:?}", tensor.dtype(), tensor.sizes())
}

/// `f32[s0, 3]`.
pub fn graph_type(ty: &TensorType) -> String {
    let sizes: Vec<String> = ty.sizes.iter().map(ToString::to_string).collect();
    format!("{}[{}]", ty.dtype, sizes.join(", "))
}

/// 1536 => `1.5 KiB`.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (unsigned_zero(bytes), 0);
    while value.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// 1500000 => `1.50M`.
pub fn count(count: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    let (mut value, mut unit) = (unsigned_zero(count), 0);
    while value.abs() >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{value}") } else { format!("{value:.2}{}", UNITS[unit]) }
}

/// -0 => 0: the sum of no numbers is -0.
fn unsigned_zero(value: f64) -> f64 {
    value + 0.0
}

/// Four digits, in the shorter of the usual and the scientific form.
pub fn number(value: f64) -> String {
    let usual = (1e-4..1e6).contains(&value.abs()) || value == 0.0 || !value.is_finite();
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value}")
    } else if usual {
        format!("{value:.4}")
    } else {
        format!("{value:.3e}")
    }
}

/// Elements of a tensor at a glance.
pub struct Summary {
    /// Smallest element; NaN counts for nothing here, so that it shows in the mean alone.
    pub min: f64,
    /// Largest element.
    pub max: f64,
    /// Mean of all elements.
    pub mean: f64,
    /// The first few.
    pub first: Vec<f64>,
}

/// Elements shown of a tensor.
const FIRST: usize = 6;

/// Looks at all elements. None where there are none.
pub fn summary(tensor: &Tensor) -> Option<Summary> {
    let (mut first, mut min, mut max, mut sum) = (Vec::new(), f64::INFINITY, f64::NEG_INFINITY, 0.0);
    tensor.each_f64(|value| {
        if first.len() < FIRST {
            first.push(value);
        }
        // NaN compares with nothing.
        if value < min {
            min = value;
        }
        if value > max {
            max = value;
        }
        sum += value;
    });
    if min > max {
        (min, max) = (f64::NAN, f64::NAN);
    }
    (!first.is_empty()).then(|| Summary { min, max, mean: sum / tensor.numel() as f64, first })
}

/// A number of things.
pub fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// An element as its type writes it.
pub fn element(dtype: Dtype, value: f64) -> String {
    match dtype {
        Dtype::Bool => (value != 0.0).to_string(),
        _ => number(value),
    }
}

/// A returned value that is no tensor.
pub fn scalar(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => tensor_type(tensor),
        Value::Text(text) => text.to_string(),
        Value::Nothing => "none".to_owned(),
        Value::Scalar(scalar) => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", ">ms"]);
        table.row(["a".to_owned(), "10.5".to_owned()]);
        table.row(["longer".to_owned(), "1.0".to_owned()]);
        assert_eq!(table.to_string(), "name      ms\na       10.5\nlonger   1.0\n");
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!([1536.0, 10.0, 1048576.0].map(bytes), ["1.5 KiB", "10 B", "1.0 MiB"]);
        assert_eq!([1.5e6, 12.0].map(count), ["1.50M", "12"]);
        assert_eq!([-1536.0, -10.0].map(bytes), ["-1.5 KiB", "-10 B"]);
        let nothing = || std::iter::empty::<f64>().sum();
        assert_eq!([bytes(nothing()), count(nothing())], ["0 B", "0"]);
        assert_eq!(
            [0.0, 2.0, 0.12345678, 1.5e-9, f64::NAN].map(number),
            ["0", "2", "0.1235", "1.500e-9", "NaN"]
        );
    }

    #[test]
    fn nan_shows_in_the_mean_alone() {
        let tensor = Tensor::from_slice(&[3], &[f32::NAN, -1.0, 2.0]).expect("lengths match");
        let summary = summary(&tensor).expect("three elements");
        assert_eq!((summary.min, summary.max), (-1.0, 2.0));
        assert!(summary.mean.is_nan());
        let summary = super::summary(&Tensor::from_slice(&[7], &[f32::NAN; 7]).expect("lengths match"));
        assert!(summary.is_some_and(|s| s.min.is_nan() && s.max.is_nan() && s.first.len() == FIRST));
        assert!(super::summary(&Tensor::from_slice::<f32>(&[0], &[]).expect("lengths match")).is_none());
    }
}
