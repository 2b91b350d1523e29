//! Parses guards, which are Python expressions over input sizes, to clauses: relations between symbols, and alternatives of
//! them.
//!
//! `(2*L['x'].size()[0]) == L['y'].size()[0]` is `2*s77 == s77` once the inputs' sizes are put in. Guards are not
//! redundant with the shapes in a program: where tracing fixed a size, the guard may be the only trace of it.

use crate::error::ImportError;
use crate::number::{Problem, Ratio, Value, apply};
use crate::pytree::KeyEntry;
use crate::scan::{Scanner, is_name_part};
use litz_sym::{Clause, Expr};

/// Deepest nesting of parentheses and operators.
const MAX_DEPTH: usize = 64;

/// What a guard asks of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Query {
    /// The input itself, an integer.
    Value,
    /// The size symbol of that name, written without `L`.
    Symbol,
    /// The size of a dimension.
    Size(usize),
    /// The stride of a dimension, in elements.
    Stride(usize),
}

/// Answers a query about an input; `None` where there is no such input or dimension.
pub type Resolve<'a> = &'a dyn Fn(&[KeyEntry], Query) -> Option<Expr>;

/// Reads a guard into clauses that hold together.
///
/// # Errors
/// Names the guard and what in it is not understood.
pub fn parse_guard(text: &str, resolve: Resolve) -> Result<Vec<Clause>, ImportError> {
    read(text, resolve).map_err(|problem| {
        let why = match problem {
            Problem::Unsupported(what) => format!("{what} is not supported"),
            Problem::Bad(why) => why,
        };
        ImportError::Guard { text: crate::error::shorten(text), why }
    })
}

fn read(text: &str, resolve: Resolve) -> Result<Vec<Clause>, Problem> {
    let mut parser = Parser { text: Scanner::new(text), resolve, depth: 0 };
    let value = parser.disjunction()?;
    if parser.text.peek().is_some() { Err(parser.text.expected("the end")) } else { value.truth() }
}

struct Parser<'a> {
    text: Scanner<'a>,
    resolve: Resolve<'a>,
    depth: usize,
}

/// Binary operators by increasing precedence: Python's spelling and sympy's name. Longer spellings come first.
const COMPARISONS: &[(&str, &str)] = &[
    ("==", "Equality"),
    ("!=", "Unequality"),
    ("<=", "LessThan"),
    (">=", "GreaterThan"),
    ("<", "StrictLessThan"),
    (">", "StrictGreaterThan"),
];
const SHIFTS: &[(&str, &str)] = &[("<<", "LShift"), (">>", "RShift")];
const SUMS: &[(&str, &str)] = &[("+", "Add"), ("-", "Sub")];
const PRODUCTS: &[(&str, &str)] =
    &[("*", "Mul"), ("//", "FloorDiv"), ("/", "FloatTrueDiv"), ("%", "PythonMod")];

/// Functions of one or more numbers.
const FUNCTIONS: &[(&str, &str)] = &[
    ("min", "Min"),
    ("max", "Max"),
    ("torch.sym_min", "Min"),
    ("torch.sym_max", "Max"),
    ("torch.sym_float", "ToFloat"),
    ("torch.sym_int", "TruncToInt"),
    ("math.trunc", "TruncToInt"),
    ("math.floor", "FloorToInt"),
    ("math.ceil", "CeilToInt"),
    ("int", "TruncToInt"),
    ("float", "ToFloat"),
    ("Min", "Min"),
    ("Max", "Max"),
    ("Mod", "Mod"),
    ("FloorDiv", "FloorDiv"),
];

impl<'a> Parser<'a> {
    fn disjunction(&mut self) -> Result<Value, Problem> {
        self.joined("or", "Or", Self::conjunction)
    }

    fn conjunction(&mut self) -> Result<Value, Problem> {
        self.joined("and", "And", Self::negation)
    }

