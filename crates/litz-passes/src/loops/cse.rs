//! Makes equal instructions of one body one, and drops those nothing uses.

use litz_ir::loops::{Inst, InstOp, Nest, Val};

/// Cleans the body of a nest.
pub fn clean(nest: &mut Nest) {
    let mut body: Vec<Inst> = Vec::with_capacity(nest.body.len());
    let mut map: Vec<Val> = Vec::with_capacity(nest.body.len());
    for mut inst in std::mem::take(&mut nest.body) {
        inst.op.operands_mut().into_iter().for_each(|v| *v = map[v.0 as usize]);
        let pure = !matches!(inst.op, InstOp::Store { .. } | InstOp::Bind { .. });
        // A buffer stored to by this nest may change between two loads of it.
        let stored = |inst: &Inst| {
            let InstOp::Load { buf, .. } = &inst.op else { return false };
            body.iter().any(|i| matches!(&i.op, InstOp::Store { buf: b, .. } if b == buf))
        };
        match body.iter().position(|i| *i == inst).filter(|_| pure && !stored(&inst)) {
            Some(at) => map.push(Val(at as u32)),
            None => {
                map.push(Val(body.len() as u32));
                body.push(inst);
            }
        }
    }
    nest.body = body;
    sweep(nest);
}

/// Drops instructions without effect whose results nothing uses.
fn sweep(nest: &mut Nest) {
    let mut used = vec![false; nest.body.len()];
    for (i, inst) in nest.body.iter().enumerate().rev() {
        used[i] |= matches!(inst.op, InstOp::Store { .. } | InstOp::Bind { .. });
        if used[i] {
            inst.op.operands().iter().for_each(|v| used[v.0 as usize] = true);
        }
    }
    let mut map = vec![Val(0); nest.body.len()];
    let mut body = Vec::with_capacity(nest.body.len());
    for (i, mut inst) in std::mem::take(&mut nest.body).into_iter().enumerate() {
        if used[i] {
            inst.op.operands_mut().into_iter().for_each(|v| *v = map[v.0 as usize]);
            map[i] = Val(body.len() as u32);
            body.push(inst);
        }
    }
    nest.body = body;
}
