//! Keeps what devices have captured of the plans that a context used last.

use std::collections::VecDeque;
use std::sync::Arc;

use super::plan::Plan;
use crate::device::Recording;

/// Plans whose recordings are kept: those of a model with a few sizes, in turn.
const MOST_PLANS: usize = 16;

/// The recordings of a context, which uses one at a time.
#[derive(Default)]
pub(super) struct Recordings {
    /// By partition; the plan used last is at the end.
    plans: VecDeque<(Arc<Plan>, Vec<Option<Box<dyn Recording>>>)>,
}

impl Recordings {
    /// That of a partition of a plan, if there is one, until [`Recordings::keep`].
    pub(super) fn take(&mut self, plan: &Arc<Plan>, partition: usize) -> Option<Box<dyn Recording>> {
        self.of(plan).get_mut(partition)?.take()
    }

    pub(super) fn keep(&mut self, plan: &Arc<Plan>, partition: usize, recording: Box<dyn Recording>) {
        let kept = self.of(plan);
        kept.resize_with(kept.len().max(partition + 1), || None);
        kept[partition] = Some(recording);
    }

    fn of(&mut self, plan: &Arc<Plan>) -> &mut Vec<Option<Box<dyn Recording>>> {
        let found = self.plans.iter().position(|(other, _)| Arc::ptr_eq(other, plan));
        let own =
            found.and_then(|at| self.plans.remove(at)).unwrap_or_else(|| (Arc::clone(plan), Vec::new()));
        if self.plans.len() >= MOST_PLANS {
            self.plans.pop_front();
        }
        self.plans.push_back(own);
        &mut self.plans.back_mut().expect("invariant: it was just put there").1
    }
}
