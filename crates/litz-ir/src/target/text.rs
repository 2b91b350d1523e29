//! Prints targets and parses them.

use super::units::{Bytes, RATE_UNITS, Rate, in_units, number};
use super::{Cpu, Gpu, GpuIsa, Isa, Memory, Rates, Target, Unit};
use crate::{Diag, Dtype};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Cpu(cpu) => cpu.fmt(f),
            Target::Gpu(gpu) => gpu.fmt(f),
        }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu(isa={}, threads={}", self.isa.name(), self.threads)?;
        for (Memory { name, bytes }, usual) in
            self.memories().into_iter().zip([Self::USUAL_L1_BYTES, Self::USUAL_L2_BYTES])
        {
            if bytes != usual {
                write!(f, ", {name}={}", Bytes(bytes))?;
            }
        }
        self.rates.write(f)?;
        f.write_str(")")
    }
}

/// Bounds of what a target's text may say: beyond what any CPU has, and small enough for all arithmetic on it.
const THREADS: RangeInclusive<i64> = 1..=4096;
const CACHE_BYTES: RangeInclusive<i64> = 1 << 10..=1 << 30;
const RATES: RangeInclusive<i64> = 0..=1_000_000_000_000_000_000;

impl FromStr for Target {
    type Err = Diag;

    /// Reads what [`fmt::Display`] writes, and the same with blanks elsewhere or keys in another order.
    ///
    /// # Errors
    /// `target-syntax`, saying what was expected.
    fn from_str(text: &str) -> Result<Target, Diag> {
        parse(text).map_err(|what| Diag::new("target-syntax", format!("target `{text}`: {what}")))
    }
}

fn parse(text: &str) -> Result<Target, String> {
    let inside = |kind: &str| {
        let rest = text.trim().strip_prefix(kind)?.strip_prefix('(')?;
        rest.strip_suffix(')')
    };
    match (inside("cpu"), inside("gpu")) {
        (Some(cpu), _) => Entries::of(cpu, &["isa", "threads", "l1", "l2"])?.cpu().map(Target::Cpu),
        (_, Some(gpu)) => Entries::of(gpu, &GPU_KEYS)?.gpu().map(Target::Gpu),
        (None, None) => Err("expected `cpu(isa=.., threads=..)` or `gpu(isa=.., units=..)`".to_owned()),
    }
}

/// What a GPU's text may say besides rates.
const GPU_KEYS: [&str; 8] =
    ["isa", "units", "shared", "unit.shared", "unit.registers", "unit.threads", "unit.blocks", "l2"];

/// Keys with their values, each once.
struct Entries<'t> {
    /// Those that are not rates.
    own: Vec<(&'t str, &'t str)>,
    rates: Rates,
}

impl<'t> Entries<'t> {
    /// Reads a list. Besides `keys` there may be rates.
    fn of(list: &'t str, keys: &[&str]) -> Result<Entries<'t>, String> {
        let mut entries = Entries { own: Vec::new(), rates: Rates::default() };
        let mut seen: Vec<&str> = Vec::new();
        for entry in list.split(',') {
            let (key, value) =
                entry.split_once('=').ok_or_else(|| format!("expected `key=value`, found `{entry}`"))?;
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return Err(format!("`{key}` is given twice"));
            }
            seen.push(key);
            let rated = |dtype: &Dtype| key.strip_prefix("flops.") == Some(&*dtype.to_string());
            if keys.contains(&key) {
                entries.own.push((key, value));
            } else if key == "bandwidth" {
                entries.rates.bandwidth = rate(value)?;
            } else if let Some(at) = Rates::DTYPES.iter().position(rated) {
                entries.rates.flops[at] = rate(value)?;
            } else {
                let known = keys.join(", ");
                return Err(format!("expected {known}, bandwidth or flops.f32, found `{key}`"));
            }
        }
        Ok(entries)
    }

