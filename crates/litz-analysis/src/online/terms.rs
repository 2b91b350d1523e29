//! Expands what instructions compute into terms over loads, across the nests that pass values on along a column.
//!
//! Terms are hashed by search, as the bodies of nests are short: equal terms are one number, so that two nests which compute
//! the same from the same elements are seen to do so.

use litz_ir::ids::Id;
use litz_ir::loops::{Buf, Inst, InstOp, Nest, Val};
use litz_sym::{Expr, Sym};

/// Terms that a chain may have, so that nests which double each other's bodies end.
const MOST_TERMS: usize = 4096;

/// Expressions of scalars: instructions whose operands are positions of earlier ones. They store nothing.
#[derive(Clone, Default)]
pub struct Terms {
    insts: Vec<Inst>,
}

/// What a load reads where it does not read memory that is there before the chain.
pub trait Sources {
    /// The nest that stores the elements of `buf` that a load reads, the value that it stores, and its axes at the element
    /// with these coordinates; none where the load is a term of its own.
    fn producer(&self, buf: Buf, index: &[Expr]) -> Option<Producer<'_>>;
}

/// See [`Sources::producer`].
pub struct Producer<'a> {
    /// The nest.
    pub nest: &'a Nest,
    /// What it stores.
    pub value: Val,
    /// Values of its axes.
    pub point: Vec<(Sym, Expr)>,
}

impl Terms {
    /// The instruction that a term is.
    pub fn inst(&self, term: Val) -> &Inst {
        &self.insts[term.index()]
    }

    /// What an instruction of a nest computes where axes have the values `point`. None where that is more than operations on loads
    /// of one point.
    pub fn expand(
        &mut self,
        nest: &Nest,
        value: Val,
        point: &[(Sym, Expr)],
        sources: &dyn Sources,
    ) -> Option<Val> {
        let inst = &nest.body[value.index()];
        let at = |e: Expr| e.subst(&|sym| point.iter().find(|axis| axis.0 == sym).map(|axis| axis.1));
        if let InstOp::Load { buf, index, guard, .. } = &inst.op {
            let index: Vec<Expr> = index.iter().map(|&e| at(e)).collect();
            if let Some(Producer { nest, value, point }) = sources.producer(*buf, &index) {
                return if guard.is_empty() { self.expand(nest, value, &point, sources) } else { None };
            }
        }
        let mut term = inst.clone();
        if !term.op.is_term() {
            return None;
        }
        for operand in term.op.operands_mut() {
            *operand = self.expand(nest, *operand, point, sources)?;
        }
        term.op.map_exprs(&mut |e| at(e));
        self.intern(term)
    }

    fn intern(&mut self, term: Inst) -> Option<Val> {
        let known = self.insts.iter().position(|known| *known == term);
        let at = known.unwrap_or_else(|| {
            self.insts.push(term);
            self.insts.len() - 1
        });
        (at < MOST_TERMS).then(|| Val::new(at))
    }
}
