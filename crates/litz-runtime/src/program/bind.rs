//! Binds the inputs of a call to the size symbols, with every check of type, rank, size and guard.

use litz_ir::Dtype;
use litz_ir::program::{Program, SizeSource};
use litz_sym::{Clause, Expr, Rel, Sym};

use crate::error::RunError;
use crate::formula::{Formula, Relation};
use crate::tensor::{Input, TensorView};

/// How symbols get their values. Positions of symbols are those of [`Binder::position`].
pub(super) struct Binder {
    params: Vec<Param>,
    symbols: Vec<Sym>,
    /// Symbols that get values during a call, behind the others.
    late: Vec<Sym>,
    /// Values of symbols that have but one.
    fixed: Vec<i64>,
    solves: Vec<Solve>,
    guards: Vec<Guard>,
}

/// An input that a call must give.
struct Param {
    name: String,
    dtype: Dtype,
    sizes: Vec<(Expr, Formula)>,
}

/// Gives the symbol at the next position the value `(size - rest) / coefficient` of a size.
struct Solve {
    sym: Sym,
    param: usize,
    dim: usize,
    coefficient: Formula,
    rest: Formula,
    lo: i64,
    hi: i64,
}

/// Relations of which one must hold.
pub(super) struct Guard {
    pub(super) alternatives: Vec<Relation>,
    pub(super) text: String,
    pub(super) who: String,
}

impl Guard {
    /// Checks the relations.
    pub(super) fn check(&self, values: &[i64]) -> Result<(), RunError> {
        if self.alternatives.iter().any(|relation| relation.holds(values) == Some(true)) {
            return Ok(());
        }
        // A relation of what overflows, or divides by zero, does not hold.
        let sides = self.alternatives.iter().filter_map(|relation| relation.sides(values)).collect();
        Err(RunError::CheckFailed { condition: self.text.clone(), who: self.who.clone(), sides })
    }
}

/// Makes a guard of a clause of program `name`.
pub(super) fn guard(
    name: &str,
    clause: &Clause,
    who: &str,
    position: &dyn Fn(Sym) -> Option<usize>,
) -> Result<Guard, RunError> {
    let alternatives = clause.alternatives().iter().map(|rel| Relation::new(rel, position));
    let alternatives =
        alternatives.collect::<Result<_, _>>().map_err(|sym| unbound(name, &clause.to_string(), sym))?;
    Ok(Guard { alternatives, text: clause.to_string(), who: who.to_string() })
}

/// The error of an expression with a symbol that has no value.
pub(super) fn unbound(name: &str, text: &str, sym: Sym) -> RunError {
    RunError::bug(
        format!("program @{name}"),
        format!("`{text}` uses symbol {sym}, which no input size gives"),
    )
}

impl Binder {
    /// Finds for every symbol a size of an input that gives it.
    pub(super) fn new(program: &Program) -> Result<Binder, RunError> {
        let (symbols, fixed) = program.fixed_sizes().into_iter().unzip();
        let mut binder = Binder {
            params: Vec::new(),
            symbols,
            late: program.late_sizes(),
            fixed,
            solves: Vec::new(),
            guards: Vec::new(),
        };
        for SizeSource { sym, param, dim, coefficient, rest } in program.size_sources() {
            let formula = |expr: Expr| {
                let made = Formula::new(expr, &|sym| binder.position(sym));
                made.map_err(|sym| unbound(&program.name, &expr.to_string(), sym))
            };
            let (coefficient, rest) = (formula(coefficient)?, formula(rest)?);
            let range = program.facts.range_of(sym);
            binder.solves.push(Solve { sym, param, dim, coefficient, rest, lo: range.lo, hi: range.hi });
            binder.symbols.push(sym);
        }
        let position = |sym| binder.position(sym);
        let mut params = Vec::new();
        for param in &program.params {
            let formula = |&size: &Expr| match Formula::new(size, &position) {
                Ok(formula) => Ok((size, formula)),
                Err(sym) => Err(unbound(&program.name, &size.to_string(), sym)),
            };
            let sizes = param.ty.sizes.iter().map(formula).collect::<Result<_, _>>()?;
            params.push(Param { name: program.slots[param.slot].name.clone(), dtype: param.ty.dtype, sizes });
        }
        let mut guards = Vec::new();
        // Steps check those on sizes that come later.
        let is_late = |clause: &Clause| {
            let exprs = clause.alternatives().iter().flat_map(|rel| [rel.lhs, rel.rhs]);
            exprs.into_iter().any(|e| binder.late.iter().any(|&sym| e.has_sym(sym)))
        };
        for fact in program.facts.guards().iter().filter(|fact| !is_late(&fact.clause)) {
            guards.push(guard(&program.name, &fact.clause, &fact.who, &position)?);
        }
        for solve in &binder.solves {
            let divisor = program.facts.divisor_of(solve.sym);
            if divisor != 1 {
                let rel = Rel::eq(Expr::sym(solve.sym).modulo(divisor), 0);
                guards.push(guard(&program.name, &rel.into(), "the range of the symbol", &position)?);
            }
        }
        Ok(Binder { params, guards, ..binder })
    }

