//! Derives how a term changes when a number changes that it is computed with, such as the maximum of a row.
//!
//! ```text
//! x - m            changes by a difference, m0 - m1
//! exp(x - m)       changes by a factor, exp(m0 - m1)
//! exp(x - m) * v   changes by the same factor, whatever v is
//! x / l            changes by a factor, which is the row's: it can be taken out of a sum over x
//! (x - m) * (y - n)  changes by a product, where sums of x - m and of y - n are 0
//! ```
//!
//! Sums of terms that change by a factor change by it as well: what has been added up so far can be corrected, or divided
//! once at the end. Roundings between types are taken for the same before and after.

use super::terms::Terms;
use litz_ir::ScalarOp;
use litz_ir::loops::{InstOp, Val};

/// How a term depends on the numbers of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Form {
    /// It does not.
    Fixed,
    /// It is one of them: the term that loads it.
    Row(Val),
    /// It is the distance of something from one of them.
    Distance(Distance),
    /// It is something fixed, times these.
    Scaled(Vec<Factor>),
    /// It is the product of two distances.
    Product([Distance; 2]),
}

/// `times * (base - row)`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Distance {
    /// A fixed term.
    pub base: Val,
    /// The load of the row's number.
    pub row: Val,
    /// A constant.
    pub times: f64,
}

/// What a term is multiplied by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Factor {
    /// An exponential, to base e or 2 as the operation says.
    Exp(ScalarOp, Distance),
    /// The row's number, which a term loads.
    Times(Val),
    /// One over the row's number, which a term loads.
    Over(Val),
}

/// The form of a term, where it has one. `is_row` says which terms load numbers of the row.
pub fn form(terms: &Terms, term: Val, is_row: &dyn Fn(Val) -> bool) -> Option<Form> {
    let inst = terms.inst(term);
    let of = |operand: &Val| form(terms, *operand, is_row);
    let literal = |operand: &Val| {
        let InstOp::Const(scalar) = terms.inst(*operand).op else { return None };
        Some(scalar.as_f64())
    };
    match &inst.op {
        InstOp::Load { .. } if is_row(term) => Some(Form::Row(term)),
        InstOp::Load { .. } | InstOp::Const(_) | InstOp::Index(_) | InstOp::Cond(_) => Some(Form::Fixed),
        InstOp::Cast(value) => match of(value)? {
            Form::Fixed => Some(Form::Fixed),
            other @ (Form::Row(_) | Form::Distance(_) | Form::Scaled(_) | Form::Product(_)) => {
                (inst.ty.is_float() && terms.inst(*value).ty.is_float()).then_some(other)
            }
        },
        InstOp::Op(op, args) => {
            let forms: Vec<Form> = args.iter().map(of).collect::<Option<_>>()?;
            if forms.iter().all(|form| *form == Form::Fixed) {
                return Some(Form::Fixed);
            }
            match (op, args.as_slice(), forms.as_slice()) {
                (ScalarOp::Sub, [base, _], [Form::Fixed, Form::Row(row)]) => {
                    Some(Form::Distance(Distance { base: *base, row: *row, times: 1.0 }))
                }
                (ScalarOp::Sub, [_, base], [Form::Row(row), Form::Fixed]) => {
                    Some(Form::Distance(Distance { base: *base, row: *row, times: -1.0 }))
                }
                (ScalarOp::Neg, _, [one]) => negated(one.clone()),
                (ScalarOp::Mul, [a, b], [one, other]) => product([one, other], [literal(a), literal(b)]),
                (ScalarOp::Div, [_, by], [one, other]) => quotient(one, other, literal(by)),
                (ScalarOp::Exp | ScalarOp::Exp2, _, [Form::Distance(distance)]) => {
                    Some(Form::Scaled(vec![Factor::Exp(*op, *distance)]))
                }
                (ScalarOp::Select, [_, a, b], [Form::Fixed, one, other]) => {
                    chosen([one, other], [literal(a), literal(b)])
                }
                _ => None,
            }
        }
        InstOp::Bitcast(value) => of(value).filter(|form| *form == Form::Fixed),
        InstOp::Bind { .. }
        | InstOp::Reduce(..)
        | InstOp::ArgReduce { .. }
        | InstOp::Scan { .. }
        | InstOp::Store { .. } => None,
    }
}

fn negated(form: Form) -> Option<Form> {
    match form {
        Form::Distance(distance) => Some(Form::Distance(times(distance, -1.0))),
        Form::Fixed | Form::Scaled(_) => Some(form),
        Form::Row(_) | Form::Product(_) => None,
    }
}

fn times(distance: Distance, by: f64) -> Distance {
    Distance { times: distance.times * by, ..distance }
}

/// The factors of what is multiplied.
fn factors(form: &Form) -> Option<Vec<Factor>> {
    match form {
        Form::Fixed => Some(Vec::new()),
        Form::Row(row) => Some(vec![Factor::Times(*row)]),
        Form::Scaled(factors) => Some(factors.clone()),
        Form::Distance(_) | Form::Product(_) => None,
    }
}

fn product([one, other]: [&Form; 2], literals: [Option<f64>; 2]) -> Option<Form> {
    match ([one, other], literals) {
        ([Form::Row(_), Form::Row(_)], _) => None,
        ([Form::Distance(a), Form::Distance(b)], _) => Some(Form::Product([*a, *b])),
        ([Form::Distance(distance), Form::Fixed], [_, Some(by)])
        | ([Form::Fixed, Form::Distance(distance)], [Some(by), _]) => {
            Some(Form::Distance(times(*distance, by)))
        }
        _ => Some(Form::Scaled([factors(one)?, factors(other)?].concat())),
    }
}

