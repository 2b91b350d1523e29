//! Finds which sizes of its inputs give a program's size symbols their values.

use litz_sym::{Expr, Sym};

use super::{Program, ProgramStep};

/// A size of an input that gives a symbol its value: `(size - rest) / coefficient`, which is a whole number for sizes that the program takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SizeSource {
    /// The symbol.
    pub sym: Sym,
    /// The input, by its position among [`Program::params`].
    pub param: usize,
    /// Its dimension.
    pub dim: usize,
    /// Of symbols that have values before. Where it is 0 the size gives no value.
    pub coefficient: Expr,
    /// What else the size consists of, of symbols that have values before.
    pub rest: Expr,
}

impl Program {
    /// The symbols to which steps of calls give values, in order.
    pub fn late_sizes(&self) -> Vec<Sym> {
        let size =
            |step: &ProgramStep| if let ProgramStep::Size { sym, .. } = step { Some(*sym) } else { None };
        self.steps.iter().filter_map(size).collect()
    }

    /// The symbols that have but one value, with it, but for those to which steps give it.
    pub fn fixed_sizes(&self) -> Vec<(Sym, i64)> {
        let late = self.late_sizes();
        let early = self.facts.symbols().filter(|sym| !late.contains(sym));
        early.filter_map(|sym| Some((sym, self.facts.range_of(sym).single()?))).collect()
    }

    /// A size of an input for every other symbol that inputs can give a value, in an order in which all that each rests on is known.
    pub fn size_sources(&self) -> Vec<SizeSource> {
        let mut known: Vec<Sym> = self.fixed_sizes().into_iter().map(|(sym, _)| sym).collect();
        let mut sources = Vec::new();
        // Sizes that are a symbol alone come first: their errors are the easiest to understand.
        let is_wanted: [fn(Expr) -> bool; 2] = [|size| size.as_sym().is_some(), |_| true];
        for is_wanted in is_wanted {
            while let Some(source) = self.size_source(&known, is_wanted) {
                known.push(source.sym);
                sources.push(source);
            }
        }
        sources
    }

    /// A size that gives one more symbol its value.
    fn size_source(&self, known: &[Sym], is_wanted: fn(Expr) -> bool) -> Option<SizeSource> {
        let sizes = self.params.iter().enumerate().flat_map(|(param, input)| {
            input.ty.sizes.iter().enumerate().map(move |(dim, &size)| (param, dim, size))
        });
        sizes.filter(|&(_, _, size)| is_wanted(size)).find_map(|(param, dim, size)| {
            let mut unknown = size.syms().into_iter().filter(|sym| !known.contains(sym));
            let (Some(sym), None) = (unknown.next(), unknown.next()) else { return None };
            let (coefficient, rest) = size.linear(sym)?;
            Some(SizeSource { sym, param, dim, coefficient, rest })
        })
    }
}
