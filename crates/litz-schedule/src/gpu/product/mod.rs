//! Plans kernels of contractions: the warps of a block sum a tile of the result by instructions, or threads by multiply-adds.
//!
//! What follows at the points of the result goes on with the sums where they are, in registers.

mod plan;
mod problem;
mod stage;
mod tile;
mod warpgroups;

use crate::context::Cx;
use crate::draft::{Draft, Family, Planned, Relation, Traits};
use crate::group::Group;
use crate::join::{align_members, join, overwrites};
use crate::no_fuse::NoFuse;
use litz_analysis::align::DomainMap;
use litz_analysis::contraction::Columns;
use problem::Problem;

pub use problem::columns_of;

/// A contraction, the first member, and what follows at its points.
#[derive(Debug)]
pub struct Product {
    columns: Columns,
}

impl Product {
    /// That of a nest which [`columns_of`] reads as one, if its points have rows and columns.
    pub fn new(cx: &Cx<'_>, group: &Group, columns: &Columns) -> Option<Product> {
        problem(cx, group, columns).map(|_| Product { columns: columns.clone() })
    }
}

impl Family for Product {
    fn traits(&self) -> Traits {
        Traits { passes_on: false, shares_launch: false, overwrites: false }
    }

    fn take(&self, cx: &Cx<'_>, draft: &Draft, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        if cx.contractions[s].is_some() {
            return Err(NoFuse::ProductConsumer);
        }
        // Tiles read what members read at points of other tiles, too.
        if relation != Relation::Behind || overwrites(cx, &draft.group, s) {
            return Err(NoFuse::OtherPoints);
        }
        let mut map = DomainMap::default();
        align_members(cx, &draft.group, s, &draft.group.outer, &mut map);
        let joined = draft.with(join(cx, &draft.group, s, map, true)?);
        // Points that all members walk in another order may leave the product no rows.
        match problem(cx, &joined.group, &self.columns) {
            Some(_) => Ok(joined),
            None => Err(NoFuse::NotAnEpilogue),
        }
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        Some(plan::plan(&problem(cx, group, &self.columns)?))
    }
}

/// The contraction that the first member of a group is, and who sums it. None where its points have no rows and columns.
fn problem<'a>(cx: &'a Cx<'a>, group: &'a Group, columns: &Columns) -> Option<Problem<'a>> {
    Some(warpgroups::if_faster(Problem::new(cx, group, columns)?))
}