fn quotient(one: &Form, other: &Form, literal: Option<f64>) -> Option<Form> {
    match (one, other, literal) {
        (Form::Distance(distance), Form::Fixed, Some(by)) => Some(Form::Distance(times(*distance, 1.0 / by))),
        (one, Form::Fixed, _) => Some(Form::Scaled(factors(one)?)),
        (one, Form::Row(row), _) => {
            let mut all = factors(one)?;
            all.push(Factor::Over(*row));
            Some(Form::Scaled(all))
        }
        _ => None,
    }
}

/// A choice that does not depend on the row: 0 has any factors.
fn chosen([one, other]: [&Form; 2], literals: [Option<f64>; 2]) -> Option<Form> {
    match ([one, other], literals) {
        ([Form::Scaled(factors), Form::Fixed], [_, Some(0.0)])
        | ([Form::Fixed, Form::Scaled(factors)], [Some(0.0), _]) => Some(Form::Scaled(factors.clone())),
        ([Form::Scaled(a), Form::Scaled(b)], _) if a == b => Some(Form::Scaled(a.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::terms::{Producer, Sources, Terms};
    use super::*;
    use litz_ir::ids::Id;
    use litz_ir::loops::{Buf, Stmt};
    use litz_sym::Expr;

    struct Memory;

    impl Sources for Memory {
        fn producer(&self, _: Buf, _: &[Expr]) -> Option<Producer<'_>> {
            None
        }
    }

    /// The form of the last value of a body, in which `m` and `l` hold numbers of rows.
    fn form_of(body: &str) -> Option<Form> {
        let text = format!(
            "loops @l on cpu {{
              buf x: f32[8, 16] = input
              buf v: f32[8, 16] = input
              buf m: f32[8] = input
              buf l: f32[8] = input
              buf y: f32[8, 16]
              nest n [i in 8, j in 16] {{
                %0: f32 = load x[i, j] %1: f32 = load m[i] %2: f32 = load l[i] %3: f32 = load v[i, j]
                %4: f32 = sub %0, %1 %5: f32 = exp %4 %6: f32 = const 2.0 %7: f32 = const 0.0 %8: bool = lt %3, %7
                {body}
                store y[i, j] = %9
              }}
              return y
            }}"
        );
        let loops = litz_ir::text::loops::parse(&text).unwrap_or_else(|diags| panic!("{}\n{text}", diags[0]));
        let Stmt::Nest(nest) = &loops.stmts[0] else { panic!("expected a nest") };
        let point: Vec<_> = nest.axes.iter().map(|axis| (axis.var, Expr::sym(axis.var))).collect();
        let mut terms = Terms::default();
        let term = terms.expand(nest, Val::new(9), &point, &Memory)?;
        let is_row = |term: Val| {
            let InstOp::Load { buf, .. } = terms.inst(term).op else { return false };
            matches!(&*loops.bufs[buf].name, "m" | "l")
        };
        form(&terms, term, &is_row)
    }

    /// Multiples of distances in a form's exponents, then how often a number of the row is a factor, and divides.
    fn counted(form: Option<Form>) -> Option<(Vec<f64>, usize, usize)> {
        let Some(Form::Scaled(factors)) = form else { return None };
        let exponents = factors.iter().filter_map(|factor| match factor {
            Factor::Exp(_, distance) => Some(distance.times),
            Factor::Times(_) | Factor::Over(_) => None,
        });
        let times = factors.iter().filter(|factor| matches!(factor, Factor::Times(_))).count();
        let over = factors.iter().filter(|factor| matches!(factor, Factor::Over(_))).count();
        Some((exponents.collect(), times, over))
    }

    #[test]
    fn exponentials_of_distances_change_by_a_factor() {
        assert_eq!(counted(form_of("%9: f32 = mul %5, %3")), Some((vec![1.0], 0, 0)));
        assert_eq!(counted(form_of("%9: f32 = select %8, %7, %5")), Some((vec![1.0], 0, 0)));
        assert_eq!(form_of("%9: f32 = select %8, %6, %5"), None, "2 does not change");
        assert_eq!(form_of("%9: f32 = add %5, %3"), None);
        assert_eq!(counted(form_of("%9: f32 = mul %5, %5")), Some((vec![1.0, 1.0], 0, 0)));
    }

    #[test]
    fn distances_may_be_multiplied_before_they_are_exponents() {
        let Some(Form::Distance(distance)) = form_of("%9: f32 = mul %6, %4") else {
            panic!("expected a distance")
        };
        assert_eq!(distance.times, 2.0);
        let Some(Form::Distance(distance)) = form_of("%9: f32 = sub %1, %0") else {
            panic!("expected a distance")
        };
        assert_eq!(distance.times, -1.0);
        let Some(Form::Distance(distance)) = form_of("%9: f32 = div %4, %6") else {
            panic!("expected a distance")
        };
        assert_eq!(distance.times, 0.5);
        assert_eq!(form_of("%9: f32 = mul %3, %4"), None, "the multiple would be each column's own");
    }

    #[test]
    fn numbers_of_a_row_are_factors() {
        assert_eq!(counted(form_of("%9: f32 = mul %3, %2")), Some((vec![], 1, 0)));
        assert_eq!(counted(form_of("%9: f32 = div %5, %2")), Some((vec![1.0], 0, 1)));
        assert_eq!(form_of("%9: f32 = div %2, %5"), None);
        assert_eq!(form_of("%9: f32 = mul %1, %2"), None, "nothing is left to sum");
        assert_eq!(form_of("%9: f32 = log %2"), None);
    }

    #[test]
    fn products_of_distances_and_what_depends_on_no_row() {
        assert!(matches!(form_of("%9: f32 = mul %4, %4"), Some(Form::Product(_))));
        assert_eq!(form_of("%9: f32 = log %3"), Some(Form::Fixed));
    }
}
