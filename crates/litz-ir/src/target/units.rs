//! Writes and reads numbers of a target's text in units: bytes in powers of 1024, rates in powers of 1000.

use super::Rates;
use std::fmt;
use std::ops::RangeInclusive;

/// A number of bytes in the largest unit that divides it.
pub(super) struct Bytes(pub(super) i64);

const UNITS: [(&str, i64); 3] = [("M", 1 << 20), ("K", 1 << 10), ("", 1)];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = UNITS.into_iter().find(|unit| self.0 % unit.1 == 0).unwrap_or(("", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

/// A number a second, in the largest decimal unit that divides it.
pub(super) struct Rate(pub(super) u64);

pub(super) const RATE_UNITS: [(&str, i64); 4] =
    [("T", 1_000_000_000_000), ("G", 1_000_000_000), ("M", 1_000_000), ("", 1)];

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |unit: &(&str, i64)| self.0.is_multiple_of(unit.1.unsigned_abs());
        let (name, unit) = RATE_UNITS.into_iter().find(divides).unwrap_or(("", 1));
        write!(f, "{}{name}", self.0 / unit.unsigned_abs())
    }
}

/// Digits, and what they count.
pub(super) fn in_units(text: &str) -> (&str, i64) {
    let found = UNITS.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)));
    found.unwrap_or((text, 1))
}

/// So many units, if that is within the range.
pub(super) fn number(digits: &str, unit: i64, range: RangeInclusive<i64>) -> Result<i64, String> {
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value = digits.parse::<i64>().ok().filter(|_| is_plain).and_then(|n| n.checked_mul(unit));
    let value = value.filter(|value| range.contains(value));
    let bounds = || format!("{} to {}", Bytes(*range.start()), Bytes(*range.end()));
    value.ok_or_else(|| format!("expected a number from {}, found `{digits}`", bounds()))
}

impl Rates {
    /// Writes those that are known, each behind a comma.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bandwidth != 0 {
            write!(f, ", bandwidth={}", Rate(self.bandwidth))?;
        }
        for (dtype, flops) in Rates::DTYPES.into_iter().zip(self.flops).filter(|rate| rate.1 != 0) {
            write!(f, ", flops.{dtype}={}", Rate(flops))?;
        }
        Ok(())
    }
}
