//! Keeps rows in tiles between products of the same groups.
//!
//! Experts multiply twice, and what is between the products is computed point by point. Tiles of the second product have the rows that those of the
//! first have, so that it is computed at the points of tiles, and gathered by nobody:
//!
//! ```text
//! y[i, j]     = p[tile of i, place of i, j]
//! z[i, j]     = silu(y[i, j])
//! zs[t, r, j] = z[min(first[t] + r, rows - 1), j]           multiplied next
//!   =>
//! zs[t, r, j] = silu(p[t, r, j])
//! ```
//!
//! Places of a tile that no row has hold other numbers then. They become sums of such places again, which nobody reads.

use super::super::split_reduce::{element, load};
use super::super::{Edits, Names, cse, names};
use super::Grouped;
use super::shared::{Key, Tables, sole_writer};
use super::tiles::{Tiled, exact_type};
use litz_analysis::Uses;
use litz_ir::graph::TensorType;
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest, Stmt};
use litz_sym::{Expr, Sym};
use std::collections::HashMap;

/// Products that have the same tiles.
pub struct Chain {
    /// What the tables depend on.
    pub key: Key,
    /// The tables.
    pub tables: Tables,
    /// How many tiles there are, and rows of a tile.
    sizes: [Expr; 2],
    /// Buffers with a row for each row of the products, and those with the same by tiles, which are there from a position of the program on.
    in_tiles: HashMap<Buf, (Buf, usize)>,
}

/// What statements are made with.
pub struct Making<'a> {
    pub loops: &'a mut Loops,
    pub names: &'a mut Names,
    pub uses: &'a Uses,
    pub edits: &'a mut Edits,
}

impl Chain {
    /// That of no product yet.
    pub fn new(key: Key, tables: Tables, sizes: [Expr; 2]) -> Chain {
        Chain { key, tables, sizes, in_tiles: HashMap::new() }
    }

    /// Notes what tiles have from a position on: the rows that a product multiplies, and its sums, if what it stores is these: but for rows that the
    /// products of the chain leave out, all alike, and nobody reads.
    pub fn add(
        &mut self,
        (loops, uses): (&Loops, &Uses),
        grouped: &Grouped,
        nest: &Nest,
        made: &Tiled,
        at: usize,
    ) {
        // All of a buffer, which no other statement stores to.
        let is_all = |buf: Buf, axes: &[Axis]| {
            axes.iter().map(|axis| axis.extent).eq(loops.bufs[buf].sizes.iter().copied())
        };
        if let Some((buf, own)) = rows_of(grouped, nest)
            && uses.writers(buf).len() <= usize::from(loops.is_internal(buf))
            && is_all(buf, &[&[grouped.row], &own[..]].concat())
        {
            self.in_tiles.entry(buf).or_insert((made.rows, at));
        }
        let axes = [&[grouped.row], &grouped.columns[..]].concat();
        let whole = element(&axes);
        let is_of_row = |at: &Expr| at.syms().iter().all(|&sym| sym == grouped.row.var);
        let kept = self.key.kept.iter().flatten().flat_map(|inst| inst.op.exprs());
        if let Some(InstOp::Store { buf, index, .. }) = nest.body.last().map(|inst| &inst.op)
            && *index == whole
            && uses.writers(*buf) == [at]
            && is_all(*buf, &axes)
            && kept.into_iter().all(|at| is_of_row(&at))
            && exact_type(nest, grouped.sum) == Some(loops.bufs[*buf].dtype)
        {
            self.in_tiles.insert(*buf, (made.product, at));
        }
    }

    /// What has the rows of a product's tiles, where they are computed in tiles, and the axes of a row there.
    pub fn rows(&mut self, cx: &mut Making<'_>, grouped: &Grouped, nest: &Nest) -> Option<(Buf, Vec<Axis>)> {
        let (buf, own) = rows_of(grouped, nest)?;
        Some((self.tiled(cx, buf)?.0, own))
    }