    /// Position of a symbol's value; None if the symbol gets none.
    pub(super) fn position(&self, sym: Sym) -> Option<usize> {
        self.symbols.iter().chain(&self.late).position(|&known| known == sym)
    }

    /// How many symbols inputs give values.
    pub(super) fn known(&self) -> usize {
        self.symbols.len()
    }

    /// Checks the inputs and writes the symbols' values.
    pub(super) fn bind<T: Input>(&self, inputs: &[T], values: &mut Vec<i64>) -> Result<(), RunError> {
        if inputs.len() != self.params.len() {
            return Err(RunError::WrongCount { expected: self.params.len(), found: inputs.len() });
        }
        for (param, input) in self.params.iter().zip(inputs) {
            param.check_type(&input.view())?;
        }
        values.clear();
        values.extend_from_slice(&self.fixed);
        for solve in &self.solves {
            let value = self.solve(solve, inputs[solve.param].view().sizes[solve.dim], values)?;
            values.push(value);
        }
        for (param, input) in self.params.iter().zip(inputs) {
            param.check_sizes(&input.view(), values)?;
        }
        self.guards.iter().try_for_each(|guard| guard.check(values))
    }

    fn solve(&self, solve: &Solve, size: usize, values: &[i64]) -> Result<i64, RunError> {
        let param = &self.params[solve.param];
        let (input, dim) = (|| param.name.clone(), solve.dim);
        let size = size as i64;
        let solution = || {
            let (coefficient, rest) = (solve.coefficient.eval(values)?, solve.rest.eval(values)?);
            let difference = size.checked_sub(rest)?;
            (difference.checked_rem(coefficient)? == 0).then(|| difference / coefficient)
        };
        let Some(value) = solution() else {
            return Err(RunError::WrongSize {
                input: input(),
                dim,
                expected: param.sizes[dim].0.to_string(),
                found: size,
            });
        };
        if value < solve.lo || value > solve.hi {
            let (symbol, lo, hi) = (solve.sym.to_string(), solve.lo, solve.hi);
            return Err(RunError::SizeOutOfRange { input: input(), dim, symbol, lo, hi, found: value });
        }
        Ok(value)
    }
}

impl Param {
    fn check_type(&self, view: &TensorView<'_>) -> Result<(), RunError> {
        let input = || self.name.clone();
        if view.dtype != self.dtype {
            return Err(RunError::WrongDtype { input: input(), expected: self.dtype, found: view.dtype });
        }
        let (expected, found) = (self.sizes.len(), view.sizes.len());
        if expected != found {
            return Err(RunError::WrongRank { input: input(), expected, found });
        }
        Ok(())
    }

    fn check_sizes(&self, view: &TensorView<'_>, values: &[i64]) -> Result<(), RunError> {
        for (dim, ((expr, formula), &found)) in self.sizes.iter().zip(view.sizes).enumerate() {
            let value = formula.eval(values);
            if value.is_some_and(|value| usize::try_from(value) == Ok(found)) {
                continue;
            }
            let expected = match value {
                Some(value) if expr.as_int().is_none() => format!("{expr}, which is {value}"),
                Some(_) | None => expr.to_string(),
            };
            return Err(RunError::WrongSize { input: self.name.clone(), dim, expected, found: found as i64 });
        }
        Ok(())
    }
}
