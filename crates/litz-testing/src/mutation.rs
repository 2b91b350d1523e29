//! Changes a schedule in one place, so that what comes of it may or may not be legal any more.
//!
//! Each kind of change is drawn from decisions, so that those of a run can be repeated and shrunk. The first option of a
//! decision is the one that the verifier is likelier to accept.

mod binding;
mod branches;
mod copies;
mod kernels;
mod loops;
mod memory;
mod tree;

use litz_ir::loops::Loops;
use litz_ir::schedule::Schedule;

use crate::choices::Choices;

/// A kind of change.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What lists of kinds call it.
    pub name: &'static str,
    change: fn(&mut Schedule, &Loops, &mut Choices<'_>) -> Option<()>,
}

/// All kinds of changes.
pub const KINDS: &[Kind] = &[
    Kind { name: "swap-neighbours", change: tree::swap_neighbours },
    Kind { name: "move-into-loop", change: tree::move_in },
    Kind { name: "move-out-of-loop", change: tree::move_out },
    Kind { name: "fuse-loops", change: tree::fuse },
    Kind { name: "cut-loop-in-two", change: tree::cut },
    Kind { name: "permute-loops", change: tree::permute },
    Kind { name: "drop-leaf", change: tree::drop_leaf },
    Kind { name: "duplicate-leaf", change: tree::duplicate_leaf },
    Kind { name: "split-loop", change: loops::split },
    Kind { name: "other-block-width", change: loops::other_width },
    Kind { name: "other-extent", change: loops::other_extent },
    Kind { name: "other-kind", change: loops::other_kind },
    Kind { name: "from-grid", change: loops::from_grid },
    Kind { name: "to-grid", change: loops::to_grid },
    Kind { name: "permute-grid", change: loops::permute_grid },
    Kind { name: "other-coefficient", change: binding::other_coefficient },
    Kind { name: "other-offset", change: binding::other_offset },
    Kind { name: "other-variable", change: binding::other_variable },
    Kind { name: "swap-bindings", change: binding::swap_bindings },
    Kind { name: "reverse", change: binding::reverse },
    Kind { name: "change-block", change: binding::change_block },
    Kind { name: "change-condition", change: branches::change_condition },
    Kind { name: "drop-body", change: branches::drop_body },
    Kind { name: "add-condition", change: branches::add_condition },
    Kind { name: "peel-loop", change: branches::peel },
    Kind { name: "change-mask", change: branches::change_mask },
    Kind { name: "change-scope", change: memory::change_scope },
    Kind { name: "change-layout", change: memory::change_layout },
    Kind { name: "change-space", change: memory::change_space },
    Kind { name: "make-local", change: memory::make_local },
    Kind { name: "drop-local", change: memory::drop_local },
    Kind { name: "copy-buffer", change: copies::copy_buffer },
    Kind { name: "pass-result", change: copies::pass_result },
    Kind { name: "change-offset", change: memory::change_offset },
    Kind { name: "change-pool", change: memory::change_pool },
    Kind { name: "change-place", change: memory::change_place },
    Kind { name: "change-reuse", change: memory::change_reuse },
    Kind { name: "add-reuse", change: memory::add_reuse },
    Kind { name: "swap-steps", change: kernels::swap_steps },
    Kind { name: "merge-kernels", change: kernels::merge },
    Kind { name: "share-grid", change: kernels::share_grid },
    Kind { name: "split-kernel", change: kernels::split },
    Kind { name: "move-to-kernel", change: kernels::move_leaf },
    Kind { name: "at-load", change: kernels::at_load },
];

impl Kind {
    /// The schedule with a change of this kind. None where it has nothing to change so.
    pub fn of(self, schedule: &Schedule, loops: &Loops, choices: &mut Choices<'_>) -> Option<Schedule> {
        let mut changed = schedule.clone();
        (self.change)(&mut changed, loops, choices)?;
        (changed != *schedule).then_some(changed)
    }
}
