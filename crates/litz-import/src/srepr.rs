//! Parses expressions as `sympy.srepr` prints them to [`Expr`] and [`litz_sym::Rel`].
//!
//! `Mul(Integer(2), Symbol('s77', positive=True, integer=True))` is `2*s77`. Of the assumptions of a symbol, only
//! `integer=True` counts, which floats lack: sympy prints `positive=True` even where the range allows 0.

use crate::error::ImportError;
use crate::number::{Problem, Ratio, Value, apply};
use crate::scan::{Scanner, is_name_part};
use litz_ir::text::graph::names_symbol;
use litz_sym::{Clause, Expr, Sym};

/// Deepest nesting; torch's expressions stay below 20.
const MAX_DEPTH: usize = 64;
/// Longest symbol name.
const MAX_NAME: usize = 64;

/// Texts of integers that have no exact integer meaning, and the symbols that stand for them.
pub type Late<'a> = [(&'a str, Expr)];

/// Reads an integer expression.
///
/// # Errors
/// When `text` is not srepr, is not an integer, or has no exact integer meaning (`FloatPow`, `sin` ...).
pub fn parse_expr(text: &str, late: &Late<'_>) -> Result<Expr, ImportError> {
    let ratio = parse(text, late).and_then(|value| value.number()).map_err(|problem| error(text, problem))?;
    ratio
        .as_expr()
        .ok_or_else(|| error(text, Problem::Bad("expected an integer, found a fraction".to_owned())))
}

/// Reads a condition: clauses that hold together, none for `true`.
///
/// # Errors
/// As [`parse_expr`].
pub fn parse_condition(text: &str, late: &Late<'_>) -> Result<Vec<Clause>, ImportError> {
    parse(text, late).and_then(Value::truth).map_err(|problem| error(text, problem))
}

/// The symbol that a file calls `name`: one of a longer name where the texts of Litz have another meaning for its own. PyTorch
/// counts sizes that data decide, and the ninth is `u8`.
pub fn symbol(name: &str) -> Sym {
    if names_symbol(name) { Sym::new(name) } else { Sym::new(&format!("{name}_")) }
}

fn error(text: &str, problem: Problem) -> ImportError {
    let text = crate::error::shorten(text);
    match problem {
        Problem::Unsupported(head) => ImportError::UnsupportedExpression { text, head },
        Problem::Bad(why) => ImportError::Expression { text, why },
    }
}

fn parse(text: &str, late: &Late<'_>) -> Result<Value, Problem> {
    let mut parser = Parser { text: Scanner::new(text), late };
    let value = parser.value(0)?;
    if parser.text.peek().is_none() { Ok(value) } else { Err(parser.text.expected("the end")) }
}