    fn get(&self, key: &str) -> Option<&'t str> {
        self.own.iter().find(|entry| entry.0 == key).map(|entry| entry.1)
    }

    fn expect(&self, key: &str) -> Result<&'t str, String> {
        self.get(key).ok_or_else(|| format!("expected `{key}=..`"))
    }

    fn bytes(&self, key: &str, usual: i64) -> Result<i64, String> {
        self.get(key).map_or(Ok(usual), bytes)
    }

    /// A number of threads or blocks of a unit.
    fn count(&self, key: &str, usual: u32) -> Result<u32, String> {
        let Some(text) = self.get(key) else { return Ok(usual) };
        let (digits, unit) = in_units(text);
        number(digits, unit, THREADS).map(|count| count as u32)
    }

    fn cpu(&self) -> Result<Cpu, String> {
        Ok(Cpu {
            isa: one_of(self.expect("isa")?, &Isa::ALL, Isa::name)?,
            threads: number(self.expect("threads")?, 1, THREADS)? as u32,
            l1_bytes: self.bytes("l1", Cpu::USUAL_L1_BYTES)?,
            l2_bytes: self.bytes("l2", Cpu::USUAL_L2_BYTES)?,
            rates: self.rates,
        })
    }

    fn gpu(&self) -> Result<Gpu, String> {
        let isa = one_of(self.expect("isa")?, &GpuIsa::ALL, GpuIsa::name)?;
        let units = number(self.expect("units")?, 1, THREADS)? as u32;
        let Gpu { shared_bytes, unit, l2_bytes, .. } = Gpu::new(isa, units);
        let unit = Unit {
            shared_bytes: self.bytes("unit.shared", unit.shared_bytes)?,
            registers: self.bytes("unit.registers", i64::from(unit.registers))? as u32,
            threads: self.count("unit.threads", unit.threads)?,
            blocks: self.count("unit.blocks", unit.blocks)?,
        };
        let shared_bytes = self.bytes("shared", shared_bytes)?;
        let l2_bytes = self.bytes("l2", l2_bytes)?;
        Ok(Gpu { isa, units, shared_bytes, unit, l2_bytes, rates: self.rates })
    }
}

fn one_of<T: Copy>(name: &str, all: &[T], name_of: fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|one| name_of(*one) == name);
    found.ok_or_else(|| {
        let known: Vec<&str> = all.iter().copied().map(name_of).collect();
        format!("expected one of {}, found `{name}`", known.join(", "))
    })
}

fn bytes(text: &str) -> Result<i64, String> {
    let (digits, unit) = in_units(text);
    number(digits, unit, CACHE_BYTES)
}

