//! Finds grid points that race: points of a grid run in any order and at once, so that none may touch what another writes.

/// What a point does to an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touch {
    Read,
    /// A read of what a store combines with.
    Fetch,
    /// A read of what a lane of the warp has, which may be another.
    Exchange,
    Write,
    /// A combining store that is atomic: others may combine into the element, too.
    Combine,
}

/// The points that read, wrote and combined into an element: [`NOBODY`], a number from 1, or [`SEVERAL`].
#[derive(Clone, Copy, Default)]
struct Trace {
    read: u32,
    written: u32,
    combined: u32,
}

const NOBODY: u32 = 0;
const SEVERAL: u32 = u32::MAX;

/// Who touched the elements of the memories that a launch writes.
#[derive(Default)]
pub(super) struct Traces {
    /// By memory; empty for those that are not written, and where the grid has one point.
    elements: Vec<Vec<Trace>>,
    /// The point that runs.
    point: u32,
}

impl Traces {
    /// Forgets all. `elements` says of each memory how many are watched.
    pub(super) fn start(&mut self, elements: impl Iterator<Item = usize>) {
        self.point = NOBODY;
        self.elements.iter_mut().for_each(Vec::clear);
        for (at, count) in elements.enumerate() {
            if at == self.elements.len() {
                self.elements.push(Vec::new());
            }
            self.elements[at].resize(count, Trace::default());
        }
    }

    /// The next point begins.
    pub(super) fn next_point(&mut self) {
        self.point = (self.point + 1).min(SEVERAL - 1);
    }

    /// Notes what the point does. False where that races with another point.
    #[must_use]
    pub(super) fn touch(&mut self, mem: usize, at: usize, touch: Touch) -> bool {
        let point = self.point;
        let Some(trace) = self.elements.get_mut(mem).and_then(|mem| mem.get_mut(at)) else { return true };
        let is_others = |who: u32| who != NOBODY && who != point;
        let (slot, races) = match touch {
            Touch::Read | Touch::Fetch | Touch::Exchange => {
                (&mut trace.read, is_others(trace.written) || is_others(trace.combined))
            }
            Touch::Write => {
                let races = [trace.read, trace.written, trace.combined].into_iter().any(is_others);
                (&mut trace.written, races)
            }
            Touch::Combine => (&mut trace.combined, is_others(trace.read) || is_others(trace.written)),
        };
        *slot = if is_others(*slot) { SEVERAL } else { point };
        !races
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether points, numbered from 1, race when they touch one element in this order.
    fn race(touches: &[(u32, Touch)]) -> bool {
        let mut traces = Traces::default();
        traces.start([1].into_iter());
        touches.iter().any(|&(point, touch)| {
            traces.point = point;
            !traces.touch(0, 0, touch)
        })
    }

    #[test]
    fn one_point_does_what_it_likes_and_several_may_read_or_combine() {
        use Touch::{Combine, Read, Write};
        assert!(!race(&[(1, Write), (1, Read), (1, Combine), (1, Write)]));
        assert!(!race(&[(1, Read), (2, Read), (1, Read)]));
        assert!(!race(&[(1, Combine), (2, Combine), (1, Combine)]));
        for (a, b) in [(Write, Write), (Write, Read), (Read, Write), (Combine, Read), (Write, Combine)] {
            assert!(race(&[(1, a), (2, b)]), "{a:?} and {b:?}");
        }
        assert!(race(&[(1, Read), (2, Read), (2, Write)]), "an earlier reader is remembered");
    }
}
