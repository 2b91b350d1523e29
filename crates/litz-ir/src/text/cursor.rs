//! Parses the pieces that all five texts share: names, literals, expressions, types, facts.

use std::collections::HashMap;

use litz_sym::{Clause, Expr, Facts, Range, Rel, Sym, parse_prefix};

use crate::diag::{Diag, Diags};
use crate::dtype::Dtype;
use crate::graph::{Device, TensorType, contiguous_strides};
use crate::loops::Axis;
use crate::scalar::Scalar;
use crate::target::{Level, Persistent, Target, Team};
use crate::text::lexer::{Token, TokenKind, error, position, tokens};

/// Deepest nesting of lists, loops and subgraphs that is read; parsers and later walks recurse.
const MAX_DEPTH: usize = 100;

pub(crate) type Result<T> = std::result::Result<T, Diag>;

/// A place in a text.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

/// Reads one item that fills all of `text`.
pub(crate) fn parse_whole<T>(
    text: &str,
    parse: impl FnOnce(&mut Cursor) -> Result<T>,
) -> std::result::Result<T, Diags> {
    let whole = || {
        let mut cx = Cursor { text, tokens: tokens(text)?, at: 0, depth: 0 };
        let item = parse(&mut cx)?;
        if cx.peek().kind == TokenKind::End { Ok(item) } else { Err(cx.expected("end of text")) }
    };
    whole().map_err(|diag| vec![diag])
}

impl<'a> Cursor<'a> {
    /// The next token.
    pub fn peek(&self) -> Token {
        self.tokens[self.at]
    }

