//! Compares nests by what they compute, whatever they and the buffers that they touch are called.
//!
//! The layers of a model are alike. Planning a kernel and building it take long, so both are done once for all nests that are alike, and
//! the names of the others are put into the result.

use litz_ir::loops::{Buf, BufData, BufKind, InstOp, Loops, Nest};

/// Nests, and the buffers that they touch, with numbers for names.
#[derive(PartialEq, Debug)]
pub struct Meaning {
    nests: Vec<Nest>,
    bufs: Vec<BufData>,
}

/// What the numbers of a [`Meaning`] stand for: two lists of nests are alike in what has the same place in both.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// Names of the nests.
    pub nests: Vec<String>,
    /// Buffers, in the order in which the nests touch them first.
    pub bufs: Vec<Buf>,
}

impl Meaning {
    /// What nests compute.
    pub fn of<'a>(loops: &Loops, nests: impl IntoIterator<Item = &'a Nest>) -> (Meaning, Numbers) {
        let mut numbers = Numbers { nests: Vec::new(), bufs: Vec::new() };
        let mut nameless = |nest: &Nest| {
            numbers.nests.push(nest.name.clone());
            let mut own = nest.clone();
            own.name.clear();
            own.from.clear();
            for inst in &mut own.body {
                if let InstOp::Load { buf, .. } | InstOp::Store { buf, .. } = &mut inst.op {
                    *buf = Buf(numbers.number_of(*buf));
                }
            }
            own
        };
        let nests = nests.into_iter().map(&mut nameless).collect();
        let data = |buf: &Buf| {
            let mut own = loops.bufs[*buf].clone();
            own.name.clear();
            if let BufKind::Const(parameter) = &mut own.kind {
                parameter.clear();
            }
            own
        };
        (Meaning { nests, bufs: numbers.bufs.iter().map(data).collect() }, numbers)
    }

    /// How many instructions there are: a number by which most of what is not alike is told apart.
    pub fn size(&self) -> usize {
        self.nests.iter().map(|nest| nest.body.len()).sum()
    }
}

impl Numbers {
    /// The number of a buffer, which is a new one the first time.
    fn number_of(&mut self, buf: Buf) -> u32 {
        let known = self.bufs.iter().position(|own| *own == buf);
        let number = known.unwrap_or(self.bufs.len());
        if known.is_none() {
            self.bufs.push(buf);
        }
        u32::try_from(number).expect("invariant: buffers have numbers of 32 bits")
    }

    /// The nest that has the place in `others` which the nest of that name has here.
    pub fn nest_in<'o>(&self, name: &str, others: &'o Numbers) -> Option<&'o str> {
        let at = self.nests.iter().position(|own| own == name)?;
        others.nests.get(at).map(String::as_str)
    }

    /// The buffer that has the place in `others` which that buffer has here.
    pub fn buf_in(&self, buf: Buf, others: &Numbers) -> Option<Buf> {
        let at = self.bufs.iter().position(|own| *own == buf)?;
        others.bufs.get(at).copied()
    }
}
