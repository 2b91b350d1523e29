//! Writes how a call gets its sizes from its inputs, with every check of sizes and guards.

use std::collections::HashSet;

use litz_sym::{Clause, Expr, Rel, Sym};

use crate::Unsupported;
use crate::expr::literal;
use crate::names::quoted;
use crate::scope::Scope;

/// Writes the beginning of a program: values of symbols, checks of sizes and guards.
pub(crate) fn bind(scope: &mut Scope<'_>) -> Result<(), Unsupported> {
    let program = scope.program;
    let late: HashSet<Sym> = program.late_sizes().into_iter().collect();
    for sym in program.facts.symbols().filter(|sym| !late.contains(sym)) {
        if let Some(value) = program.facts.range_of(sym).single() {
            let text = literal(value);
            scope.sizes.name(sym, if value < 0 { format!("({text})") } else { text });
            scope.learn(sym);
        }
    }
    let mut solved = Vec::new();
    // Sizes that are a symbol alone come first: their errors are the easiest to understand.
    for is_wanted in [|size: Expr| size.as_sym().is_some(), |_: Expr| true] {
        while let Some(solve) = find(scope, is_wanted) {
            solve.write(scope);
            solved.push(solve);
        }
    }
    for (at, param) in program.params.iter().enumerate() {
        for (dim, &size) in param.ty.sizes.iter().enumerate() {
            let is_given =
                |solve: &Solve| (solve.param, solve.dim) == (at, dim) && size.as_sym() == Some(solve.sym);
            if solved.iter().any(is_given) {
                continue;
            }
            if !scope.knows_all([&size]) {
                return Err(Unsupported(format!("no input size gives the symbols of `{size}`")));
            }
            let (value, text) = (scope.sizes.write(size), quoted(&size.to_string()));
            scope.step(format!(
                "litz_expect(call, {at}, {dim}, {value}, {text}, {})",
                size.as_int().is_some()
            ));
        }
    }
    // Steps check those on sizes that come later.
    for fact in program.facts.guards() {
        if scope.knows_all(sides(&fact.clause)) {
            check(scope, &fact.clause, &fact.who);
        }
    }
    for solve in &solved {
        let divisor = program.facts.divisor_of(solve.sym);
        if divisor != 1 {
            check(scope, &Rel::eq(Expr::sym(solve.sym).modulo(divisor), 0).into(), "the range of the symbol");
        }
    }
    Ok(())
}

fn sides(clause: &Clause) -> impl Iterator<Item = &Expr> {
    clause.alternatives().iter().flat_map(|rel| [&rel.lhs, &rel.rhs])
}

/// Writes a check of a condition on sizes.
pub(crate) fn check(scope: &mut Scope<'_>, clause: &Clause, who: &str) {
    let condition = scope.sizes.holds(clause);
    let (text, who) = (quoted(&clause.to_string()), quoted(who));
    let sides = match clause.alternatives() {
        [rel] => format!("1, {}", scope.sizes.array(&[rel.lhs, rel.rhs])),
        _ => "0, NULL".to_owned(),
    };
    scope.line(format!("if (!({condition})) {{"));
    scope.line(format!("  return litz_check_failed(call, {text}, {who}, {sides});"));
    scope.line("}");
}

/// Gives a symbol the value `(size - rest) / coefficient` of a size of an input.
struct Solve {
    sym: Sym,
    param: usize,
    dim: usize,
    size: Expr,
    coefficient: Expr,
    rest: Expr,
}

fn find(scope: &Scope<'_>, is_wanted: fn(Expr) -> bool) -> Option<Solve> {
    for (param, data) in scope.program.params.iter().enumerate() {
        for (dim, &size) in data.ty.sizes.iter().enumerate().filter(|(_, size)| is_wanted(**size)) {
            let mut unknown = size.syms().into_iter().filter(|&sym| !scope.knows(sym));
            let (Some(sym), None) = (unknown.next(), unknown.next()) else { continue };
            if let Some((coefficient, rest)) = size.linear(sym) {
                return Some(Solve { sym, param, dim, size, coefficient, rest });
            }
        }
    }
    None
}

impl Solve {
    fn write(&self, scope: &mut Scope<'_>) {
        let Solve { sym, param, dim, size, coefficient, rest } = *self;
        let name = scope.size(sym);
        if size.as_sym().is_some() {
            scope.line(format!("const int64_t {name} = litz_size_of(call, {param}, {dim});"));
        } else {
            let [coefficient, rest] = [coefficient, rest].map(|expr| scope.sizes.write(expr));
            let text = quoted(&size.to_string());
            scope.line(format!("int64_t {name};"));
            scope.step(format!("litz_solve(call, {param}, {dim}, {coefficient}, {rest}, {text}, &{name})"));
        }
        let range = scope.program.facts.range_of(sym);
        let (symbol, lo, hi) = (quoted(sym.name()), literal(range.lo), literal(range.hi));
        scope.step(format!("litz_in_range(call, {param}, {dim}, {symbol}, {lo}, {hi}, {name})"));
        scope.learn(sym);
    }
}
