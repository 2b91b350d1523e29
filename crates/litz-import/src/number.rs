//! Evaluates symbolic arithmetic as Python and sympy do, floats included, to exact integer expressions and relations.
//!
//! Sizes may pass through floats on their way (`int(n * 1.5)`). A float is kept as an exact quotient of an integer
//! expression and a positive constant, which rounding back to an integer turns into a floor division. That is right
//! as long as Python's own float arithmetic is exact, so constants must be short binary fractions, and a quotient
//! like `n / 3` may only be rounded or compared, not computed with.

use litz_sym::{Clause, Expr, Rel};

/// Why an expression has no value here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Problem {
    /// The named function or feature has no exact integer meaning.
    Unsupported(String),
    /// The expression is wrong in itself.
    Bad(String),
}

/// A number or a truth value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    Number(Ratio),
    /// All of these hold.
    Truth(Vec<Clause>),
}

/// `numerator / denominator`; integers have denominator 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Ratio {
    numerator: Expr,
    /// Positive.
    denominator: i64,
}

/// Bits after the binary point of a float constant.
const FRACTION_BITS: u32 = 8;
/// Significant bits of a float constant: a product with a size below 2^32 then fits the 53 bits of a double.
const SIGNIFICANT_BITS: u32 = 20;
/// Largest float constant.
const MAX_CONSTANT: f64 = (1u64 << 40) as f64;
/// Largest number of tree nodes of an expression, and of products when two sums are multiplied out. Real programs
/// stay below a hundred; the limit keeps hostile ones from growing exponentially.
const MAX_SIZE: usize = 4096;
/// Largest constant exponent.
const MAX_EXPONENT: i64 = 16;
/// Most relations of a condition, where it is written as clauses that all hold. Conditions of real programs have a
/// few; the limit keeps nested ones from growing exponentially.
const MAX_RELATIONS: usize = 256;

impl Ratio {
    pub(crate) fn int(value: i64) -> Ratio {
        Ratio::from(Expr::int(value))
    }

    /// A float constant.
    pub(crate) fn float(value: f64) -> Result<Ratio, Problem> {
        let scaled = value * f64::from(1u32 << FRACTION_BITS);
        let inexact = || Problem::Unsupported(format!("the float {value}"));
        if !(scaled.fract() == 0.0 && value.abs() <= MAX_CONSTANT) {
            return Err(inexact());
        }
        let scaled = scaled as i64;
        if scaled != 0 && scaled.unsigned_abs() >> scaled.trailing_zeros() >= 1 << SIGNIFICANT_BITS {
            return Err(inexact());
        }
        Ratio::quotient(Expr::int(scaled), 1 << FRACTION_BITS)
    }

    /// The integer expression, unless there is a fraction.
    pub(crate) fn as_expr(self) -> Option<Expr> {
        (self.denominator == 1).then_some(self.numerator)
    }

    /// `numerator / denominator`, the constants cancelled.
    fn quotient(numerator: Expr, denominator: i64) -> Result<Ratio, Problem> {
        if denominator == 0 || denominator == i64::MIN {
            return Err(Problem::Bad("division by zero".to_owned()));
        }
        let (numerator, denominator) = if denominator < 0 {
            (multiply(numerator, Expr::int(-1))?, -denominator)
        } else {
            (numerator, denominator)
        };
        let shared = numerator.terms().map(|(coefficient, _)| coefficient).fold(numerator.constant(), gcd);
        let shared = gcd(shared, denominator).max(1);
        let numerator = if shared == 1 { numerator } else { numerator.floordiv(shared) };
        Ok(Ratio { numerator, denominator: denominator / shared })
    }

    /// Both numerators over one denominator.
    fn align(self, other: Ratio) -> Result<(Expr, Expr, i64), Problem> {
        if self.denominator == other.denominator {
            return Ok((self.numerator, other.numerator, self.denominator));
        }
        let shared = gcd(self.denominator, other.denominator);
        let (left, right) = (other.denominator / shared, self.denominator / shared);
        let denominator = self.denominator.checked_mul(left).ok_or_else(too_large)?;
        Ok((
            multiply(self.numerator, Expr::int(left))?,
            multiply(other.numerator, Expr::int(right))?,
            denominator,
        ))
    }

    /// Refuses a quotient that a double cannot hold exactly.
    fn exact(self) -> Result<Ratio, Problem> {
        if self.denominator.count_ones() == 1 && self.denominator <= 1 << (2 * FRACTION_BITS) {
            return Ok(self);
        }
        Err(Problem::Unsupported(format!("arithmetic on a quotient by {}", self.denominator)))
    }

    fn floor(self) -> Expr {
        self.numerator.floordiv(self.denominator)
    }

    fn ceil(self) -> Expr {
        self.numerator.ceildiv(self.denominator)
    }

