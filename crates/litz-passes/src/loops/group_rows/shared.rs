//! Shares what says which rows are in which tile between products of the same groups, as experts have two of.

use litz_analysis::Uses;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_sym::Expr;
use std::collections::HashMap;

/// What tables depend on: two products with equal ones have the same tables.
#[derive(PartialEq)]
pub struct Key {
    /// What says which matrix a row is multiplied by, the value last.
    pub choice: Vec<Inst>,
    /// The axis of rows.
    pub row: Axis,
    /// How many matrices there are.
    pub count: Expr,
    /// Rows of a tile.
    pub height: i64,
    /// What says which rows have a product, where some have none.
    pub kept: Vec<Vec<Inst>>,
}

/// Where tiles begin.
#[derive(Clone, Copy)]
pub struct Tables {
    /// The first row of each group, and the number of all.
    pub starts: Buf,
    /// The number of tiles before each group, and that of all.
    pub tiles: Buf,
    /// The group of each tile.
    pub of: Buf,
    /// The first row of each tile.
    pub first: Buf,
}

/// The instructions that a value of a nest is computed from, the value last.
pub fn computed(nest: &Nest, value: Val) -> Vec<Inst> {
    let mut needed = vec![false; nest.body.len()];
    needed[value.index()] = true;
    let mut insts = Vec::new();
    let mut map = HashMap::new();
    for at in (0..=value.index()).rev() {
        if needed[at] {
            nest.body[at].op.operands().into_iter().for_each(|val| needed[val.index()] = true);
        }
    }
    for at in (0..=value.index()).filter(|&at| needed[at]) {
        let Inst { mut op, ty } = nest.body[at].clone();
        op.operands_mut().into_iter().for_each(|val| *val = map[val]);
        map.insert(Val::new(at), Val::new(insts.len()));
        insts.push(Inst { op, ty });
    }
    insts
}

/// Lets a nest load from the first of the buffers that have the same elements.
pub fn load_first(loops: &Loops, uses: &Uses, nest: &mut Nest) {
    for inst in &mut nest.body {
        if let InstOp::Load { buf, .. } = &mut inst.op {
            *buf = first_like(loops, uses, *buf).unwrap_or(*buf);
        }
    }
}

/// An earlier buffer with the elements of `buf`: a nest computes them in the same way from what is the same at both.
fn first_like(loops: &Loops, uses: &Uses, buf: Buf) -> Option<Buf> {
    let sole = |buf: Buf| sole_writer(loops, uses, buf);
    let (own, nest) = sole(buf)?;
    let body = stores_to(nest, buf)?;
    let is_like = |other: &Nest| {
        (&other.axes, &other.reduced, &other.idle) == (&nest.axes, &nest.reduced, &nest.idle)
            && stores_to(other, buf).is_some_and(|other| other == body)
    };
    let is_kept =
        |from: usize| uses.reads_of(own).iter().all(|&read| uses.writers(read).iter().all(|&at| at < from));
    let data = &loops.bufs[buf];
    (0..own).find_map(|at| {
        let &[other] = uses.writes_of(at) else { return None };
        let there = &loops.bufs[other];
        let is_same = (there.dtype, &there.sizes, &there.strides, there.device)
            == (data.dtype, &data.sizes, &data.strides, data.device);
        let (writer, nest) = sole(other)?;
        (is_same && writer == at && is_kept(at) && is_like(nest)).then_some(other)
    })
}

/// The nest that alone stores to a buffer of the program's own, and its position.
pub fn sole_writer<'a>(loops: &'a Loops, uses: &Uses, buf: Buf) -> Option<(usize, &'a Nest)> {
    let &[writer] = uses.writers(buf) else { return None };
    let Stmt::Nest(nest) = &loops.stmts[writer] else { return None };
    loops.is_internal(buf).then_some((writer, nest))
}

/// The body of a nest of one store, with `buf` as what it stores to.
fn stores_to(nest: &Nest, buf: Buf) -> Option<Vec<Inst>> {
    let mut body = nest.body.clone();
    let mut stores = body.iter_mut().filter_map(|inst| {
        if let InstOp::Store { buf, combine, .. } = &mut inst.op { Some((buf, *combine)) } else { None }
    });
    let ((target, None), None) = (stores.next()?, stores.next()) else { return None };
    *target = buf;
    Some(body)
}
