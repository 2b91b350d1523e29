//! Prints and parses expressions: `Display` prints exactly what [`parse`] reads.
//!
//! Grammar: sums of products of integers, names, calls and parentheses. Calls: `floordiv(a, b)`, `ceildiv(a, b)`,
//! `mod(a, b)`, `min(a, b)`, `max(a, b)`. Names: `[A-Za-z_%][A-Za-z0-9_.]*`.

use std::fmt;

use crate::expr::{Expr, Kind, Sym, is_name_rest, is_name_start};
use crate::rel::{Clause, Cmp, Rel};

impl fmt::Display for Sym {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Sym {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.kind() {
            Kind::Int(value) => write!(f, "{value}"),
            Kind::Sym(sym) => write!(f, "{sym}"),
            Kind::Add(list) => {
                list.iter().enumerate().try_for_each(|(at, item)| write_summand(f, at > 0, *item))
            }
            Kind::Mul(_) => {
                let (coefficient, monomial) = self.split_coefficient();
                match coefficient {
                    1 => {}
                    -1 => f.write_str("-")?,
                    _ => write!(f, "{coefficient}*")?,
                }
                write_factors(f, monomial)
            }
            Kind::FloorDiv(a, b) => match b.as_int() {
                // floordiv(x + b - 1, b) reads better as ceildiv(x, b).
                Some(divisor) if divisor > 1 && a.constant() == divisor - 1 => {
                    write!(f, "ceildiv({}, {b})", a - a.constant())
                }
                _ => write!(f, "floordiv({a}, {b})"),
            },
            Kind::Mod(a, b) => write!(f, "mod({a}, {b})"),
            Kind::Min(a, b) => write!(f, "min({a}, {b})"),
            Kind::Max(a, b) => write!(f, "max({a}, {b})"),
        }
    }
}

/// One summand, led by ` + ` or ` - ` unless it is the first.
fn write_summand(f: &mut fmt::Formatter, led: bool, item: Expr) -> fmt::Result {
    let (coefficient, monomial) = item.split_coefficient();
    // The opposite of i64::MIN is no i64: it stays a literal with its own sign.
    if !led || coefficient >= 0 || coefficient == i64::MIN {
        return write!(f, "{}{item}", if led { " + " } else { "" });
    }
    f.write_str(" - ")?;
    match coefficient {
        -1 if !monomial.is_one() => write_factors(f, monomial),
        _ if monomial.is_one() => write!(f, "{}", -coefficient),
        _ => {
            write!(f, "{}*", -coefficient)?;
            write_factors(f, monomial)
        }
    }
}

fn write_factors(f: &mut fmt::Formatter, monomial: Expr) -> fmt::Result {
    let factors = monomial.factors().iter().enumerate();
    factors.into_iter().try_for_each(|(at, factor)| write!(f, "{}{factor}", if at > 0 { "*" } else { "" }))
}

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Byte offset into the text.
    pub offset: usize,
    /// Lower case, "expected X, found Y".
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} at offset {}", self.message, self.offset)
    }
}

impl std::error::Error for ParseError {}

/// Reads an expression that fills all of `text`.
pub fn parse(text: &str) -> Result<Expr, ParseError> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let expr = parser.sum()?;
    parser.end()?;
    Ok(expr)
}

/// Reads the longest expression at the start of `text` and says how many bytes it takes, leading blanks included.
pub fn parse_prefix(text: &str) -> Result<(Expr, usize), ParseError> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let expr = parser.sum()?;
    // Looking for a next operator may have passed blanks.
    Ok((expr, text[..parser.at].trim_ascii_end().len()))
}

/// Reads a comparison of two expressions: `==`, `!=`, `<`, `<=`, `>`, `>=`. The last two swap the sides.
pub fn parse_rel(text: &str) -> Result<Rel, ParseError> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let lhs = parser.sum()?;
    const OPERATORS: [(&str, fn(Expr, Expr) -> Rel); 6] =
        [("==", Rel::eq), ("!=", Rel::ne), ("<=", Rel::le), (">=", Rel::ge), ("<", Rel::lt), (">", Rel::gt)];
    let found = OPERATORS.iter().find(|(operator, _)| parser.eat(operator));
    let Some((_, build)) = found else { return Err(parser.expected("comparison")) };
    let rhs = parser.sum()?;
    parser.end()?;
    Ok(build(lhs, rhs))
}

