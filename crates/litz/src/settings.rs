//! Lists the thresholds of the scheduler and of the rewrites, and how exact products are, by names, and sets them by text.

use crate::options::Options;
use litz_schedule::{MemoryPool, ReorderAxes};
use std::ops::RangeInclusive;

/// A field of [`Heuristics`](litz_schedule::Heuristics) or of [`Inlining`](litz_passes::loops::Inlining), or [`Options::tf32`].
pub struct Setting {
    /// The name of the field.
    pub name: &'static str,
    /// What it says, in a few words.
    pub meaning: &'static str,
    values: Values,
    get: fn(&Options) -> i64,
    set: fn(&mut Options, i64),
}

/// What a setting may be. Results are right for all of these; more would be a mistake of whoever asks for it.
enum Values {
    Numbers(RangeInclusive<i64>),
    /// Words, by position.
    Words(&'static [&'static str]),
}

/// Why a setting is refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error, Debug)]
pub enum SettingError {
    /// There is none of that name.
    #[error("no such setting: {name}; there are {}", names().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// It is not set to that.
    #[error("{name}: expected {expected}, found `{found}`")]
    Value {
        /// The setting.
        name: &'static str,
        /// What it may be.
        expected: String,
        /// What was asked for.
        found: String,
    },
}

macro_rules! number {
    ($owner:ident.$field:ident, $values:expr, $meaning:literal) => {
        Setting {
            name: stringify!($field),
            meaning: $meaning,
            values: Values::Numbers($values),
            get: |options| i64::try_from(options.$owner.$field).unwrap_or(i64::MAX),
            set: |options, value| {
                options.$owner.$field = value.try_into().expect("invariant: the range fits the field");
            },
        }
    };
}

/// More than any size that a program may have, and no product of two overflows.
const MANY: i64 = 1 << 31;

/// Every setting, in the order of the fields.
pub const SETTINGS: &[Setting] = &[
    number!(heuristics.chunk_ops, 1..=MANY, "scalar operations that a chunk of a parallel loop has at least"),
    number!(
        heuristics.block,
        1..=MANY,
        "elements that a pointwise kernel without outer loops takes at a time"
    ),
    number!(heuristics.reduction_copies, 1..=32, "vectors in flight in a reduction"),
    number!(heuristics.function_copies, 1..=32, "vectors in flight in a loop of mathematical functions"),
    number!(heuristics.column_vectors, 1..=32, "vectors in flight when columns are reduced row by row"),
    number!(
        heuristics.inline_epilogue,
        0..=1024,
        "instructions of an epilogue that are written out for every vector of a register tile"
    ),
    number!(heuristics.partial_sum, 1..=MANY, "terms that an accumulator of a sum adds up one after another"),
    number!(heuristics.partial_half, 1..=MANY, "the same for sums that are rounded to a half type"),
    number!(
        heuristics.partial_column,
        1..=MANY,
        "the least of these for sums of columns, and of rows that fill no vector"
    ),
    Setting {
        name: "reorder_axes",
        meaning: "which kernels are merged that read the same data with their axes in another order",
        values: Values::Words(&["never", "keeping_neighbours", "always"]),
        get: |options| match options.heuristics.reorder_axes {
            ReorderAxes::Never => 0,
            ReorderAxes::KeepingNeighbours => 1,
            ReorderAxes::Always => 2,
        },
        set: |options, value| {
            options.heuristics.reorder_axes = match value {
                0 => ReorderAxes::Never,
                1 => ReorderAxes::KeepingNeighbours,
                _ => ReorderAxes::Always,
            };
        },
    },
    number!(
        heuristics.local_fraction,
        1..=1024,
        "the share of the second-level cache that buffers of one grid point may take: one over it"
    ),
    number!(
        heuristics.launch_together,
        0..=1024,
        "small independent kernels that share a launch, at most; 0 stands for 1 on CPUs and 8 on GPUs"
    ),
    number!(
        heuristics.choice,
        0..=64,
        "which of the plans that kernels for GPUs may have is taken: 0 is the one that is held to be fastest"
    ),
    number!(
        heuristics.memory_growth,
        0..=MANY,
        "bytes by which memory may grow for a byte that a merged kernel does not move"
    ),
    Setting {
        name: "memory_pool",
        meaning: "which buffers share memory: none; intermediate results, with each other; or these also with results and donated inputs",
        values: Values::Words(&["none", "intermediates", "combined"]),
        get: |options| match options.heuristics.memory_pool {
            MemoryPool::None => 0,
            MemoryPool::Intermediates => 1,
            MemoryPool::Combined => 2,
        },
        set: |options, value| {
            options.heuristics.memory_pool = match value {
                0 => MemoryPool::None,
                1 => MemoryPool::Intermediates,
                _ => MemoryPool::Combined,
            };
        },
    },
    number!(
        inlining.cheap,
        0..=1024,
        "cost of a body that is recomputed rather than stored when it has several readers"
    ),
    number!(inlining.max_body, 0..=4096, "instructions a nest may have after taking in its producers"),
    number!(inlining.max_loads, 0..=1024, "loads a nest may have after taking in its producers"),
    Setting {
        name: "float32_products",
        meaning: "as what instructions of GPUs may take operands of float32 products and convolutions",
        values: Values::Words(&["float32", "tf32"]),
        get: |options| i64::from(options.tf32),
        set: |options, value| options.tf32 = value == 1,
    },
];