    /// The text of the next token.
    pub fn peek_text(&self) -> &'a str {
        self.slice(self.peek())
    }

    fn slice(&self, token: Token) -> &'a str {
        &self.text[token.start..token.end]
    }

    /// Whether the token after the next one is this word or punctuation.
    pub fn second_is(&self, text: &str) -> bool {
        self.tokens.get(self.at + 1).is_some_and(|&token| self.slice(token) == text)
    }

    /// What the token after the next one is.
    pub fn second_kind(&self) -> TokenKind {
        self.tokens.get(self.at + 1).map_or(TokenKind::End, |token| token.kind)
    }

    /// Takes the next token, unless it is the end.
    pub fn take(&mut self) -> Token {
        let token = self.peek();
        self.at += usize::from(token.kind != TokenKind::End);
        token
    }

    /// Whether the next token is this word or punctuation.
    pub fn is(&self, text: &str) -> bool {
        // Quotes and sigils belong to the text of a token, so that no other kind can be spelled like these.
        self.peek_text() == text
    }

    /// Takes this word or punctuation if it is next.
    pub fn eat(&mut self, text: &str) -> bool {
        let found = self.is(text);
        self.at += usize::from(found);
        found
    }

    /// Takes this word or punctuation.
    pub fn expect(&mut self, text: &str) -> Result<()> {
        if self.eat(text) { Ok(()) } else { Err(self.expected(&format!("`{text}`"))) }
    }

    /// Takes `in panels of 64`, if that is next: a layout's, and how many columns these have.
    pub fn panels(&mut self) -> Result<Option<u32>> {
        if !(self.is("in") && self.second_is("panels")) {
            return Ok(None);
        }
        self.at += 2;
        self.expect("of")?;
        self.integer().map(Some)
    }

    /// Takes `in pairs`, if that is next: a swizzle's.
    pub fn pairs(&mut self) -> bool {
        let found = self.is("in") && self.second_is("pairs");
        self.at += 2 * usize::from(found);
        found
    }

    /// "expected X, found Y" at the next token.
    pub fn expected(&self, what: &str) -> Diag {
        let is_end = self.peek().kind == TokenKind::End;
        let found = if is_end { "end of text".to_owned() } else { format!("`{}`", self.peek_text()) };
        self.error("syntax", format!("expected {what}, found {found}"))
    }

    /// Line and column of what comes next, both from 1.
    pub fn position(&self) -> (u32, u32) {
        position(self.text, self.peek().start)
    }

    /// A problem at the next token.
    pub fn error(&self, slug: &'static str, message: impl Into<String>) -> Diag {
        let (line, column) = self.position();
        Diag::new(slug, message).at(line, column)
    }

    /// Runs `parse` one level deeper.
    ///
    /// # Errors
    /// Where the text nests too deeply.
    pub fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.error("syntax", "text is nested too deeply"));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// A word.
    pub fn word(&mut self, what: &str) -> Result<&'a str> {
        if self.peek().kind != TokenKind::Word {
            return Err(self.expected(what));
        }
        let token = self.take();
        Ok(self.slice(token))
    }

    /// A name: a word, or text in quotes.
    pub fn name(&mut self, what: &str) -> Result<String> {
        let is_quoted = self.peek().kind == TokenKind::Str;
        if is_quoted { self.string() } else { self.word(what).map(str::to_owned) }
    }

    /// The name of a value, without its `%`.
    pub fn value_name(&mut self) -> Result<String> {
        self.sigil_name(TokenKind::Value, "a value such as `%x`")
    }

    /// What an item begins with, as `graph @mlp on cpu {`: its name, without the `@`, and its device.
    pub fn head(&mut self, noun: &str) -> Result<(String, Device)> {
        self.expect(noun)?;
        let name = self.item_name()?;
        self.expect("on")?;
        let device = self.device()?;
        self.expect("{")?;
        Ok((name, device))
    }

    /// The name of an item, without its `@`.
    pub fn item_name(&mut self) -> Result<String> {
        self.sigil_name(TokenKind::Item, "a name such as `@mlp`")
    }

    fn sigil_name(&mut self, kind: TokenKind, what: &str) -> Result<String> {
        let token = self.peek();
        if token.kind != kind {
            return Err(self.expected(what));
        }
        let name = &self.slice(token)[1..];
        let name = if name.starts_with('"') { self.unescape(name)? } else { name.to_owned() };
        self.at += 1;
        Ok(name)
    }

    /// Text in quotes.
    pub fn string(&mut self) -> Result<String> {
        let token = self.peek();
        if token.kind != TokenKind::Str {
            return Err(self.expected("a string"));
        }
        let text = self.unescape(self.slice(token))?;
        self.at += 1;
        Ok(text)
    }

    fn unescape(&self, quoted: &str) -> Result<String> {
        let inner = &quoted[1..quoted.len() - 1];
        let Some(first) = inner.find('\\') else { return Ok(inner.to_owned()) };
        let mut text = inner[..first].to_owned();
        let mut chars = inner[first..].chars();
        while let Some(c) = chars.next() {
            if c != '\\' {
                text.push(c);
                continue;
            }
            text.push(match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(c @ ('"' | '\\')) => c,
                Some('u') => {
                    let digits = chars.as_str().strip_prefix('{').and_then(|rest| rest.split_once('}'));
                    let code = digits.and_then(|(digits, _)| u32::from_str_radix(digits, 16).ok());
                    let (Some((_, rest)), Some(c)) = (digits, code.and_then(char::from_u32)) else {
                        return Err(self.error("syntax", "expected `\\u{...}` with a character's number"));
                    };
                    chars = rest.chars();
                    c
                }
                _ => return Err(self.error("syntax", "unknown escape in string")),
            });
        }
        Ok(text)
    }

    /// An integer with an optional sign.
    pub fn integer<T: std::str::FromStr>(&mut self) -> Result<T> {
        let negative = self.is("-") && self.second_is_number();
        let digits = self.tokens[self.at + usize::from(negative)];
        if digits.kind != TokenKind::Int {
            return Err(self.expected("an integer"));
        }
        let text = format!("{}{}", if negative { "-" } else { "" }, self.slice(digits));
        let value =
            text.parse().map_err(|_| self.error("number-range", format!("{text} is out of range")))?;
        self.at += 1 + usize::from(negative);
        Ok(value)
    }

    /// Whether a number follows the next token.
    pub fn second_is_number(&self) -> bool {
        let number = |token: &Token| matches!(token.kind, TokenKind::Int | TokenKind::Float);
        self.tokens.get(self.at + 1).is_some_and(number)
    }

    /// Whether a float comes next, as in `0.5`, `-1e-5`, `inf`, `-inf`, `nan`.
    pub fn is_float(&self) -> bool {
        let float =
            |token: Token| token.kind == TokenKind::Float || matches!(self.slice(token), "inf" | "nan");
        match self.tokens.get(self.at + 1) {
            Some(&second) if self.is("-") => float(second),
            _ => float(self.peek()),
        }
    }

    /// A float with an optional sign.
    pub fn float(&mut self) -> Result<f64> {
        if !self.is_float() {
            return Err(self.expected("a float"));
        }
        let sign = if self.eat("-") { -1.0 } else { 1.0 };
        let token = self.take();
        let magnitude: f64 = match self.slice(token) {
            "inf" => f64::INFINITY,
            "nan" => f64::NAN,
            digits => digits.parse().map_err(|_| self.expected("a float"))?,
        };
        // Multiplying keeps the sign of zero, and nan stays the one nan that is printed.
        Ok(if magnitude.is_nan() { magnitude } else { sign * magnitude })
    }

    /// Whether a literal comes next.
    pub fn is_literal(&self) -> bool {
        self.is("true")
            || self.is("false")
            || self.is("-")
            || self.is_float()
            || self.peek().kind == TokenKind::Int
    }

    /// A literal: `true`, `3`, `-0.5`, `nan`.
    pub fn scalar(&mut self) -> Result<Scalar> {
        if self.eat("true") {
            Ok(Scalar::Bool(true))
        } else if self.eat("false") {
            Ok(Scalar::Bool(false))
        } else if self.is_float() {
            self.float().map(Scalar::Float)
        } else {
            self.integer().map(Scalar::Int)
        }
    }

    /// The longest expression at this place.
    pub fn expr(&mut self) -> Result<Expr> {
        let start = self.peek().start;
        let (expr, length) = parse_prefix(&self.text[start..])
            .map_err(|found| error(self.text, start + found.offset, found.message))?;
        let end = start + length;
        while self.peek().start < end {
            // A token that reaches past the expression is none of its own, such as the float `1.5`.
            if self.peek().end > end {
                return Err(self.expected("an expression"));
            }
            self.at += 1;
        }
        Ok(expr)
    }

    /// A comparison of two expressions.
    pub fn rel(&mut self) -> Result<Rel> {
        const OPERATORS: [(&str, fn(Expr, Expr) -> Rel); 6] = [
            ("==", Rel::eq),
            ("!=", Rel::ne),
            ("<=", Rel::le),
            (">=", Rel::ge),
            ("<", Rel::lt),
            (">", Rel::gt),
        ];
        let lhs = self.expr()?;
        let Some((_, build)) = OPERATORS.iter().find(|(operator, _)| self.is(operator)) else {
            return Err(self.expected("a comparison"));
        };
        self.at += 1;
        Ok(build(lhs, self.expr()?))
    }

    /// `a <= b`, or several with `or` between them.
    pub fn clause(&mut self) -> Result<Clause> {
        let mut alternatives = vec![self.rel()?];
        while self.eat("or") {
            alternatives.push(self.rel()?);
        }
        Ok(Clause::new(alternatives))
    }

    /// One or more items between commas.
    pub fn commas<T>(&mut self, mut parse: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![parse(self)?];
        while self.eat(",") {
            items.push(parse(self)?);
        }
        Ok(items)
    }

    /// Items between commas, within brackets.
    pub fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        parse: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.expect(open)?;
        if self.eat(close) {
            return Ok(Vec::new());
        }
        let items = self.commas(parse)?;
        self.expect(close)?;
        Ok(items)
    }

    /// `if a <= b, c < d`, or nothing: a statement `if a <= b {` may follow.
    pub fn guards(&mut self) -> Result<Vec<Rel>> {
        let start = self.at;
        if !self.eat("if") {
            return Ok(Vec::new());
        }
        let guards = self.commas(Cursor::rel)?;
        if self.is("{") {
            self.at = start;
            return Ok(Vec::new());
        }
        Ok(guards)
    }

    /// Guards, and what a load of type `ty` gives where they fail: `if a <= b else 0.0`, or nothing.
    pub fn guarded(&mut self, ty: Dtype) -> Result<(Vec<Rel>, Scalar)> {
        let guards = self.guards()?;
        if guards.is_empty() {
            return Ok((guards, Scalar::zero(ty)));
        }
        self.expect("else")?;
        Ok((guards, self.scalar()?))
    }

    /// The text between a bracket that comes next and the one that closes it; both are taken.
    pub fn bracketed(&mut self) -> Result<&'a str> {
        if !self.is("(") && !self.is("[") {
            return Err(self.expected("`(`"));
        }
        let open = self.take();
        let (mut depth, mut end) = (1, open);
        while depth > 0 {
            end = self.peek();
            if end.kind == TokenKind::End {
                return Err(self.expected("a closing bracket"));
            }
            match self.slice(end) {
                "(" | "[" => depth += 1,
                ")" | "]" => depth -= 1,
                _ => {}
            }
            self.take();
        }
        Ok(&self.text[open.end..end.start])
    }

    /// The text from a byte offset up to what comes next, without blanks and comments before that.
    pub fn since(&self, start: usize) -> &'a str {
        let end = self.tokens[..self.at].last().map_or(start, |last| last.end);
        &self.text[start..end.max(start)]
    }

    /// A problem at a token.
    pub fn error_at(&self, token: Token, message: impl Into<String>) -> Diag {
        error(self.text, token.start, message)
    }

    /// `keyword(expressions)`, or nothing.
    pub fn optional_exprs(&mut self, keyword: &str) -> Result<Vec<Expr>> {
        if self.eat(keyword) { self.list("(", ")", Cursor::expr) } else { Ok(Vec::new()) }
    }

    /// `for "x must be small"`, or nothing.
    pub fn optional_message(&mut self) -> Result<Option<String>> {
        if self.eat("for") { self.string().map(Some) } else { Ok(None) }
    }

    /// Items between commas up to the `}` that ends the text's item; `}` is taken.
    pub fn last_line<T>(&mut self, parse: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let items = if self.is("}") { Vec::new() } else { self.commas(parse)? };
        self.expect("}")?;
        Ok(items)
    }

    /// A symbol's name.
    pub fn sym(&mut self) -> Result<Sym> {
        let text = self.peek_text();
        let is_name = matches!(self.peek().kind, TokenKind::Word | TokenKind::Value);
        if !is_name || !Sym::is_identifier(text) {
            return Err(self.expected("a symbol"));
        }
        self.at += 1;
        Ok(Sym::new(text))
    }

    /// `i in s0`.
    pub fn axis(&mut self) -> Result<Axis> {
        let var = self.sym()?;
        self.expect("in")?;
        Ok(Axis { var, extent: self.expr()? })
    }

    /// `i in s0, j in 96 grain 4` or `i in s0 persistent 132 teams 2 registers 168`: axes, grain, blocks and registers. The axes may be
    /// missing, and the grain, which is 1 then.
    pub fn grid(&mut self) -> Result<(Vec<Axis>, u64, Option<Persistent>, Option<u32>)> {
        let axes = if self.second_is("in") { self.commas(Cursor::axis)? } else { Vec::new() };
        let grain = if self.eat("grain") { self.integer()? } else { 1 };
        let persistent = match self.eat("persistent") {
            true => {
                let blocks = self.integer()?;
                Some(Persistent { blocks, teams: if self.eat("teams") { self.integer()? } else { 1 } })
            }
            false => None,
        };
        let registers = if self.eat("registers") { Some(self.integer()?) } else { None };
        Ok((axes, grain, persistent, registers))
    }

    /// `from 8`, the first of a level that runs a loop, and `by 4`, how many run each iteration; both may be missing.
    pub fn team(&mut self, level: Level) -> Result<Team> {
        let from = if self.eat("from") { self.integer()? } else { 0 };
        let each = if self.eat("by") { self.integer()? } else { 1 };
        Ok(Team { level, from, each })
    }

    /// `by 16`, `by 16 copies 4`: lanes of a vector, and vectors in flight.
    pub fn lanes(&mut self) -> Result<(u32, u32)> {
        self.expect("by")?;
        let lanes = self.integer()?;
        let copies = if self.eat("copies") { self.integer()? } else { 1 };
        Ok((lanes, copies))
    }

    /// The text from here up to the next token spelled `end`, which stays; not empty.
    fn text_before(&mut self, end: &str) -> Result<&'a str> {
        let first = self.peek();
        let mut last = None;
        while !self.is(end) && self.peek().kind != TokenKind::End {
            last = Some(self.take());
        }
        let last = last.ok_or_else(|| self.expected("text"))?;
        Ok(&self.text[first.start..last.end])
    }

    /// A target, which is all up to that word or punctuation.
    pub fn target_before(&mut self, end: &str) -> Result<Target> {
        let (line, column) = position(self.text, self.peek().start);
        self.text_before(end)?.parse().map_err(|error: Diag| error.at(line, column))
    }

    /// `f32`.
    pub fn dtype(&mut self) -> Result<Dtype> {
        let dtype = Dtype::from_name(self.peek_text()).ok_or_else(|| self.expected("an element type"))?;
        self.at += 1;
        Ok(dtype)
    }

    /// `[sizes]{strides}`, the strides row-major if not given.
    pub fn shape(&mut self) -> Result<(Vec<Expr>, Vec<Expr>)> {
        let sizes = self.list("[", "]", Cursor::expr)?;
        let strides =
            if self.is("{") { self.list("{", "}", Cursor::expr)? } else { contiguous_strides(&sizes) };
        Ok((sizes, strides))
    }

    /// `f32[s0, 768]{1, s0}` or `f32[s0, 768] on cuda:1`, in a text whose first line names the device `head`.
    pub fn tensor_type(&mut self, head: Device) -> Result<TensorType> {
        let dtype = self.dtype()?;
        let (sizes, strides) = self.shape()?;
        Ok(TensorType { dtype, sizes, strides, device: self.on(head)? })
    }

    /// `on cuda:1`, or nothing, which stands for `head`.
    pub fn on(&mut self, head: Device) -> Result<Device> {
        if self.eat("on") { self.device() } else { Ok(head) }
    }

    /// `stream 1`, or nothing, which is the first.
    pub fn of_stream(&mut self) -> Result<u32> {
        if self.eat("stream") { self.integer() } else { Ok(0) }
    }

    /// `f32[12*s0]`: a flat array.
    pub fn flat_type(&mut self) -> Result<(Dtype, Expr)> {
        let dtype = self.dtype()?;
        self.expect("[")?;
        let extent = self.expr()?;
        self.expect("]")?;
        Ok((dtype, extent))
    }

    /// `cpu`, `cuda:0`, `ref:1`.
    pub fn device(&mut self) -> Result<Device> {
        if self.eat("cpu") {
            return Ok(Device::Cpu);
        }
        let kind = match self.peek_text() {
            "cuda" => Device::Cuda,
            "ref" => Device::Ref,
            _ => return Err(self.expected("a device")),
        };
        self.at += 1;
        self.expect(":")?;
        self.integer().map(kind)
    }

    /// A `sym` or `guard` line, if one comes next.
    pub fn fact(&mut self, facts: &mut Facts) -> Result<bool> {
        if self.eat("sym") {
            self.declaration(facts)?;
            return Ok(true);
        }
        if !self.is("guard") {
            return Ok(false);
        }
        let start = self.at;
        self.at += 1;
        let clause = self.clause()?;
        self.expect("for")?;
        let who = self.string()?;
        if let Err(contradiction) = facts.restore(clause, &who) {
            self.at = start;
            return Err(self.error("contradiction", contradiction.to_string()));
        }
        Ok(true)
    }

    /// `s0 in [2, 1024] multiple 8 hint 16`; a symbol about which nothing is said is not declared.
    pub fn declaration(&mut self, facts: &mut Facts) -> Result<Sym> {
        let sym = self.sym()?;
        let (mut range, mut divisor, mut hint) = (None, 1, None);
        if self.eat("in") {
            range = Some(self.range()?);
        }
        if self.eat("multiple") {
            divisor = self.integer()?;
        }
        if self.eat("hint") {
            hint = Some(self.integer()?);
        }
        if range.is_some() || divisor != 1 || hint.is_some() {
            facts.declare(sym, range.unwrap_or(Range::ALL), hint);
            facts.declare_divisor(sym, divisor);
        }
        Ok(sym)
    }

    fn range(&mut self) -> Result<Range> {
        self.expect("[")?;
        let lo = if self.is("-") && self.second_is("inf") {
            self.at += 2;
            i64::MIN
        } else {
            self.integer()?
        };
        self.expect(",")?;
        let hi = if self.eat("inf") { i64::MAX } else { self.integer()? };
        self.expect("]")?;
        Ok(Range { lo, hi })
    }
}

