//! Lets results pass through memory of a kernel on their way to buffers, where a schedule says so.
//!
//! The nest that stores to the buffer stores to one of the memory's name instead, and a nest behind it, of that name as well, copies every
//! element to the buffer. The program means the same: whether a leaf finds what it stores is proved as for any other local buffer.
//!
//! ```text
//! nest relu [i in n, j in m] { .. store y[i, j] = %1 }      // shared y_tile to y
//!
//! nest relu [i in n, j in m] { .. store y_tile[i, j] = %1 }
//! nest y_tile [d0 in n, d1 in m] { %0: f32 = load y_tile[d0, d1]  store y[d0, d1] = %0 }
//! ```

use std::borrow::Cow;

use litz_ir::loops::{Buf, InstOp, Loops, Nest, Stmt};
use litz_ir::schedule::{Local, Schedule};

use crate::copies::{beside, copying, declared};

/// The program with results on their way to buffers. One to a buffer that there is not, that several nests store to, one of a region,
/// or one that adds to what is there, and one under a name that is taken, is left out.
pub fn with_results<'l>(loops: &'l Loops, schedule: &Schedule) -> Cow<'l, Loops> {
    let mut changed = Cow::Borrowed(loops);
    for (name, of) in declared(schedule, |local: &Local| local.buffer().zip(local.result())) {
        let is_taken = changed.stmts.iter().flat_map(Stmt::nests).any(|nest| nest.name == name)
            || changed.stmts.iter().any(|stmt| stmt.name() == name)
            || changed.bufs.values().any(|data| data.name == name);
        let Some(buf) = changed.bufs.iter().find(|(_, data)| data.name == of).map(|(buf, _)| buf) else {
            continue;
        };
        let Some(writer) = stored_once(&changed, buf).filter(|_| !is_taken) else { continue };
        let loops = changed.to_mut();
        let held = beside(loops, buf, name);
        if let Stmt::Nest(nest) = &mut loops.stmts[writer] {
            for inst in &mut nest.body {
                if let InstOp::Store { buf: stored, .. } = &mut inst.op
                    && *stored == buf
                {
                    *stored = held;
                }
            }
        }
        let nest = copying(loops, held, buf, name);
        loops.stmts.insert(writer + 1, Stmt::Nest(nest));
    }
    changed
}

/// The position of the one statement that stores to a buffer, if it is a nest that stores each of its elements there once.
pub fn stored_once(loops: &Loops, buf: Buf) -> Option<usize> {
    let mut writers = loops.stmts.iter().enumerate().filter(|(_, stmt)| stmt.writes().contains(&buf));
    let (Some((at, Stmt::Nest(nest))), None) = (writers.next(), writers.next()) else { return None };
    stores_once(nest, buf).then_some(at)
}

fn stores_once(nest: &Nest, buf: Buf) -> bool {
    let mut stores = nest.body.iter().filter_map(|inst| {
        let InstOp::Store { buf: stored, combine, .. } = &inst.op else { return None };
        (*stored == buf).then_some(combine.is_none())
    });
    stores.next() == Some(true) && stores.next().is_none()
}
