//! Prints and parses graphs.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use crate::diag::Diags;
use crate::dtype::Dtype;
use crate::graph::{
    Arg, Constraint, Device, Float, Form, Graph, MemoryFormat, Node, OpDecl, OpName, Origin, Part, Type,
    Value,
};
use crate::scalar::Scalar;
use crate::schema::{OpSchema, Tag};
use crate::text::cursor::{Cursor, Names, Result, parse_whole};
use crate::text::lexer::TokenKind;
use crate::text::print::{Indent, Name, Quoted, Sigil, Under, commas, write_facts};

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write_graph(f, self, 0)
    }
}

fn write_graph(f: &mut Formatter, graph: &Graph, depth: usize) -> fmt::Result {
    let (outer, inner) = (Indent(depth), Indent(depth + 1));
    writeln!(f, "{outer}graph {} on {} {{", Sigil('@', &graph.name), graph.device)?;
    write_facts(f, inner, &graph.facts)?;
    for op in &graph.ops {
        writeln!(f, "{inner}{op}")?;
    }
    for subgraph in &graph.subgraphs {
        write_graph(f, subgraph, depth + 1)?;
    }
    for &input in &graph.inputs {
        let donated = if graph.donated.contains(&input) { " donated" } else { "" };
        writeln!(f, "{inner}{} = input{donated}", typed(graph, input))?;
    }
    for (value, name) in &graph.consts {
        writeln!(f, "{inner}{} = const {}", typed(graph, *value), Quoted(name))?;
    }
    for node in &graph.nodes {
        writeln!(f, "{inner}{}", InGraph(graph, node))?;
    }
    for &(target, source) in &graph.updates {
        writeln!(f, "{inner}update {} = {}", InGraph(graph, &target), InGraph(graph, &source))?;
    }
    write!(f, "{inner}return{}", if graph.outputs.is_empty() { "" } else { " " })?;
    commas(f, &graph.outputs, |f, output| InGraph(graph, output).fmt(f))?;
    writeln!(f, "\n{outer}}}")
}

/// `op mylib.foo.default(Tensor x) -> Tensor order effect log tag nondeterministic_seeded`.
impl Display for OpDecl {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "op {}", self.schema)?;
        if self.layout != Constraint::Exact {
            write!(f, " {}", self.layout.name())?;
        }
        if let Some(effect) = &self.effect {
            write!(f, " effect {}", Name(effect))?;
        }
        self.schema.tags.iter().try_for_each(|tag| write!(f, " tag {}", tag.name()))
    }
}

/// `%x: f32[s0, 768]`.
fn typed(graph: &Graph, value: Value) -> impl Display {
    let ty = Under(graph.device, &graph.values[value].ty);
    fmt::from_fn(move |f| write!(f, "{}: {ty}", InGraph(graph, &value)))
}

/// Something printed with the names of its graph.
pub(crate) struct InGraph<'a, T>(pub &'a Graph, pub &'a T);

impl Display for InGraph<'_, Value> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        Sigil('%', &self.0.values[*self.1].name).fmt(f)
    }
}

impl Display for InGraph<'_, Node> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let InGraph(graph, node) = *self;
        commas(f, &node.outputs, |f, output| match *output {
            Some(value) => typed(graph, value).fmt(f),
            None => f.write_str("_"),
        })?;
        let form = match node.form {
            Form::Plain => "",
            Form::Host => "host ",
            Form::Functional => "functional ",
        };
        let equals = if node.outputs.is_empty() { "" } else { " = " };
        write!(f, "{equals}{form}{}(", Name(node.op.as_str()))?;
        commas(f, &node.args, |f, arg| InGraph(graph, arg).fmt(f))?;
        f.write_str(")")?;
        let name = node.outputs.iter().flatten().next().map(|&value| graph.values[value].name.as_str());
        write_origin(f, node.origin.as_deref(), name)
    }
}

