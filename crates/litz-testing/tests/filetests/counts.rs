//! Holds a kernel to its counts: `counts sectors <= 1.05` says that of no kernel of the given schedule more is taken, over all calls.

use litz_runtime::reference::Counts;

/// A name of a count, and the number.
type Count = (&'static str, fn(&Counts) -> f64);

/// What claims are about.
const COUNTS: [Count; 7] = [
    // Sectors of 32 bytes that accesses to global memory touch, to the fewest that their bytes could be in.
    ("sectors", |counts| counts.sectors().ratio()),
    ("loads", |counts| counts.loads.ratio()),
    ("stores", |counts| counts.stores.ratio()),
    // Rounds of shared memory, to the fewest that have as many words.
    ("banks", |counts| counts.banks.ratio()),
    ("async_bytes", |counts| counts.async_bytes as f64),
    // Bytes of a thread, and of a block.
    ("registers", |counts| counts.register_bytes as f64),
    ("shared", |counts| counts.shared_bytes as f64),
];

/// Checks claims about kernels, each with its name.
pub fn check(claims: &[String], kernels: &[(String, Counts)]) -> Result<(), String> {
    for claim in claims {
        let malformed = || format!("expected `counts NAME <= NUMBER`, found `{claim}`");
        let claimed = claim.strip_prefix("counts ").and_then(|claim| claim.split_once(" <= "));
        let (name, most) = claimed.ok_or_else(malformed)?;
        let most: f64 = most.parse().map_err(|_| malformed())?;
        let count = COUNTS.iter().find(|count| count.0 == name);
        let (_, count) = count.ok_or_else(|| {
            format!("`{claim}`: expected one of {}", COUNTS.map(|count| count.0).join(", "))
        })?;
        for (kernel, counts) in kernels {
            let found = count(counts);
            if found > most {
                return Err(format!("@{kernel}: expected {name} <= {most}, found {found:.4} in {counts:?}"));
            }
        }
    }
    Ok(())
}
