//! Places results of graphs whose sizes the graphs decide: a graph gives what it has in memory that is large enough for any, and how
//! large it is; the caller copies that part.

use super::Lower;
use super::function::Wanted;
use crate::args::Args;
use crate::error::OpError;
use crate::view::ValueAccess;
use litz_ir::Dtype;
use litz_ir::graph::{Graph, TensorType, Type, Value};
use litz_sym::{Clause, Cmp, Expr, Facts, Sym};
use std::collections::HashSet;

/// What one of several graphs gives.
pub struct Results<'a> {
    /// Results that something uses, by position, with the types that the file says.
    stated: Vec<(usize, &'a Type)>,
    /// What the graphs give for them.
    pub wanted: Vec<Wanted>,
    /// Sizes that the graphs decide: of which of the wanted, along which dimension.
    pub sizes: Vec<(usize, usize)>,
}

/// Most elements along a dimension for which memory is kept where a graph may have fewer.
const MAX_END: i64 = 1 << 31;

impl<'a> Results<'a> {
    /// The results of a node that calls one of these graphs.
    pub fn new(lw: &Lower<'_>, args: &Args<'a>, graphs: &[&Graph]) -> Result<Results<'a>, OpError> {
        let count = graphs.iter().map(|graph| graph.outputs.len()).max().unwrap_or(0);
        args.at_most(count)?;
        let stated = |at| Some((at, args.stated(at)?));
        let stated: Vec<(usize, &Type)> = (0..count).filter_map(stated).collect();
        let (mut wanted, mut sizes) = (Vec::new(), Vec::new());
        for &(at, ty) in &stated {
            let mut ty = ty.stored().into_owned();
            let late: Vec<usize> = (0..ty.rank()).filter(|&dim| !lw.is_given(ty.sizes[dim])).collect();
            if !late.is_empty() {
                let mut most = ty.sizes.clone();
                for &dim in &late {
                    let end = end_of_results(lw, graphs, at, (dim, ty.sizes[dim]));
                    most[dim] = end.ok_or_else(|| {
                        args.unsupported(&format!("a result of {ty}, whose size nothing limits"))
                    })?;
                    sizes.push((wanted.len(), dim));
                }
                ty = TensorType::contiguous(ty.dtype, most).on(ty.device);
            }
            wanted.push(Wanted { at, ty, is_part: !late.is_empty() });
        }
        Ok(Results { stated, wanted, sizes })
    }

    /// Buffers for what the graphs give: results, then sizes.
    pub fn buffers(&self, lw: &mut Lower<'_>) -> (Vec<ValueAccess>, Vec<ValueAccess>) {
        let given = self.wanted.iter().map(|wanted| lw.temp_of("result", &wanted.ty)).collect();
        let sizes = self.sizes.iter().map(|_| lw.temp("size", Dtype::I64, &[])).collect();
        (given, sizes)
    }

    /// Gives the node's results their places, and sizes among them their values.
    pub fn give(
        &self,
        lw: &mut Lower<'_>,
        args: &Args<'_>,
        (given, sizes): (Vec<ValueAccess>, Vec<ValueAccess>),
    ) -> Result<(), OpError> {
        for (&(of, dim), number) in self.sizes.iter().zip(&sizes) {
            if let Type::Tensor(ty) = self.stated[of].1 {
                lw.size(ty.sizes[dim], number)?;
            }
        }
        for ((&(at, ty), wanted), access) in self.stated.iter().zip(&self.wanted).zip(given) {
            match ty {
                Type::Int(size) => lw.size(*size, &access)?,
                Type::Tensor(_) if wanted.is_part => {
                    let Some(out) = lw.result(args, at) else { continue };
                    let sizes = out.sizes.clone();
                    lw.nest(&sizes, |b, at| {
                        let value = b.load(&access, at);
                        b.store(&out, at, value);
                        Ok(())
                    })?;
                }
                Type::Tensor(_) | Type::Float | Type::Bool => lw.set_result(args, at, access),
            }
        }
        Ok(())
    }
}

/// What the size of a result along a dimension is at most, whichever graph runs.
fn end_of_results(lw: &Lower<'_>, graphs: &[&Graph], at: usize, (dim, size): (usize, Expr)) -> Option<Expr> {
    let of_graph = |graph: &&Graph| {
        let value: Value = graph.outputs.get(at)?.as_value()?;
        let size = *graph.tensor(value)?.sizes.get(dim)?;
        end(&graph.facts, size, &lw.given)
    };
    let ends: Option<Vec<Expr>> = graphs.iter().map(of_graph).collect();
    let of_graphs = ends.and_then(|ends| ends.into_iter().reduce(Expr::max));
    of_graphs.or_else(|| end(&lw.loops.facts, size, &lw.given))
}

/// What an expression is at most, in terms of the given symbols.
fn end(facts: &Facts, e: Expr, given: &HashSet<Sym>) -> Option<Expr> {
    let mut e = facts.simplify(e);
    while let Some(sym) = e.syms().into_iter().find(|sym| !given.contains(sym)) {
        let (by, rest) = e.linear(sym)?;
        if by.as_int().is_none_or(|by| by < 0) {
            return None;
        }
        let end = end_of(facts, sym, given)?;
        e = facts.simplify(by * end + rest);
    }
    Some(e)
}

/// What a symbol is at most: by a guard, or by its range.
fn end_of(facts: &Facts, sym: Sym, given: &HashSet<Sym>) -> Option<Expr> {
    let by_guard = |clause: &Clause| {
        let [rel] = clause.alternatives() else { return None };
        let less = match rel.cmp {
            Cmp::Le | Cmp::Eq => 0,
            Cmp::Lt => 1,
            Cmp::Ne => return None,
        };
        // by*sym + rest <= 0
        let (by, rest) = (rel.lhs - rel.rhs + less).linear(sym)?;
        let is_end = by.is_one() && rest.syms().iter().all(|sym| given.contains(sym));
        is_end.then_some(-rest)
    };
    let guarded = facts.guards().iter().find_map(|guard| by_guard(&guard.clause));
    let last = facts.range_of(sym).hi;
    guarded.or_else(|| (last <= MAX_END).then(|| Expr::int(last.max(0))))
}