impl fmt::Display for Cmp {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Cmp::Eq => "==",
            Cmp::Ne => "!=",
            Cmp::Lt => "<",
            Cmp::Le => "<=",
        })
    }
}

impl fmt::Display for Rel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {} {}", self.lhs, self.cmp, self.rhs)
    }
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Some((first, others)) = self.alternatives().split_first() else { return f.write_str("false") };
        write!(f, "{first}")?;
        others.iter().try_for_each(|rel| write!(f, " or {rel}"))
    }
}

/// Deepest nesting of parentheses and calls that is read; the parser and all later walks recurse.
const MAX_DEPTH: usize = 64;
/// Most terms a product of sums may have before like terms are added up. Text of length n can otherwise ask for a
/// number of terms exponential in n.
const MAX_TERMS: usize = 4096;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn sum(&mut self) -> Result<Expr, ParseError> {
        let mut sum = self.product()?;
        loop {
            if self.eat("+") {
                sum = sum + self.product()?;
            } else if self.eat("-") {
                sum = sum - self.product()?;
            } else {
                return Ok(sum);
            }
            if sum.terms().len() > MAX_TERMS {
                return Err(self.error("sum has too many terms".into()));
            }
        }
    }

    fn product(&mut self) -> Result<Expr, ParseError> {
        let mut product = self.factor()?;
        while self.eat("*") {
            let factor = self.factor()?;
            let terms = (product.terms().len() + 1).saturating_mul(factor.terms().len() + 1);
            if terms > MAX_TERMS || product.size().saturating_add(factor.size()) > 1 << 20 {
                return Err(self.error("product has too many terms".into()));
            }
            product = product * factor;
        }
        Ok(product)
    }

    fn factor(&mut self) -> Result<Expr, ParseError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("expression is nested too deeply".into()));
        }
        let factor = self.factor_within_depth()?;
        self.depth -= 1;
        Ok(factor)
    }

    fn factor_within_depth(&mut self) -> Result<Expr, ParseError> {
        match self.peek() {
            Some(b'-') => {
                self.at += 1;
                if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                    return self.integer("-");
                }
                Ok(-self.factor()?)
            }
            Some(b'(') => {
                self.at += 1;
                let inner = self.sum()?;
                self.expect(")")?;
                Ok(inner)
            }
            Some(byte) if byte.is_ascii_digit() => self.integer(""),
            Some(byte) if is_name_start(byte) => self.name_or_call(),
            _ => Err(self.expected("expression")),
        }
    }

    fn integer(&mut self, sign: &str) -> Result<Expr, ParseError> {
        let start = self.at;
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        let value = format!("{sign}{digits}").parse();
        let out_of_range =
            |_| ParseError { offset: start, message: format!("{sign}{digits} does not fit in 64 bits") };
        value.map(Expr::int).map_err(out_of_range)
    }

    fn name_or_call(&mut self) -> Result<Expr, ParseError> {
        const CALLS: [(&str, fn(Expr, Expr) -> Expr); 5] = [
            ("floordiv", |a, b| a.floordiv(b)),
            ("ceildiv", |a, b| a.ceildiv(b)),
            ("mod", |a, b| a.modulo(b)),
            ("min", |a, b| a.min(b)),
            ("max", |a, b| a.max(b)),
        ];
        let start = self.at;
        let name = self.take_while(is_name_rest);
        if self.peek() != Some(b'(') {
            return Ok(Expr::named(name));
        }
        let Some((_, build)) = CALLS.iter().find(|(call, _)| *call == name) else {
            let message = format!("expected floordiv, ceildiv, mod, min or max, found `{name}`");
            return Err(ParseError { offset: start, message });
        };
        self.expect("(")?;
        let a = self.sum()?;
        self.expect(",")?;
        let b = self.sum()?;
        self.expect(")")?;
        Ok(build(a, b))
    }

    /// The next byte that is not blank, which stays unread; blanks before it are read.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let blanks = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let found = rest.get(blanks).copied();
        if found.is_some() {
            self.at += blanks;
        }
        found
    }

    fn take_while(&mut self, accept: fn(u8) -> bool) -> &'a str {
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        // The first byte was seen by the caller; `%` is part of a name only there.
        self.at += 1 + rest.iter().skip(1).take_while(|&&byte| accept(byte)).count();
        &self.text[start..self.at]
    }

    fn eat(&mut self, token: &str) -> bool {
        let start = self.at;
        self.peek();
        let found = self.text.as_bytes()[self.at..].starts_with(token.as_bytes());
        self.at = if found { self.at + token.len() } else { start };
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), ParseError> {
        if self.eat(token) { Ok(()) } else { Err(self.expected(&format!("`{token}`"))) }
    }

    fn end(&mut self) -> Result<(), ParseError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("end of expression")),
        }
    }

    fn expected(&mut self, what: &str) -> ParseError {
        self.peek();
        let found = self.text[self.at..].trim_start().chars().next();
        let found = found.map_or("end of text".to_string(), |found| format!("`{found}`"));
        self.error(format!("expected {what}, found {found}"))
    }

    fn error(&self, message: String) -> ParseError {
        ParseError { offset: self.at, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_reads() {
        for text in [
            "768*i + k",
            "-x + 3",
            "-3*x - y - 1",
            "%3 + 2*%10",
            "x.1*mod(_y, 4)",
            "ceildiv(s0, 8)",
            "floordiv(s0 + 3, 8)",
            "min(i*s0, max(j, -2))",
            "-9223372036854775808",
            "x + -9223372036854775808",
            "x + -9223372036854775808*y",
            "x - 9223372036854775807*y",
            "max*min", // names of calls are names where no parenthesis follows
        ] {
            assert_eq!(parse(text).map(|e| e.to_string()), Ok(text.to_string()));
        }
        assert_eq!(parse(" ( 2 * ( x ) )- - 1 ").map(|e| e.to_string()), Ok("2*x + 1".into()));
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (text, offset, message) in [
            ("", 0, "expected expression, found end of text"),
            ("x + ", 3, "expected expression, found end of text"),
            ("x y", 2, "expected end of expression, found `y`"),
            ("2x", 1, "expected end of expression, found `x`"),
            ("(x", 2, "expected `)`, found end of text"),
            ("min(x)", 5, "expected `,`, found `)`"),
            ("x + gcd(x, 2)", 4, "expected floordiv, ceildiv, mod, min or max, found `gcd`"),
            ("9223372036854775808", 0, "9223372036854775808 does not fit in 64 bits"),
            ("x + é", 4, "expected expression, found `é`"),
            ("a%b", 1, "expected end of expression, found `%`"),
        ] {
            assert_eq!(parse(text), Err(ParseError { offset, message: message.into() }), "{text}");
        }
    }

    #[test]
    fn refuses_what_would_not_end() {
        let deep = "(".repeat(100_000);
        assert_eq!(
            parse(&deep).map_err(|error| error.message),
            Err("expression is nested too deeply".into())
        );
        let minus = "-".repeat(100_000) + "x";
        assert_eq!(
            parse(&minus).map_err(|error| error.message),
            Err("expression is nested too deeply".into())
        );
        let wide = vec!["(a + b + c + d + e + f + g + h)"; 20].join("*");
        assert_eq!(parse(&wide).map_err(|error| error.message), Err("product has too many terms".into()));
    }

    #[test]
    fn prefix_stops_after_the_expression() {
        let read = |text| parse_prefix(text).map(|(e, length)| (e.to_string(), length));
        assert_eq!(read("s0 + 1, 768]"), Ok(("s0 + 1".into(), 6)));
        assert_eq!(read(" 2*i ] = %5"), Ok(("2*i".into(), 4)));
    }

    #[test]
    fn relations() {
        for (text, printed) in [
            ("a < b", "a < b"),
            ("a >= 2*b", "2*b <= a"),
            ("a > b", "b < a"),
            ("a == 1", "a == 1"),
            ("a+1!=b", "a + 1 != b"),
        ] {
            assert_eq!(parse_rel(text).map(|rel| rel.to_string()), Ok(printed.to_string()));
        }
        assert_eq!(
            parse_rel("a = b").map_err(|error| error.message),
            Err("expected comparison, found `=`".into())
        );
        assert_eq!(parse_rel("a < b < c").map_err(|error| error.offset), Err(6));
    }
}
