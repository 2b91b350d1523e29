//! Shows what kernels of a GPU would be slow by.

use super::format::{self, Table};
use litz_runtime::reference::{Counts, Served};
use serde_json::json;

/// A line for each kernel that was launched: sectors of global memory and rounds of shared memory with how many times the least they are.
pub fn table(kernels: &[(String, Counts)]) -> String {
    let mut table = Table::new(&[
        "kernel",
        ">launches",
        ">loads",
        ">x least",
        ">stores",
        ">x least",
        ">rounds",
        ">x least",
        ">in background",
        ">registers",
        ">shared",
        "acts",
    ]);
    for (name, counts) in kernels.iter().filter(|(_, counts)| counts.launches > 0) {
        let served = |served: Served| [served.taken.to_string(), format!("{:.2}", served.ratio())];
        let [loads, stores, banks] = [counts.loads, counts.stores, counts.banks].map(served);
        let acts: Vec<String> = counts.acts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let row =
            [vec![name.clone(), counts.launches.to_string()], loads.into(), stores.into(), banks.into()];
        let bytes = [counts.async_bytes, counts.register_bytes, counts.shared_bytes];
        let bytes = bytes.map(|bytes| format::bytes(bytes as f64));
        table.row(row.concat().into_iter().chain(bytes).chain([acts.join(", ")]));
    }
    table.to_string()
}

/// The same.
pub fn to_json(kernels: &[(String, Counts)]) -> serde_json::Value {
    let served = |served: Served| json!({ "taken": served.taken, "least": served.least });
    let of = |(name, counts): &(String, Counts)| {
        json!({
            "kernel": name, "launches": counts.launches, "load_sectors": served(counts.loads),
            "store_sectors": served(counts.stores), "bank_rounds": served(counts.banks), "acts": counts.acts,
            "async_bytes": counts.async_bytes, "register_bytes": counts.register_bytes, "shared_bytes": counts.shared_bytes,
        })
    };
    kernels.iter().filter(|(_, counts)| counts.launches > 0).map(of).collect()
}