fn rate(text: &str) -> Result<u64, String> {
    let (digits, unit) = RATE_UNITS
        .into_iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))
        .unwrap_or((text, 1));
    let rate = number(digits, unit, RATES).map(i64::unsigned_abs);
    rate.map_err(|_| {
        format!("expected a rate of at most {}, found `{text}`", Rate(RATES.end().unsigned_abs()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_read_back() {
        for isa in Isa::ALL {
            for (threads, l1_bytes, l2_bytes) in
                [(1, 32 << 10, 1 << 20), (7, 48 << 10, 4 << 20), (4096, 1025, 1 << 30)]
            {
                let rates = Rates { bandwidth: 80_000_000_001, ..Rates::default() };
                for rates in [Rates::default(), rates.with_flops(Dtype::F32, 1500).with_flops(Dtype::I8, 2)] {
                    let target = Target::Cpu(Cpu { isa, threads, l1_bytes, l2_bytes, rates });
                    assert_eq!(target.to_string().parse(), Ok(target), "{target}");
                }
            }
        }
    }

    #[test]
    fn texts_of_gpus_read_back() {
        for isa in GpuIsa::ALL {
            let usual = Gpu::new(isa, 132);
            let rates = Rates { bandwidth: 3_350_000_000_000, ..Rates::default() };
            let unit = Unit { shared_bytes: 96 << 10, registers: 32 << 10, threads: 1000, blocks: 16 };
            let other = Gpu { shared_bytes: 48 << 10, rates, ..usual };
            for gpu in [usual, other, Gpu { unit, ..other }, Gpu { l2_bytes: 6 << 20, ..usual }] {
                let target = Target::Gpu(gpu);
                assert_eq!(target.to_string().parse(), Ok(target), "{target}");
            }
        }
        assert_eq!(Target::Gpu(Gpu::new(GpuIsa::Sm90, 132)).to_string(), "gpu(isa=sm90, units=132)");
        let text = "gpu(isa=sm89, units=58, shared=64K, unit.shared=65K, unit.registers=32K, unit.threads=1K, unit.blocks=16, l2=48M)";
        assert_eq!(text.parse::<Target>().map(|target| target.to_string()), Ok(text.to_owned()));
        let usual = "gpu(isa=sm90, units=132, shared=227K, unit.shared=228K, unit.registers=64K, unit.threads=2048, unit.blocks=32, l2=50M)";
        assert_eq!(usual.parse(), Ok(Target::Gpu(Gpu::new(GpuIsa::Sm90, 132))));
    }

    #[test]
    fn caches_are_written_in_the_largest_unit_and_only_where_they_are_unusual() {
        let rates = Rates::default();
        let amx = Cpu { isa: Isa::Avx512Amx, threads: 7, l1_bytes: 48 << 10, l2_bytes: 2 << 20, rates };
        assert_eq!(amx.to_string(), "cpu(isa=avx512-amx, threads=7, l1=48K, l2=2M)");
        let sse = Cpu { isa: Isa::Sse2, threads: 1, l1_bytes: 32 << 10, l2_bytes: 1 << 20, rates };
        assert_eq!(sse.to_string(), "cpu(isa=sse2, threads=1)");
        assert_eq!(" cpu( threads=1,l2=1024K , isa=sse2 ) ".parse(), Ok(Target::Cpu(sse)));
    }

    #[test]
    fn rates_are_written_in_decimal_units_and_only_where_they_are_known() {
        let text = "cpu(isa=avx2, threads=2, bandwidth=80G, flops.bf16=1T, flops.f32=1500M)";
        let target: Target = text.parse().expect("a target");
        assert_eq!(target.to_string(), text);
        let rates = target.rates();
        assert_eq!((rates.bandwidth, rates.flops(Dtype::F32)), (80_000_000_000, 1_500_000_000));
        assert_eq!((rates.flops(Dtype::BF16), rates.flops(Dtype::F64)), (1_000_000_000_000, 0));
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for (text, expected) in [
            ("", "expected `cpu(isa=.., threads=..)` or `gpu(isa=.., units=..)`"),
            ("cuda(sm=90)", "expected `cpu(isa=.., threads=..)`"),
            ("gpu(isa=sm90)", "expected `units=..`"),
            (
                "gpu(isa=sm90, units=1, threads=2)",
                "expected isa, units, shared, unit.shared, unit.registers, unit.threads, unit.blocks, l2, bandwidth or flops.f32, found `threads`",
            ),
            ("gpu(isa=avx2, units=1)", "expected one of sm80, sm89, sm90, sm100, found `avx2`"),
            ("cpu(isa=avx2, threads=2", "expected `cpu(isa=.., threads=..)`"),
            ("cpu()", "expected `key=value`"),
            ("cpu(isa=avx2)", "expected `threads=..`"),
            ("cpu(threads=1)", "expected `isa=..`"),
            ("cpu(isa=avx3, threads=1)", "expected one of sse2, avx2,"),
            ("cpu(isa=avx2, threads=0)", "expected a number from 1 to 4K, found `0`"),
            ("cpu(isa=avx2, threads=+1)", "found `+1`"),
            ("cpu(isa=avx2, threads=1, l1=0)", "expected a number from 1K to 1024M"),
            ("cpu(isa=avx2, threads=1, l2=9223372036854775807M)", "expected a number from 1K"),
            ("cpu(isa=avx2, threads=1, l2=1G)", "found `1G`"),
            ("cpu(isa=avx2, isa=avx2, threads=1)", "`isa` is given twice"),
            (
                "cpu(isa=avx2, threads=1, l3=1M)",
                "expected isa, threads, l1, l2, bandwidth or flops.f32, found `l3`",
            ),
            ("cpu(isa=avx2, threads=1, flops.bool=1)", "bandwidth or flops.f32, found `flops.bool`"),
            (
                "cpu(isa=avx2, threads=1, bandwidth=9999999T)",
                "expected a rate of at most 1000000T, found `9999999T`",
            ),
            ("cpu(isa=avx2, threads=1, flops.f32=1, flops.f32=2)", "`flops.f32` is given twice"),
        ] {
            let error = text.parse::<Target>().expect_err(text);
            assert_eq!(error.slug, "target-syntax");
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
    }
}