/// The names of all settings.
pub fn names() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

impl Setting {
    /// What it may be, in words.
    pub fn expected(&self) -> String {
        match &self.values {
            Values::Numbers(range) => format!("a number from {} to {}", range.start(), range.end()),
            Values::Words(words) => format!("one of {}", words.join(", ")),
        }
    }

    /// What options say of it, as [`Options::set`] takes it.
    pub fn value(&self, options: &Options) -> String {
        let value = (self.get)(options);
        match &self.values {
            Values::Numbers(_) => value.to_string(),
            Values::Words(words) => words[value as usize].to_owned(),
        }
    }
}

impl Options {
    /// Sets a field of [`Options::heuristics`] or [`Options::inlining`], or [`Options::tf32`], by its name, one of [`SETTINGS`].
    ///
    /// # Errors
    /// Where there is no such field, which the error lists, and where the value is none that it takes.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let setting = SETTINGS.iter().find(|setting| setting.name == name);
        let setting = setting.ok_or_else(|| SettingError::Unknown { name: name.to_owned() })?;
        let read = match &setting.values {
            Values::Numbers(range) => value.parse().ok().filter(|value| range.contains(value)),
            Values::Words(words) => words.iter().position(|word| *word == value).map(|at| at as i64),
        };
        let wrong = || {
            let (name, expected) = (setting.name, setting.expected());
            SettingError::Value { name, expected, found: value.to_owned() }
        };
        (setting.set)(self, read.ok_or_else(wrong)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_passes::loops::Inlining;
    use litz_schedule::Heuristics;

    /// The fields as text, by patterns that no field escapes.
    fn fields(options: &Options) -> Vec<(&'static str, String)> {
        let Heuristics {
            chunk_ops,
            block,
            reduction_copies,
            function_copies,
            column_vectors,
            inline_epilogue,
            partial_sum,
            partial_half,
            partial_column,
            reorder_axes,
            local_fraction,
            launch_together,
            choice,
            memory_growth,
            memory_pool,
        } = &options.heuristics;
        let Inlining { cheap, max_body, max_loads } = &options.inlining;
        let reorder_axes = match reorder_axes {
            ReorderAxes::Never => "never",
            ReorderAxes::KeepingNeighbours => "keeping_neighbours",
            ReorderAxes::Always => "always",
        };
        let memory_pool = match memory_pool {
            MemoryPool::None => "none",
            MemoryPool::Intermediates => "intermediates",
            MemoryPool::Combined => "combined",
        };
        vec![
            ("chunk_ops", chunk_ops.to_string()),
            ("block", block.to_string()),
            ("reduction_copies", reduction_copies.to_string()),
            ("function_copies", function_copies.to_string()),
            ("column_vectors", column_vectors.to_string()),
            ("inline_epilogue", inline_epilogue.to_string()),
            ("partial_sum", partial_sum.to_string()),
            ("partial_half", partial_half.to_string()),
            ("partial_column", partial_column.to_string()),
            ("reorder_axes", reorder_axes.to_owned()),
            ("local_fraction", local_fraction.to_string()),
            ("launch_together", launch_together.to_string()),
            ("choice", choice.to_string()),
            ("memory_growth", memory_growth.to_string()),
            ("memory_pool", memory_pool.to_owned()),
            ("cheap", cheap.to_string()),
            ("max_body", max_body.to_string()),
            ("max_loads", max_loads.to_string()),
            ("float32_products", if options.tf32 { "tf32" } else { "float32" }.to_owned()),
        ]
    }

    #[test]
    fn every_field_is_a_setting() {
        let options = Options::default();
        let listed: Vec<(&str, String)> =
            SETTINGS.iter().map(|setting| (setting.name, setting.value(&options))).collect();
        assert_eq!(listed, fields(&options));
    }

    #[test]
    fn setting_one_changes_its_field_alone() {
        for (at, setting) in SETTINGS.iter().enumerate() {
            let values: Vec<String> = match &setting.values {
                Values::Numbers(range) => vec![range.start().to_string(), range.end().to_string()],
                Values::Words(words) => words.iter().map(|word| (*word).to_owned()).collect(),
            };
            for value in values {
                let mut options = Options::default();
                let mut expected = fields(&options);
                expected[at].1.clone_from(&value);
                options.set(setting.name, &value).expect("it is in the range");
                assert_eq!(fields(&options), expected);
            }
        }
    }

    #[test]
    fn what_is_unknown_or_out_of_range_is_refused() {
        let refused = |name, value| Options::default().set(name, value).expect_err("refused").to_string();
        let unknown = refused("launch", "8");
        assert!(unknown.starts_with("no such setting: launch; there are chunk_ops, block, "), "{unknown}");
        assert!(names().iter().all(|name| unknown.contains(name)), "{unknown}");
        assert_eq!(
            refused("launch_together", "1025"),
            "launch_together: expected a number from 0 to 1024, found `1025`"
        );
        for value in ["", "8.0", "-1", "99999999999999999999", "True", "eight"] {
            assert!(refused("launch_together", value).contains("expected a number"), "{value}");
        }
        assert!(refused("reorder_axes", "1").contains("one of never, keeping_neighbours, always"));
    }
}