impl Display for InGraph<'_, Arg> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let graph = self.0;
        match self.1 {
            Arg::None => f.write_str("none"),
            Arg::Value(value) => InGraph(graph, value).fmt(f),
            Arg::List(items) => {
                f.write_str("[")?;
                commas(f, items, |f, item| InGraph(graph, item).fmt(f))?;
                f.write_str("]")
            }
            Arg::Int(value) => value.fmt(f),
            Arg::Float(value) => Scalar::Float(value.0).fmt(f),
            Arg::Bool(value) => value.fmt(f),
            Arg::Complex(re, im) => write!(f, "complex({}, {})", Scalar::Float(re.0), Scalar::Float(im.0)),
            Arg::Str(text) => Quoted(text).fmt(f),
            Arg::Dtype(dtype) => dtype.fmt(f),
            Arg::Device(device) => device.fmt(f),
            Arg::Strided => f.write_str("strided"),
            Arg::MemoryFormat(format) => f.write_str(format.name()),
            Arg::Graph(name) => Sigil('@', name).fmt(f),
            Arg::Part(Part { of, sizes, strides, offset }) => {
                write!(f, "part({of}, [")?;
                commas(f, sizes, |f, size| size.fmt(f))?;
                f.write_str("], [")?;
                commas(f, strides, |f, stride| stride.fmt(f))?;
                write!(f, "], {offset})")
            }
        }
    }
}

/// Reads one graph.
///
/// # Errors
/// Where the text is no graph, or names a value that no earlier line defines.
pub fn parse(text: &str) -> std::result::Result<Graph, Diags> {
    parse_whole(text, graph)
}

/// Reads one declaration, without the word `op`: `mylib.foo.default(Tensor x) -> Tensor order effect log`.
///
/// # Errors
/// Where the text is no declaration.
pub fn parse_declaration(text: &str) -> std::result::Result<OpDecl, Diags> {
    parse_whole(text, declaration)
}

fn declaration(cx: &mut Cursor) -> Result<OpDecl> {
    let start = cx.peek();
    let name = cx.word("an operator")?.to_owned();
    let args = cx.bracketed()?;
    cx.expect("->")?;
    let from = cx.peek().start;
    if cx.is("(") {
        cx.bracketed()?;
    } else {
        cx.word("a result type")?;
        while cx.is("(") || cx.is("[") || cx.is("?") {
            if !cx.eat("?") {
                cx.bracketed()?;
            }
        }
    }
    let returns = cx.since(from);
    let mut layout = None;
    let constraint = |cx: &mut Cursor| Constraint::ALL.into_iter().find(|known| cx.eat(known.name()));
    if let Some(stated) = constraint(cx) {
        layout = Some(stated);
    }
    let effect = if cx.eat("effect") { Some(cx.name("an effect")?) } else { None };
    let mut tags = Vec::new();
    while cx.eat("tag") {
        let name = cx.word("a tag")?;
        tags.push(Tag::from_name(name).ok_or_else(|| cx.error("syntax", format!("`{name}` is no tag")))?);
    }
    let schema = OpSchema::of_signature(name, args, returns, tags)
        .map_err(|expected| cx.error_at(start, format!("declaration: expected {expected}")))?;
    Ok(OpDecl { schema, layout: layout.unwrap_or_default(), effect })
}

/// A graph being read.
struct Reader {
    graph: Graph,
    values: Names<Value>,
}

fn graph(cx: &mut Cursor) -> Result<Graph> {
    let (name, device) = cx.head("graph")?;
    let graph = Graph::new(name, device);
    let mut reader = Reader { graph, values: Names::new("a value", "undefined-value") };
    while !cx.eat("return") {
        reader.line(cx)?;
    }
    reader.graph.outputs = cx.last_line(|cx| reader.arg(cx))?;
    Ok(reader.graph)
}

impl Reader {
    fn line(&mut self, cx: &mut Cursor) -> Result<()> {
        if cx.fact(&mut self.graph.facts)? {
            return Ok(());
        }
        if cx.is("op") && !cx.second_is("(") {
            cx.take();
            self.graph.ops.push(declaration(cx)?);
            return Ok(());
        }
        if cx.is("graph") {
            let subgraph = cx.nested(graph)?;
            self.graph.subgraphs.push(subgraph);
            return Ok(());
        }
        if cx.eat("update") {
            let target = self.values.value(cx)?;
            cx.expect("=")?;
            let source = self.values.value(cx)?;
            self.graph.updates.push((target, source));
            return Ok(());
        }
        self.definition(cx)
    }

