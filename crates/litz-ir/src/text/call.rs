//! Prints and parses arguments of the host's operators, for loops and programs.

use std::fmt::{self, Display, Formatter};

use crate::call::{CallArg, CallResult};
use crate::graph::Float;
use crate::scalar::Scalar;
use crate::text::cursor::{Cursor, Result};
use crate::text::graph::{Literal, is_keyword, literal};
use crate::text::lexer::TokenKind;
use crate::text::print::{Quoted, commas};

/// Prints an argument; `tensor` prints what a tensor is.
pub(crate) fn write_arg<T>(
    f: &mut Formatter,
    arg: &CallArg<T>,
    tensor: &impl Fn(&mut Formatter, &T) -> fmt::Result,
) -> fmt::Result {
    match arg {
        CallArg::None => f.write_str("none"),
        CallArg::Tensor(view) => tensor(f, view),
        CallArg::Update(view) => {
            f.write_str("update ")?;
            tensor(f, view)
        }
        CallArg::List(items) => {
            f.write_str("[")?;
            commas(f, items, |f, item| write_arg(f, item, tensor))?;
            f.write_str("]")
        }
        CallArg::Int(value) => value.fmt(f),
        CallArg::Float(value) => Scalar::Float(value.0).fmt(f),
        CallArg::Bool(value) => value.fmt(f),
        CallArg::Complex(re, im) => write!(f, "complex({}, {})", Scalar::Float(re.0), Scalar::Float(im.0)),
        CallArg::Str(text) => Quoted(text).fmt(f),
        CallArg::Dtype(dtype) => dtype.fmt(f),
        CallArg::Device(device) => device.fmt(f),
        CallArg::Strided => f.write_str("strided"),
        CallArg::MemoryFormat(format) => f.write_str(format.name()),
    }
}

/// Prints results, and what arguments share; `result` prints where a result goes, `shared` what is shared.
pub(crate) fn write_results<T, S>(
    f: &mut Formatter,
    results: &[CallResult<T>],
    sharing: &[S],
    result: &impl Fn(&mut Formatter, &T) -> fmt::Result,
    shared: &impl Fn(&mut Formatter, &S) -> fmt::Result,
) -> fmt::Result {
    f.write_str("(")?;
    commas(f, results, |f, item| match item {
        CallResult::Nothing => f.write_str("_"),
        CallResult::Whole(to) => result(f, to),
        CallResult::Sizes(to, dtype) => {
            f.write_str("sizes ")?;
            result(f, to)?;
            write!(f, " of {dtype}")
        }
    })?;
    f.write_str(")")?;
    if sharing.is_empty() {
        return Ok(());
    }
    f.write_str(" sharing ")?;
    commas(f, sharing, |f, item| shared(f, item))
}

/// Reads results, and what arguments share, as [`write_results`] prints them.
pub(crate) fn results<T, S>(
    cx: &mut Cursor,
    result: &mut impl FnMut(&mut Cursor) -> Result<T>,
    shared: &mut impl FnMut(&mut Cursor) -> Result<S>,
) -> Result<(Vec<CallResult<T>>, Vec<S>)> {
    let is_name = |kind: TokenKind| matches!(kind, TokenKind::Word | TokenKind::Str);
    let results = cx.list("(", ")", |cx| {
        if cx.eat("_") {
            return Ok(CallResult::Nothing);
        }
        if !(cx.is("sizes") && is_name(cx.second_kind()) && !cx.second_is("as")) {
            return result(cx).map(CallResult::Whole);
        }
        cx.take();
        let to = result(cx)?;
        cx.expect("of")?;
        Ok(CallResult::Sizes(to, cx.dtype()?))
    })?;
    let sharing = if cx.eat("sharing") { cx.commas(shared)? } else { Vec::new() };
    Ok((results, sharing))
}

/// Reads an argument; `tensor` reads what a tensor is: a name with `as` behind it, and more.
pub(crate) fn arg<T>(
    cx: &mut Cursor,
    tensor: &mut impl FnMut(&mut Cursor) -> Result<T>,
) -> Result<CallArg<T>> {
    let is_name = |kind: TokenKind| matches!(kind, TokenKind::Word | TokenKind::Str);
    if is_name(cx.peek().kind) && cx.second_is("as") {
        return tensor(cx).map(CallArg::Tensor);
    }
    if cx.is("update") && is_name(cx.second_kind()) {
        cx.take();
        return tensor(cx).map(CallArg::Update);
    }
    if cx.is("[") {
        return cx.nested(|cx| cx.list("[", "]", |cx| arg(cx, tensor))).map(CallArg::List);
    }
    if cx.peek().kind == TokenKind::Str {
        return cx.string().map(CallArg::Str);
    }
    if let Some(literal) = literal(cx)? {
        return Ok(match literal {
            Literal::None => CallArg::None,
            Literal::Bool(value) => CallArg::Bool(value),
            Literal::Strided => CallArg::Strided,
            Literal::Device(device) => CallArg::Device(device),
            Literal::Complex(re, im) => CallArg::Complex(re, im),
            Literal::MemoryFormat(format) => CallArg::MemoryFormat(format),
            Literal::Dtype(dtype) => CallArg::Dtype(dtype),
        });
    }
    if cx.is_float() {
        return cx.float().map(|value| CallArg::Float(Float(value)));
    }
    let value = cx.expr()?;
    match value.syms().into_iter().find(|sym| is_keyword(sym.name())) {
        Some(sym) => Err(cx.error("symbol-name", format!("`{sym}` cannot be the name of a symbol"))),
        None => Ok(CallArg::Int(value)),
    }
}
