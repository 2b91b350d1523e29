//! Leaves blocks that stay one team, where two would be in each other's way: where all threads of a block meet, or points use different numbers of a ring's
//! buffers. The text is of one team anyway.

use super::Pass;
use litz_ir::Diag;
use litz_ir::ids::Id;
use litz_ir::kernel::{Kernel, Ring, Roles, used_at_point};
use litz_ir::target::{Persistent, Target};

/// The pass.
pub const PASS: Pass = Pass { name: "teams", run };

fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let Some(stays) = kernel.persistent.filter(|stays| stays.teams > 1) else { return Ok(()) };
    let mut rings = (0..kernel.rings.len()).map(Ring::new);
    let have_parts = Roles::of(kernel).is_some() && rings.all(|ring| used_at_point(kernel, ring).is_some());
    if !have_parts {
        kernel.persistent = Some(Persistent { teams: 1, ..stays });
    }
    Ok(())
}