    /// Rounds towards zero.
    fn trunc(self) -> Expr {
        if self.denominator == 1 {
            return self.numerator;
        }
        let magnitude = |sign: i64| (self.numerator * sign).max(0).floordiv(self.denominator);
        magnitude(1) - magnitude(-1)
    }
}

impl From<Expr> for Ratio {
    fn from(expr: Expr) -> Ratio {
        Ratio { numerator: expr, denominator: 1 }
    }
}

impl Value {
    /// A condition that always holds.
    pub(crate) const TRUE: Value = Value::Truth(Vec::new());

    /// A condition that never holds.
    pub(crate) fn never() -> Value {
        Value::relation(Rel::eq(0, 1))
    }

    fn relation(rel: Rel) -> Value {
        Value::Truth(vec![rel.into()])
    }

    pub(crate) fn number(&self) -> Result<Ratio, Problem> {
        match self {
            Value::Number(ratio) => Ok(*ratio),
            Value::Truth(_) => Err(Problem::Bad("expected a number, found a truth value".to_owned())),
        }
    }

    pub(crate) fn truth(self) -> Result<Vec<Clause>, Problem> {
        match self {
            Value::Truth(clauses) => Ok(clauses),
            Value::Number(_) => Err(Problem::Bad("expected a truth value, found a number".to_owned())),
        }
    }

    fn expr(&self) -> Result<Expr, Problem> {
        self.number()?
            .as_expr()
            .ok_or_else(|| Problem::Bad("expected an integer, found a fraction".to_owned()))
    }
}

/// Applies a function by the name sympy gives it.
pub(crate) fn apply(head: &str, args: &[Value]) -> Result<Value, Problem> {
    let compare = |rel: fn(Expr, Expr) -> Rel| {
        let [a, b] = operands(head, args)?;
        let (a, b, _) = a.number()?.align(b.number()?)?;
        Ok(Value::relation(rel(a, b)))
    };
    let ratio = match head {
        "Add" => fold(args, Ratio::int(0), |a, b| {
            let (a, b, denominator) = a.exact()?.align(b.exact()?)?;
            Ratio::quotient(a + b, denominator)
        })?,
        "Mul" => fold(args, Ratio::int(1), product)?,
        "Min" => extremum(head, args, |a, b| a.min(b))?,
        "Max" => extremum(head, args, |a, b| a.max(b))?,
        "Pow" | "PowByNatural" => power(head, args)?,
        "IntTrueDiv" | "FloatTrueDiv" => {
            let [a, b] = operands(head, args)?;
            divide(head, a.number()?, b.number()?)?
        }
        "FloorDiv" | "CleanDiv" => {
            let [a, b] = operands(head, args)?;
            a.expr()?.floordiv(divisor(b)?).into()
        }
        "CeilDiv" => {
            let [a, b] = operands(head, args)?;
            a.expr()?.ceildiv(divisor(b)?).into()
        }
        "Mod" | "PythonMod" => {
            let [a, b] = operands(head, args)?;
            a.expr()?.modulo(divisor(b)?).into()
        }
        "ModularIndexing" => {
            let [base, step, modulus] = operands(head, args)?;
            base.expr()?.floordiv(divisor(step)?).modulo(divisor(modulus)?).into()
        }
        "LShift" => {
            let [a, b] = operands(head, args)?;
            multiply(a.expr()?, Expr::int(power_of_two(head, b)?))?.into()
        }
        "RShift" => {
            let [a, b] = operands(head, args)?;
            a.expr()?.floordiv(power_of_two(head, b)?).into()
        }
        "FloorToInt" | "floor" => one(head, args)?.floor().into(),
        "CeilToInt" | "ceiling" => one(head, args)?.ceil().into(),
        "TruncToInt" | "TruncToFloat" => one(head, args)?.trunc().into(),
        "ToFloat" | "Identity" => one(head, args)?,
        "Abs" => {
            let Ratio { numerator, denominator } = one(head, args)?;
            Ratio { numerator: numerator.max(numerator * -1), denominator }
        }
        "Equality" | "Eq" => return compare(Rel::eq),
        "Unequality" | "Ne" => return compare(Rel::ne),
        "StrictLessThan" => return compare(Rel::lt),
        "LessThan" => return compare(Rel::le),
        "StrictGreaterThan" => return compare(Rel::gt),
        "GreaterThan" => return compare(Rel::ge),
        "And" => {
            let all = args.iter().cloned().map(Value::truth).collect::<Result<Vec<_>, _>>()?;
            return bounded(all.concat()).map(Value::Truth);
        }
        "Or" => return any(args),
        "Not" => {
            let [a] = operands(head, args)?;
            // not (a or b) and not (c or d) is one of: not a and not b, not c and not d.
            let clauses = a.clone().truth()?;
            let negated = |clause: &Clause| {
                Value::Truth(clause.alternatives().iter().map(|rel| rel.negate().into()).collect())
            };
            return any(&clauses.iter().map(negated).collect::<Vec<_>>());
        }
        _ => return Err(Problem::Unsupported(head.to_owned())),
    };
    let size = ratio.numerator.size() as usize;
    if size > MAX_SIZE { Err(too_large()) } else { Ok(Value::Number(ratio)) }
}