struct Parser<'a> {
    text: Scanner<'a>,
    late: &'a Late<'a>,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: usize) -> Result<Value, Problem> {
        if depth > MAX_DEPTH {
            return Err(Problem::Unsupported("an expression of this depth".to_owned()));
        }
        for (text, symbol) in self.late {
            if self.text.accept(text) {
                return Ok(Value::Number((*symbol).into()));
            }
        }
        let head = self.word();
        match head {
            "" => return Err(self.text.expected("a name")),
            "true" => return Ok(Value::TRUE),
            "false" => return Ok(Value::never()),
            _ => self.text.token("(")?,
        }
        let value = match head {
            "Integer" => Value::Number(Ratio::int(self.int()?)),
            "Symbol" => return self.symbol(),
            "Float" => Value::Number(Ratio::float(self.float()?)?),
            "Rational" => {
                let numerator = Value::Number(Ratio::int(self.int()?));
                self.text.token(",")?;
                apply("FloatTrueDiv", &[numerator, Value::Number(Ratio::int(self.int()?))])?
            }
            _ => return apply(head, &self.operands(depth)?),
        };
        self.assumptions()?;
        Ok(value)
    }

    /// Operands up to and with the closing parenthesis.
    fn operands(&mut self, depth: usize) -> Result<Vec<Value>, Problem> {
        let mut args = Vec::new();
        if self.text.accept(")") {
            return Ok(args);
        }
        loop {
            args.push(self.value(depth + 1)?);
            if self.text.accept(")") {
                return Ok(args);
            }
            self.text.token(",")?;
        }
    }

    /// `, name=value` repeated, and the closing parenthesis. Answers whether `integer=True` is among them.
    fn assumptions(&mut self) -> Result<bool, Problem> {
        let mut is_integer = false;
        while self.text.accept(",") {
            let name = self.word();
            if name.is_empty() {
                return Err(self.text.expected("a keyword"));
            }
            self.text.token("=")?;
            let value = self.word();
            if value.is_empty() {
                return Err(self.text.expected("a keyword's value"));
            }
            is_integer |= (name, value) == ("integer", "True");
        }
        self.text.token(")")?;
        Ok(is_integer)
    }

    fn symbol(&mut self) -> Result<Value, Problem> {
        let name = self.quoted()?;
        if name.len() > MAX_NAME || !Sym::is_identifier(name) {
            return Err(Problem::Bad("expected a symbol's name".to_owned()));
        }
        if self.assumptions()? {
            Ok(Value::Number(Expr::sym(symbol(name)).into()))
        } else {
            Err(Problem::Unsupported("a float that data decides".to_owned()))
        }
    }

    fn int(&mut self) -> Result<i64, Problem> {
        let text = self.text.word(|c| c.is_ascii_digit() || c == '-');
        text.parse().map_err(|_| Problem::Bad("expected a 64-bit integer".to_owned()))
    }

    fn float(&mut self) -> Result<f64, Problem> {
        let text = self.quoted()?;
        text.parse().map_err(|_| Problem::Bad("expected a float".to_owned()))
    }

    fn quoted(&mut self) -> Result<&'a str, Problem> {
        self.text.token("'")?;
        let text = self.text.take(|c| c != '\'' && c != '\\');
        self.text.token("'")?;
        Ok(text)
    }

    fn word(&mut self) -> &'a str {
        self.text.word(is_name_part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_sym::Rel;

    fn eval(text: &str, s77: i64) -> Option<i64> {
        parse_expr(text, &[]).expect("parses").eval(&|sym| (sym.name() == "s77").then_some(s77))
    }
    fn slug(text: &str) -> &'static str {
        parse_expr(text, &[]).expect_err("does not parse").slug()
    }
    const S: &str = "Symbol('s77', positive=True, integer=True)";

    #[test]
    fn reads_what_torch_writes() {
        let s = Expr::named("s77");
        assert_eq!(parse_expr(S, &[]), Ok(s));
        assert_eq!(parse_expr(&format!("Mul(Integer(-1), Integer(2), {S})"), &[]), Ok(s * -2));
        assert_eq!(parse_expr(&format!("Add(Pow({S}, Integer(2)), Integer(1))"), &[]), Ok(s * s + 1));
        assert_eq!(parse_expr(&format!("FloorDiv({S}, Integer(2))"), &[]), Ok(s.floordiv(2)));
        assert_eq!(parse_expr(&format!("CeilDiv({S}, Integer(2))"), &[]), Ok(s.ceildiv(2)));
        assert_eq!(parse_expr(&format!("Max(Integer(1), {S}, Symbol('u0', integer=True))"), &[]), {
            Ok(s.max(Expr::named("u0")).max(1))
        });
        assert_eq!(eval(&format!("ModularIndexing({S}, Integer(4), Integer(3))"), 23), Some(2));
        assert_eq!(eval(&format!("PythonMod(Mul(Integer(-1), {S}), Integer(3))"), 4), Some(2));
        let size = format!("Abs(Add(Integer(3), Mul(Integer(-2), {S})))");
        assert_eq!((eval(&size, 1), eval(&size, 4)), (Some(1), Some(5)));
    }

    #[test]
    fn reads_conditions() {
        let s = Expr::named("s77");
        assert_eq!(
            parse_condition(&format!("LessThan({S}, Integer(9))"), &[]),
            Ok(vec![Rel::le(s, 9).into()])
        );
        let both = format!("And(StrictGreaterThan({S}, Integer(2)), Unequality({S}, Integer(5)))");
        assert_eq!(parse_condition(&both, &[]), Ok(vec![Rel::gt(s, 2).into(), Rel::ne(s, 5).into()]));
        assert_eq!(
            parse_condition(&format!("Not(Equality({S}, Integer(5)))"), &[]),
            Ok(vec![Rel::ne(s, 5).into()])
        );
        assert_eq!(
            parse_condition(&format!("Or(Equality({S}, Integer(9)), {both})"), &[]),
            Ok(vec![
                Clause::new([Rel::eq(s, 9), Rel::gt(s, 2)]),
                Clause::new([Rel::eq(s, 9), Rel::ne(s, 5)])
            ])
        );
        assert_eq!(parse_condition("true", &[]), Ok(vec![]));
        assert_eq!(parse_condition(&format!("Or({both}, true)"), &[]), Ok(vec![]));
        assert!(parse_condition(S, &[]).is_err() && parse_expr("true", &[]).is_err());
    }

    #[test]
    fn names_that_texts_have_another_meaning_for_are_longer() {
        let ninth = "Symbol('u8', integer=True)";
        let expected = Expr::sym(Sym::new("u8_"));
        assert_eq!(parse_expr(ninth, &[]), Ok(expected));
        assert_eq!(
            parse_condition(&format!("GreaterThan({ninth}, Integer(1))"), &[]),
            Ok(vec![Rel::ge(expected, 1).into()])
        );
        assert_eq!(symbol("u7").name(), "u7");
    }

    #[test]
    fn floats_between_integers_are_exact() {
        let scaled = format!("Mul(Float('1.5', precision=53), ToFloat({S}))");
        for n in [-7, -3, 0, 1, 2, 3, 9, 1 << 30] {
            let exact = n as f64 * 1.5;
            assert_eq!(eval(&format!("TruncToInt({scaled})"), n), Some(exact.trunc() as i64), "trunc {n}");
            assert_eq!(eval(&format!("FloorToInt({scaled})"), n), Some(exact.floor() as i64), "floor {n}");
            assert_eq!(eval(&format!("CeilToInt({scaled})"), n), Some(exact.ceil() as i64), "ceil {n}");
            let third = format!("CeilToInt(IntTrueDiv({S}, Integer(-3)))");
            assert_eq!(eval(&third, n), Some((n as f64 / -3.0).ceil() as i64), "third {n}");
        }
        assert_eq!(eval(&format!("Mul(Rational(1, 2), {S}, Integer(6))"), 5), Some(15));
    }

    #[test]
    fn refuses_floats_that_round() {
        assert_eq!(
            slug(&format!("TruncToInt(Mul(Float('1.1', precision=53), ToFloat({S})))")),
            "unsupported-expression"
        );
        assert_eq!(
            slug(&format!("TruncToInt(Mul(Integer(3), IntTrueDiv({S}, Integer(3))))")),
            "unsupported-expression"
        );
        assert_eq!(slug("Float('inf', precision=53)"), "unsupported-expression");
        assert_eq!(slug(&format!("Mul(Rational(1, 2), {S})")), "bad-expression");
        let error = parse_expr(&format!("FloatPow({S}, Integer(2))"), &[]).expect_err("refused").to_string();
        assert!(error.ends_with("`FloatPow` is not supported"), "{error}");
    }

    #[test]
    fn refuses_damage() {
        for text in [
            "",
            "(",
            ")",
            "Integer",
            "Integer(",
            "Integer()",
            "Integer(1",
            "Integer(1))",
            "Integer(1.5)",
            "Symbol(s77)",
            "Symbol('')",
            "Symbol('s 7')",
            "Symbol('s', =True)",
            "Add(Integer(1),)",
            "Add(,)",
            "Mod(Integer(1), Integer(0))",
            "FloorDiv(Integer(1))",
            "Max()",
            "IntTrueDiv(Integer(1), Integer(0))",
            "Integer(99999999999999999999)",
            "é('s')",
            "Float('x', precision=53)",
            "Rational(1, 0)",
            "Not(Integer(1))",
            "Add(true, Integer(1))",
        ] {
            assert_eq!(slug(text), "bad-expression", "{text}");
        }
    }

    #[test]
    fn hostile_expressions_stay_small() {
        let deep = "Add(".repeat(100_000);
        assert_eq!(slug(&deep), "unsupported-expression");
        let sum = |k: i32| format!("Add(Symbol('a{k}', integer=True), Symbol('b{k}', integer=True))");
        let product = format!("Mul({})", (0..40).map(sum).collect::<Vec<_>>().join(", "));
        assert_eq!(slug(&product), "unsupported-expression");
        let tower = (0..5).fold(S.to_owned(), |base, _| format!("Pow({base}, Integer(16))"));
        assert_eq!(slug(&tower), "unsupported-expression");
        assert_eq!(slug(&format!("Pow({S}, Integer(1000000000))")), "unsupported-expression");
        assert_eq!(slug(&format!("Symbol('{}')", "x".repeat(1000))), "bad-expression");
    }
}