/// What the names of a text stand for.
pub(crate) struct Names<K> {
    /// What they name, for messages.
    what: &'static str,
    /// Slug for names that stand for nothing.
    slug: &'static str,
    map: HashMap<String, K>,
}

impl<K: Copy> Names<K> {
    pub fn new(what: &'static str, slug: &'static str) -> Names<K> {
        Names { what, slug, map: HashMap::new() }
    }

    /// From here on, `name` stands for `id`.
    pub fn define(&mut self, name: impl Into<String>, id: K) {
        self.map.insert(name.into(), id);
    }

    /// What `name` stands for.
    pub fn get(&self, name: &str) -> Option<K> {
        self.map.get(name).copied()
    }

    /// Reads a bare or quoted name.
    pub fn name(&self, cx: &mut Cursor) -> Result<K> {
        self.lookup(cx, |cx| cx.name(self.what))
    }

    /// Reads `%name`.
    pub fn value(&self, cx: &mut Cursor) -> Result<K> {
        self.lookup(cx, |cx| cx.value_name())
    }

    fn lookup(&self, cx: &mut Cursor, read: impl FnOnce(&mut Cursor) -> Result<String>) -> Result<K> {
        let start = cx.at;
        let name = read(cx)?;
        if let Some(id) = self.get(&name) {
            return Ok(id);
        }
        cx.at = start;
        Err(cx.error(self.slug, format!("expected {}, found `{name}`, which is not defined here", self.what)))
    }
}