/// One of the conditions holds: each clause of one together with each of every other.
fn any(conditions: &[Value]) -> Result<Value, Problem> {
    let Some((first, others)) = conditions.split_first() else { return Ok(Value::never()) };
    let mut clauses = first.clone().truth()?;
    for other in others {
        let other = other.clone().truth()?;
        let pairs = clauses.iter().flat_map(|one| other.iter().map(move |other| (one, other)));
        let joined = |(one, other): (&Clause, &Clause)| {
            Clause::new(one.alternatives().iter().chain(other.alternatives()).copied())
        };
        clauses = bounded(pairs.map(joined).collect())?;
    }
    Ok(Value::Truth(clauses))
}

/// Refuses a condition that is too large. Joining two that are not stays cheap.
fn bounded(clauses: Vec<Clause>) -> Result<Vec<Clause>, Problem> {
    let relations: usize = clauses.iter().map(|clause| clause.alternatives().len()).sum();
    if relations > MAX_RELATIONS { Err(too_large()) } else { Ok(clauses) }
}

fn operands<'a, const N: usize>(head: &str, args: &'a [Value]) -> Result<&'a [Value; N], Problem> {
    args.try_into()
        .map_err(|_| Problem::Bad(format!("expected {N} operands of {head}, found {}", args.len())))
}

fn one(head: &str, args: &[Value]) -> Result<Ratio, Problem> {
    let [a] = operands(head, args)?;
    a.number()
}

fn fold(
    args: &[Value],
    first: Ratio,
    step: impl Fn(Ratio, Ratio) -> Result<Ratio, Problem>,
) -> Result<Ratio, Problem> {
    args.iter().try_fold(first, |sum, arg| step(sum, arg.number()?))
}

fn extremum(head: &str, args: &[Value], pick: impl Fn(Expr, Expr) -> Expr) -> Result<Ratio, Problem> {
    let (first, rest) =
        args.split_first().ok_or_else(|| Problem::Bad(format!("expected operands of {head}")))?;
    fold(rest, first.number()?, |a, b| {
        let (a, b, denominator) = a.align(b)?;
        Ratio::quotient(pick(a, b), denominator)
    })
}

fn power(head: &str, args: &[Value]) -> Result<Ratio, Problem> {
    let [base, exponent] = operands(head, args)?;
    match exponent.expr()?.as_int() {
        Some(n @ 0..=MAX_EXPONENT) => {
            let base = base.number()?;
            (0..n).try_fold(Ratio::int(1), |power, _| product(power, base))
        }
        _ => Err(Problem::Unsupported(format!("{head} with this exponent"))),
    }
}

fn product(a: Ratio, b: Ratio) -> Result<Ratio, Problem> {
    let (a, b) = (a.exact()?, b.exact()?);
    let denominator = a.denominator.checked_mul(b.denominator).ok_or_else(too_large)?;
    Ratio::quotient(multiply(a.numerator, b.numerator)?, denominator)
}

/// Division by a constant.
fn divide(head: &str, a: Ratio, b: Ratio) -> Result<Ratio, Problem> {
    let (a, b) = (a.exact()?, b.exact()?);
    let Some(by) = b.numerator.as_int() else {
        return Err(Problem::Unsupported(format!("{head} by a symbol")));
    };
    let denominator = a.denominator.checked_mul(by).ok_or_else(too_large)?;
    Ratio::quotient(multiply(a.numerator, Expr::int(b.denominator))?, denominator)
}

fn divisor(value: &Value) -> Result<Expr, Problem> {
    let expr = value.expr()?;
    if expr.is_zero() { Err(Problem::Bad("division by zero".to_owned())) } else { Ok(expr) }
}

fn power_of_two(head: &str, value: &Value) -> Result<i64, Problem> {
    match value.expr()?.as_int() {
        Some(bits @ 0..=62) => Ok(1 << bits),
        _ => Err(Problem::Unsupported(format!("{head} by this amount"))),
    }
}

fn multiply(a: Expr, b: Expr) -> Result<Expr, Problem> {
    if (a.terms().len() + 1) * (b.terms().len() + 1) > MAX_SIZE {
        return Err(too_large());
    }
    let product = a * b;
    if product.size() as usize > MAX_SIZE { Err(too_large()) } else { Ok(product) }
}

fn too_large() -> Problem {
    Problem::Unsupported("an expression of this size".to_owned())
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(i64::MAX)
}