    /// `%x: f32[2] = input`, `= const "name"`, or a node.
    fn definition(&mut self, cx: &mut Cursor) -> Result<()> {
        let is_result = |cx: &Cursor| cx.peek().kind == TokenKind::Value || cx.is("_");
        if !is_result(cx) {
            return self.node(cx, Vec::new());
        }
        let head = self.graph.device;
        let result = |cx: &mut Cursor| if cx.eat("_") { Ok(None) } else { typed_name(cx, head).map(Some) };
        let results = cx.commas(result)?;
        cx.expect("=")?;
        match &results[..] {
            [Some((name, ty))] if cx.eat("input") => {
                let value = self.define(name.clone(), ty.clone());
                self.graph.inputs.push(value);
                if cx.eat("donated") {
                    self.graph.donated.push(value);
                }
                Ok(())
            }
            [Some((name, ty))] if cx.eat("const") => {
                let value = self.define(name.clone(), ty.clone());
                self.graph.consts.push((value, cx.string()?));
                Ok(())
            }
            _ => self.node(cx, results),
        }
    }

    fn define(&mut self, name: String, ty: Type) -> Value {
        let value = self.graph.value(name.clone(), ty);
        self.values.define(name, value);
        value
    }

    fn node(&mut self, cx: &mut Cursor, results: Vec<Option<(String, Type)>>) -> Result<()> {
        let form = match cx.peek_text() {
            "host" if !cx.second_is("(") => Form::Host,
            "functional" if !cx.second_is("(") => Form::Functional,
            _ => Form::Plain,
        };
        if form != Form::Plain {
            cx.take();
        }
        let op = OpName::new(cx.name("an operator")?);
        let args = cx.list("(", ")", |cx| self.arg(cx))?;
        let origin = origin(cx)?.map(Arc::new);
        // Results are in scope only after the node, so that it cannot use them itself.
        let mut define = |(name, ty)| self.define(name, ty);
        let outputs = results.into_iter().map(|result| result.map(&mut define)).collect();
        self.graph.nodes.push(Node { op, form, args, outputs, origin });
        Ok(())
    }

    fn arg(&self, cx: &mut Cursor) -> Result<Arg> {
        match cx.peek().kind {
            TokenKind::Value => return self.values.value(cx).map(Arg::Value),
            TokenKind::Item => return cx.item_name().map(Arg::Graph),
            TokenKind::Str => return cx.string().map(Arg::Str),
            TokenKind::Word => {
                if cx.is("part") && cx.second_is("(") {
                    return part(cx).map(Arg::Part);
                }
                if let Some(arg) = keyword(cx)? {
                    return Ok(arg);
                }
            }
            TokenKind::Int | TokenKind::Float | TokenKind::Punct | TokenKind::End => {}
        }
        if cx.is("[") {
            return cx.nested(|cx| cx.list("[", "]", |cx| self.arg(cx))).map(Arg::List);
        }
        if cx.is_float() {
            return cx.float().map(|value| Arg::Float(Float(value)));
        }
        let value = cx.expr()?;
        match value.syms().into_iter().find(|sym| is_keyword(sym.name())) {
            Some(sym) => Err(cx.error("symbol-name", format!("`{sym}` cannot be the name of a symbol"))),
            None => Ok(Arg::Int(value)),
        }
    }
}

/// `part(0, [2, 4], [4, 1], 12)`
fn part(cx: &mut Cursor) -> Result<Part> {
    cx.expect("part")?;
    cx.expect("(")?;
    let of = cx.integer()?;
    cx.expect(",")?;
    let sizes = cx.list("[", "]", Cursor::expr)?;
    cx.expect(",")?;
    let strides = cx.list("[", "]", Cursor::expr)?;
    cx.expect(",")?;
    let offset = cx.expr()?;
    cx.expect(")")?;
    Ok(Part { of, sizes, strides, offset })
}

/// `%x: f32[s0, 768]`, in a graph whose first line names the device `head`.
fn typed_name(cx: &mut Cursor, head: Device) -> Result<(String, Type)> {
    let name = cx.value_name()?;
    cx.expect(":")?;
    Ok((name, value_type(cx, head)?))
}

fn value_type(cx: &mut Cursor, head: Device) -> Result<Type> {
    if cx.eat("int") {
        cx.expect("(")?;
        let value = cx.expr()?;
        cx.expect(")")?;
        return Ok(Type::Int(value));
    }
    if cx.eat("float") {
        return Ok(Type::Float);
    }
    if cx.is("bool") && !cx.second_is("[") {
        cx.take();
        return Ok(Type::Bool);
    }
    cx.tensor_type(head).map(Type::Tensor)
}

