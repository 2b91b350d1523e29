//! Removes statements whose results nobody reads.

use super::Settings;
use litz_ir::loops::{BufKind, Loops, Output};

/// Removes dead statements; returns how many.
pub fn run(loops: &mut Loops, _: &Settings) -> usize {
    let mut live = vec![false; loops.bufs.len()];
    for (id, data) in loops.bufs.iter() {
        live[id.0 as usize] = data.kind != BufKind::Temp;
    }
    for output in &loops.outputs {
        if let Output::View { buf, .. } = output {
            live[buf.0 as usize] = true;
        }
    }
    for (dst, src) in &loops.updates {
        live[dst.0 as usize] = true;
        live[src.0 as usize] = true;
    }
    let mut keep = vec![false; loops.stmts.len()];
    for (i, stmt) in loops.stmts.iter().enumerate().rev() {
        keep[i] = stmt.writes().iter().any(|b| live[b.0 as usize]);
        if keep[i] {
            stmt.reads().iter().for_each(|b| live[b.0 as usize] = true);
        }
    }
    let before = loops.stmts.len();
    let mut kept = keep.into_iter();
    loops.stmts.retain(|_| kept.next().unwrap_or(true));
    before - loops.stmts.len()
}
