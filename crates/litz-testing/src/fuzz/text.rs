//! Reads any text as each of the five IRs: what parses prints and parses back, and what verifies runs.

use litz_analysis::legality;
use litz_ir::graph::Device;
use litz_ir::loops::Loops;
use litz_ir::{text, verify};

use crate::fuzz::check;

/// What stands between the loops and a schedule of them.
const NEXT: &str = "\n//---\n";

/// Parses `$text`, and checks that what it says prints and parses back; gives what it says.
macro_rules! round_trip {
    ($ir:ident, $text:expr) => {
        text::$ir::parse($text).ok().inspect(|parsed| {
            let printed = parsed.to_string();
            let again = text::$ir::parse(&printed).unwrap_or_else(|diags| panic!("{}\n{printed}", diags[0]));
            assert_eq!(again.to_string(), printed);
        })
    };
}

/// The bytes are one text, or loops and a schedule of them with `//---` between.
pub fn any_text(bytes: &[u8]) {
    let Ok(source) = std::str::from_utf8(bytes) else { return };
    if let Some((first, second)) = source.split_once(NEXT) {
        return scheduled(first, second, bytes);
    }
    if let Some(graph) = round_trip!(graph, source)
        && verify::graph::verify(&graph).is_empty()
    {
        check::graph(&graph, |loops| Vec::from_iter(check::made_up(loops, bytes)));
    }
    if let Some(loops) = round_trip!(loops, source)
        && verify::loops::verify(&loops).is_empty()
        && let Some(call) = check::made_up(&loops, bytes)
    {
        check::loops(&loops, &call);
    }
    if let Some(schedule) = round_trip!(schedule, source) {
        legality::verify(&schedule, &Loops::new("product", Device::Cpu));
    }
    if let Some(kernel) = round_trip!(kernel, source)
        && verify::kernel::verify(&kernel).is_empty()
    {
        // The reference device may find more than the verifier, but says so.
        let _ = litz_runtime::reference::ReferenceDevice::new(std::slice::from_ref(&kernel));
    }
    if let Some(program) = round_trip!(program, source) {
        verify::program::verify(&program);
    }
}

/// A schedule that verifies can be applied, and gives the numbers of its loops.
fn scheduled(loops: &str, schedule: &str, seed: &[u8]) {
    let (Some(loops), Some(schedule)) = (round_trip!(loops, loops), round_trip!(schedule, schedule)) else {
        return;
    };
    if !verify::loops::verify(&loops).is_empty() || !legality::verify(&schedule, &loops).is_empty() {
        return;
    }
    let Some(call) = check::made_up(&loops, seed) else { return };
    if let Some(realized) = check::realize(&loops, &schedule) {
        check::scheduled(&loops, &realized, &call);
    }
}