    /// The buffer that has the rows of `buf` by tiles, and from where on. What computes those computes these where it is.
    fn tiled(&mut self, cx: &mut Making<'_>, buf: Buf) -> Option<(Buf, usize)> {
        if let Some(&known) = self.in_tiles.get(&buf) {
            return Some(known);
        }
        let (writer, nest) = sole_writer(cx.loops, cx.uses, buf)?;
        let (nest, row) = (nest.clone(), self.row_of(cx.loops, nest, buf)?);
        let [tile, inside] = [("tile", self.sizes[0]), ("inside", self.sizes[1])].map(|(name, extent)| {
            Axis { var: names::symbol(name, &cx.loops.facts, nest.all_axes()), extent }
        });
        let mut body = nest.body.clone();
        for inst in &mut body {
            let is_of_row = |at: &Expr| at.has_sym(row);
            if matches!(inst.op, InstOp::Store { .. }) || !inst.op.exprs().iter().any(is_of_row) {
                continue;
            }
            let InstOp::Load { buf, index, guard, .. } = &inst.op else { return None };
            let [first, rest @ ..] = &index[..] else { return None };
            if first.as_sym() != Some(row) || rest.iter().any(is_of_row) || !guard.is_empty() {
                return None;
            }
            let index = [&element(&[tile, inside])[..], rest].concat();
            let (own, from) = self.tiled(cx, *buf)?;
            inst.op = (from <= writer).then(|| load(own, index, inst.ty))?;
        }
        let axes: Vec<Axis> = [tile, inside].into_iter().chain(nest.axes[1..].iter().copied()).collect();
        let data = &cx.loops.bufs[buf];
        let sizes = axes.iter().map(|axis| axis.extent).collect();
        let ty = TensorType::contiguous(data.dtype, sizes).on(data.device);
        let name = format!("{}_in_tiles", data.name);
        let made = cx.names.add_buf(cx.loops, &name, ty);
        for inst in &mut body {
            if let InstOp::Store { buf, index, .. } = &mut inst.op {
                (*buf, *index) = (made, element(&axes));
            }
        }
        let name = cx.names.statement(&format!("{}_in_tiles", nest.name));
        let mut of_tiles = Nest { name, axes, body, ..nest };
        cse::clean(&mut of_tiles);
        cx.edits.insert(writer, Stmt::Nest(of_tiles));
        self.in_tiles.insert(buf, (made, writer));
        Some((made, writer))
    }

    /// The axis of the rows of a nest that computes `buf` point by point, each element in its place.
    fn row_of(&self, loops: &Loops, nest: &Nest, buf: Buf) -> Option<Sym> {
        let is_plain = nest.reduced.is_empty() && nest.idle.is_none() && nest.scanned().next().is_none();
        let is_pointwise = |op: &InstOp| {
            matches!(
                op,
                InstOp::Load { .. }
                    | InstOp::Const(_)
                    | InstOp::Op(..)
                    | InstOp::Cast(_)
                    | InstOp::Store { combine: None, .. }
            )
        };
        let mut stores = nest.body.iter().filter_map(|inst| {
            if let InstOp::Store { buf, index, .. } = &inst.op { Some((*buf, index)) } else { None }
        });
        let ((target, index), None) = (stores.next()?, stores.next()) else { return None };
        let row = nest.axes.first()?;
        let sizes = nest.axes.iter().map(|axis| axis.extent);
        let is_whole = target == buf
            && *index == element(&nest.axes)
            && sizes.eq(loops.bufs[buf].sizes.iter().copied())
            && row.extent == self.key.row.extent;
        (is_plain && is_whole && nest.body.iter().all(|inst| is_pointwise(&inst.op))).then_some(row.var)
    }
}

/// The buffer whose rows a product multiplies, each as it is, and the axes of a row.
fn rows_of(grouped: &Grouped, nest: &Nest) -> Option<(Buf, Vec<Axis>)> {
    let InstOp::Load { buf, index, guard, .. } = &nest.body[grouped.operands[0]].op else { return None };
    let [row, own @ ..] = &index[..] else { return None };
    let axis = |at: &Expr| nest.all_axes().find(|axis| at.as_sym() == Some(axis.var)).copied();
    let own: Option<Vec<Axis>> = own.iter().map(axis).collect();
    let is_whole = row.as_sym() == Some(grouped.row.var) && guard.is_empty();
    Some((*buf, own.filter(|_| is_whole)?))
}