/// What a word that is no name stands for.
pub(crate) enum Literal {
    None,
    Bool(bool),
    Strided,
    Device(Device),
    Complex(Float, Float),
    MemoryFormat(MemoryFormat),
    Dtype(Dtype),
}

/// Words that are arguments of their own; any other word starts an expression.
fn keyword(cx: &mut Cursor) -> Result<Option<Arg>> {
    Ok(literal(cx)?.map(|literal| match literal {
        Literal::None => Arg::None,
        Literal::Bool(value) => Arg::Bool(value),
        Literal::Strided => Arg::Strided,
        Literal::Device(device) => Arg::Device(device),
        Literal::Complex(re, im) => Arg::Complex(re, im),
        Literal::MemoryFormat(format) => Arg::MemoryFormat(format),
        Literal::Dtype(dtype) => Arg::Dtype(dtype),
    }))
}

/// As [`keyword`], for arguments of any IR.
pub(crate) fn literal(cx: &mut Cursor) -> Result<Option<Literal>> {
    if cx.peek().kind != TokenKind::Word {
        return Ok(None);
    }
    let word = cx.peek_text();
    let found = match word {
        "none" => Literal::None,
        "true" => Literal::Bool(true),
        "false" => Literal::Bool(false),
        "strided" => Literal::Strided,
        "cpu" | "cuda" => return cx.device().map(|device| Some(Literal::Device(device))),
        // Symbols may be called so.
        "ref" if cx.second_is(":") => return cx.device().map(|device| Some(Literal::Device(device))),
        "complex" => {
            cx.take();
            cx.expect("(")?;
            let re = cx.float()?;
            cx.expect(",")?;
            let im = cx.float()?;
            cx.expect(")")?;
            return Ok(Some(Literal::Complex(Float(re), Float(im))));
        }
        _ => match (MemoryFormat::from_name(word), Dtype::from_name(word)) {
            (Some(format), _) => Literal::MemoryFormat(format),
            (None, Some(dtype)) => Literal::Dtype(dtype),
            (None, None) => return Ok(None),
        },
    };
    cx.take();
    Ok(Some(found))
}

/// Whether a symbol of this name can be read back: an identifier that no text has another meaning for.
pub fn names_symbol(name: &str) -> bool {
    litz_sym::Sym::is_identifier(name) && !is_keyword(name)
}

/// Names that no size symbol may have, since an argument of that spelling means something else.
pub(crate) fn is_keyword(word: &str) -> bool {
    word.starts_with('%')
        || matches!(word, "none" | "true" | "false" | "strided" | "cpu" | "cuda" | "complex" | "inf" | "nan")
        || MemoryFormat::from_name(word).is_some()
        || Dtype::from_name(word).is_some()
}

/// ` at "model.py:12" in "layers.3" was "linear" stack ["model.py:12"]`, as much as is known, with a space ahead.
impl Display for Origin {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        for (word, text) in [("at", &self.line), ("in", &self.module), ("was", &self.name)] {
            if let Some(text) = text {
                write!(f, " {word} {}", Quoted(text))?;
            }
        }
        if !self.stack.is_empty() {
            f.write_str(" stack [")?;
            commas(f, &self.stack, |f, line| Quoted(line).fmt(f))?;
            f.write_str("]")?;
        }
        Ok(())
    }
}

/// As an origin is printed, without the name that a node still has.
pub(super) fn write_origin(f: &mut Formatter, origin: Option<&Origin>, name: Option<&str>) -> fmt::Result {
    let Some(origin) = origin else { return Ok(()) };
    match origin.name.as_deref() {
        Some(was) if Some(was) == name => write!(f, "{}", Origin { name: None, ..origin.clone() }),
        Some(_) | None => write!(f, "{origin}"),
    }
}

/// What [`Origin`] is printed as, if anything of it is there.
pub(super) fn origin(cx: &mut Cursor) -> Result<Option<Origin>> {
    let mut part =
        |word: &str| if cx.eat(word) { cx.string().map(|text| Some(text.into())) } else { Ok(None) };
    let (line, module, name) = (part("at")?, part("in")?, part("was")?);
    let stack = match cx.eat("stack") {
        true => cx.list("[", "]", |cx| cx.string().map(Arc::from))?,
        false => Vec::new(),
    };
    let origin = Origin { line, module, name, stack };
    Ok(Some(origin).filter(|origin| *origin != Origin::default()))
}