    /// One operand, or several with a keyword between them.
    fn joined(
        &mut self,
        keyword: &str,
        head: &str,
        operand: fn(&mut Self) -> Result<Value, Problem>,
    ) -> Result<Value, Problem> {
        let first = operand(self)?;
        if !self.text.keyword(keyword) {
            return Ok(first);
        }
        let mut all = vec![first, operand(self)?];
        while self.text.keyword(keyword) {
            all.push(operand(self)?);
        }
        apply(head, &all)
    }

    fn negation(&mut self) -> Result<Value, Problem> {
        if !self.text.keyword("not") {
            return self.comparison();
        }
        let inner = self.nested(Self::negation)?;
        apply("Not", &[inner])
    }

    /// `a < b <= c` is `a < b and b <= c`.
    fn comparison(&mut self) -> Result<Value, Problem> {
        let mut left = self.shift()?;
        let mut clauses = Vec::new();
        while let Some(head) = self.operator(COMPARISONS) {
            let right = self.shift()?;
            clauses.extend(apply(head, &[left, right.clone()])?.truth()?);
            left = right;
        }
        Ok(if clauses.is_empty() { left } else { Value::Truth(clauses) })
    }

    fn shift(&mut self) -> Result<Value, Problem> {
        self.binary(SHIFTS, Self::sum)
    }

    fn sum(&mut self) -> Result<Value, Problem> {
        self.binary(SUMS, Self::product)
    }

    fn product(&mut self) -> Result<Value, Problem> {
        self.binary(PRODUCTS, Self::sign)
    }

