//! Leaves statements to routines of the runtime and operators of the host.

use crate::context::Cx;
use crate::draft::{Family, Planned, Traits};
use crate::group::Group;
use crate::no_fuse::NoFuse;

/// A routine of the runtime or an operator of the host, alone.
#[derive(Debug)]
pub struct Routine;

impl Family for Routine {
    fn traits(&self) -> Traits {
        Traits { passes_on: false, shares_launch: false, overwrites: false }
    }

    fn closed(&self) -> Option<NoFuse> {
        Some(NoFuse::Extern)
    }

    fn plan(&self, _: &Cx<'_>, _: &Group) -> Option<Planned> {
        None
    }
}