    fn binary(
        &mut self,
        table: &[(&str, &'static str)],
        operand: fn(&mut Self) -> Result<Value, Problem>,
    ) -> Result<Value, Problem> {
        let mut left = operand(self)?;
        while let Some(head) = self.operator(table) {
            let right = operand(self)?;
            left = match head {
                "Sub" => apply("Add", &[left, negate(right)?])?,
                _ => apply(head, &[left, right])?,
            };
        }
        Ok(left)
    }

    fn sign(&mut self) -> Result<Value, Problem> {
        if self.text.accept("-") { negate(self.nested(Self::sign)?) } else { self.power() }
    }

    fn power(&mut self) -> Result<Value, Problem> {
        let base = self.atom()?;
        if !self.text.accept("**") {
            return Ok(base);
        }
        let exponent = self.nested(Self::sign)?;
        apply("Pow", &[base, exponent])
    }

    fn atom(&mut self) -> Result<Value, Problem> {
        match self.text.peek() {
            Some('(') => {
                self.text.token("(")?;
                let inner = self.nested(Self::disjunction)?;
                self.text.token(")")?;
                Ok(inner)
            }
            Some(c) if c.is_ascii_digit() => self.number(),
            Some(c) if is_name_part(c) => self.name(),
            _ => Err(self.text.expected("a number, a name or `(`")),
        }
    }

    fn number(&mut self) -> Result<Value, Problem> {
        let digits = self.text.word(|c| c.is_ascii_digit());
        let has_fraction = self.text.is_next(&['.', 'e', 'E']);
        if !has_fraction {
            // A larger number than the largest, which no size comes near, compares as that one does.
            return Ok(Value::Number(Ratio::int(digits.parse().unwrap_or(i64::MAX))));
        }
        let fraction = self.text.take(|c| c.is_ascii_digit() || c == '.');
        let mut text = format!("{digits}{fraction}");
        if self.text.is_next(&['e', 'E']) {
            text.push_str(self.text.take(|c| c == 'e' || c == 'E'));
            text.push_str(self.text.take(|c| c == '-' || c == '+'));
            text.push_str(self.text.take(|c| c.is_ascii_digit()));
        }
        let value = text.parse().map_err(|_| Problem::Bad(format!("expected a float, found `{text}`")))?;
        Ok(Value::Number(Ratio::float(value)?))
    }

    /// An input or a function call.
    fn name(&mut self) -> Result<Value, Problem> {
        let name = self.text.word(|c| is_name_part(c) || c == '.');
        match name {
            "L" => return self.input(),
            "True" => return Ok(Value::TRUE),
            "False" => return Ok(Value::never()),
            _ => {}
        }
        let function = FUNCTIONS.iter().find(|(python, _)| *python == name);
        let Some((_, head)) = function else { return self.symbol(name) };
        self.text.token("(")?;
        let mut args = vec![self.nested(Self::disjunction)?];
        while self.text.accept(",") {
            args.push(self.nested(Self::disjunction)?);
        }
        self.text.token(")")?;
        apply(head, &args)
    }

    fn symbol(&self, name: &str) -> Result<Value, Problem> {
        let expr = match self.text.peek() {
            Some('(') => None,
            _ => (self.resolve)(&[KeyEntry::Name(name.to_owned())], Query::Symbol),
        };
        expr.map(|expr| Value::Number(expr.into())).ok_or_else(|| Problem::Unsupported(format!("`{name}`")))
    }

    /// What follows `L`: keys and attributes, then perhaps `.size()[0]`.
    fn input(&mut self) -> Result<Value, Problem> {
        let mut path = Vec::new();
        let query = loop {
            if self.text.accept("[") {
                path.push(self.key()?);
            } else if self.text.accept(".") {
                let name = self.text.word(is_name_part);
                match name {
                    "size" | "shape" => break Query::Size(self.dimension()?),
                    "stride" => break Query::Stride(self.dimension()?),
                    "" => return Err(self.text.expected("an attribute")),
                    _ => path.push(KeyEntry::Name(name.to_owned())),
                }
            } else {
                break Query::Value;
            }
        };
        let found = (self.resolve)(&path, query).map(|expr| Value::Number(expr.into()));
        found.ok_or_else(|| Problem::Bad(format!("expected an input, found {}", show(&path, query))))
    }

    /// A key up to and with the closing bracket.
    fn key(&mut self) -> Result<KeyEntry, Problem> {
        let entry = if self.text.accept("'") {
            let name = self.text.take(|c| c != '\'' && c != '\\').to_owned();
            self.text.token("'")?;
            KeyEntry::Name(name)
        } else {
            KeyEntry::Index(self.index()?)
        };
        self.text.token("]")?;
        Ok(entry)
    }

    /// `()[0]` or `[0]`.
    fn dimension(&mut self) -> Result<usize, Problem> {
        if self.text.accept("(") {
            self.text.token(")")?;
        }
        self.text.token("[")?;
        let dimension = self.index()?;
        self.text.token("]")?;
        Ok(dimension)
    }

    fn index(&mut self) -> Result<usize, Problem> {
        let digits = self.text.word(|c| c.is_ascii_digit());
        digits.parse().map_err(|_| self.text.expected("an index"))
    }

    fn nested<T>(&mut self, read: fn(&mut Self) -> Result<T, Problem>) -> Result<T, Problem> {
        if self.depth >= MAX_DEPTH {
            return Err(Problem::Unsupported("an expression of this depth".to_owned()));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn operator(&mut self, table: &[(&str, &'static str)]) -> Option<&'static str> {
        table.iter().find(|(spelling, _)| self.text.accept(spelling)).map(|(_, head)| *head)
    }
}

fn negate(value: Value) -> Result<Value, Problem> {
    apply("Mul", &[Value::Number(Ratio::int(-1)), value])
}

fn show(path: &[KeyEntry], query: Query) -> String {
    let entry = |entry: &KeyEntry| match entry {
        KeyEntry::Name(name) => format!("['{name}']"),
        KeyEntry::Index(index) => format!("[{index}]"),
    };
    let path: String = path.iter().map(entry).collect();
    match query {
        Query::Value | Query::Symbol => format!("`L{path}`"),
        Query::Size(dimension) => format!("`L{path}.size()[{dimension}]`"),
        Query::Stride(dimension) => format!("`L{path}.stride()[{dimension}]`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_sym::Rel;

    /// `x` is `[s, 3]`, `d['u']` and `p.x` are `[t]`, `args[0]` is `[t, s]`, `n` is the integer `n`.
    fn resolve(path: &[KeyEntry], query: Query) -> Option<Expr> {
        let (s, t) = (Expr::named("s"), Expr::named("t"));
        if query == Query::Symbol {
            return (path == [KeyEntry::Name("s".to_owned())]).then_some(s);
        }
        let sizes = match show(path, Query::Value).as_str() {
            "`L['n']`" if query == Query::Value => return Some(Expr::named("n")),
            "`L['x']`" => vec![s, Expr::int(3)],
            "`L['d']['u']`" | "`L['p']['x']`" => vec![t],
            "`L['args'][0]`" => vec![t, s],
            _ => return None,
        };
        match query {
            Query::Size(dimension) => sizes.get(dimension).copied(),
            Query::Value | Query::Symbol | Query::Stride(_) => None,
        }
    }
    fn guard(text: &str) -> Result<Vec<Clause>, ImportError> {
        parse_guard(text, &resolve)
    }
    /// Relations that all hold.
    fn all(rels: impl IntoIterator<Item = Rel>) -> Result<Vec<Clause>, ImportError> {
        Ok(rels.into_iter().map(Clause::from).collect())
    }
    fn holds(text: &str, s: i64, t: i64) -> Option<bool> {
        let value = |sym: litz_sym::Sym| Some(if sym.name() == "s" { s } else { t });
        guard(text)
            .expect("understood")
            .iter()
            .map(|clause| clause.eval(&value))
            .try_fold(true, |all, r| Some(all && r?))
    }

    #[test]
    fn reads_what_torch_writes() {
        let (s, t, n) = (Expr::named("s"), Expr::named("t"), Expr::named("n"));
        assert_eq!(guard("L['x'].size()[0] == L['d']['u'].size()[0]"), all([Rel::eq(s, t)]));
        assert_eq!(guard("(L['x'].size()[0] % 2) == 0"), all([Rel::eq(s.modulo(2), 0)]));
        assert_eq!(guard("L['n'] + 3*L['x'].size()[0] >= 0"), all([Rel::ge(n + s * 3, 0)]));
        assert_eq!(
            guard("torch.sym_min(L['p'].x.size()[0], L['x'].size()[0]) > 2"),
            all([Rel::gt(t.min(s), 2)])
        );
        assert_eq!(guard("((L['x'].size()[0]*L['x'].size()[0]) // 3) < 1000"), {
            all([Rel::lt((s * s).floordiv(3), 1000)])
        });
        assert_eq!(
            guard("L['args'][0].size()[1] != 4 and not (L['n'] < 7)"),
            all([Rel::ne(s, 4), Rel::ge(n, 7)])
        );
        assert_eq!(guard("2 <= L['n'] <= 7"), all([Rel::le(2, n), Rel::le(n, 7)]));
        assert_eq!(
            guard("(-1) + L['x'].size()[0] <= 9223372036854775808 + ((-1)*L['n'])"),
            all([Rel::le(s - 1, Expr::int(i64::MAX) - n)])
        );
    }

    #[test]
    fn reads_keys_of_range_constraints() {
        let s = Expr::named("s");
        assert_eq!(guard("4 <= 2*s + 1"), all([Rel::le(4, s * 2 + 1)]));
        assert_eq!(guard("(s//2) <= 9"), all([Rel::le(s.floordiv(2), 9)]));
        assert_eq!(guard("Max(1, s) <= 9"), all([Rel::le(s.max(1), 9)]));
        assert!(guard("q <= 9").is_err() && guard("s(1) <= 9").is_err());
    }

    #[test]
    fn conditions_with_alternatives_become_clauses() {
        let (s, t, n) = (Expr::named("s"), Expr::named("t"), Expr::named("n"));
        let broadcast = "L['x'].size()[0] == 1 or L['x'].size()[0] == L['d']['u'].size()[0]";
        assert_eq!(guard(broadcast), Ok(vec![Clause::new([Rel::eq(s, 1), Rel::eq(s, t)])]));
        // Each of one with each of the other.
        assert_eq!(
            guard("L['n'] == 0 or (L['x'].size()[0] > 2 and L['p'].x.size()[0] > 3)"),
            Ok(vec![
                Clause::new([Rel::eq(n, 0), Rel::gt(s, 2)]),
                Clause::new([Rel::eq(n, 0), Rel::gt(t, 3)])
            ])
        );
        assert_eq!(guard("True or L['n'] == 0"), Ok(vec![]));
        for text in [
            "s == 1 or s == 2 and s != 2 or s == L['p'].x.size()[0]",
            "not (s == 1 or s == 2)",
            "not (s == 1 and L['p'].x.size()[0] == 2)",
            "not ((s < 2 or L['p'].x.size()[0] < 2) and (s > 2 or L['p'].x.size()[0] > 2))",
            "not (True) or s == 3",
        ] {
            for (s, t) in (0..4).flat_map(|s| (0..4).map(move |t| (s, t))) {
                let expected = match text.split("not ").nth(1) {
                    None => s == 1 || s == t,
                    Some("(s == 1 or s == 2)") => s != 1 && s != 2,
                    Some(text) if text.starts_with("(s == 1 and") => s != 1 || t != 2,
                    Some(text) if text.starts_with("(True)") => s == 3,
                    Some(_) => s >= 2 && t >= 2 || s <= 2 && t <= 2,
                };
                assert_eq!(holds(text, s, t), Some(expected), "{text} for s = {s}, t = {t}");
            }
        }
    }

    #[test]
    fn sizes_through_floats() {
        for s in 0..40 {
            let expected = (s as f64 * 1.5).trunc() == 9.0;
            assert_eq!(
                holds("math.trunc(1.5*torch.sym_float(L['x'].size()[0])) == 9", s, 0),
                Some(expected),
                "{s}"
            );
            assert_eq!(holds("(L['x'].size()[0] / 3) <= 10.0", s, 0), Some(s <= 30), "{s}");
        }
    }

    #[test]
    fn precedence_is_pythons() {
        assert_eq!(holds("-L['x'].size()[0]**2 == -9", 3, 0), Some(true));
        assert_eq!(holds("2*L['x'].size()[0]**2 == 18", 3, 0), Some(true));
        assert_eq!(holds("1 + L['x'].size()[0] << 2 == 16", 3, 0), Some(true));
        assert_eq!(holds("10 - 4 - L['x'].size()[0] == 3", 3, 0), Some(true));
        assert_eq!(holds("-7 // L['x'].size()[0] == -3 and -7 % L['x'].size()[0] == 2", 3, 0), Some(true));
        assert_eq!(holds("1e1 == 10 and 2.50e0*2 == 5", 3, 0), Some(true));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, why) in [
            ("L['y'].size()[0] == 1", "expected an input, found `L['y'].size()[0]`"),
            ("L['x'].size()[2] == 1", "expected an input, found `L['x'].size()[2]`"),
            ("L['x'].stride()[0] == 1", "expected an input, found `L['x'].stride()[0]`"),
            ("math.sin(L['n']) == 1", "`math.sin` is not supported"),
            ("L['n'] == 'a'", "expected a number, a name or `(`, found `'a'`"),
            ("L['n'] = 4", "expected the end, found `= 4`"),
            ("L['n']", "expected a truth value, found a number"),
            ("L['n'] / 0 > 1", "division by zero"),
            ("1.1*L['n'] > 1", "the float 1.1 is not supported"),
            ("__import__('os').system('true')", "`__import__` is not supported"),
            ("", "expected a number, a name or `(`, found ``"),
        ] {
            let expected = ImportError::Guard { text: text.to_owned(), why: why.to_owned() };
            assert_eq!(guard(text), Err(expected));
        }
    }

    #[test]
    fn hostile_guards_stay_small() {
        for text in ["(", "-", "not ", "min(", "1**", "L['n']**16*", "s == 1 or "] {
            assert_eq!(guard(&text.repeat(100_000)).map_err(|error| error.slug()), Err("unknown-guard"));
        }
        let pair = |at: i64| format!("(s == {at} and L['n'] == {at})");
        let product = (0..40).map(pair).collect::<Vec<_>>().join(" or ");
        let why = "an expression of this size is not supported".to_owned();
        let text = crate::error::shorten(&product);
        assert_eq!(guard(&product), Err(ImportError::Guard { text, why }));
    }
}
