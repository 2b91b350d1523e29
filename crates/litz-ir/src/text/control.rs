//! Prints and parses calls of functions, which loops and programs spell alike.

use std::fmt::{self, Display, Formatter};

use crate::loops::{Control, FunctionCall};
use crate::text::cursor::{Cursor, Result};
use crate::text::print::{Sigil, commas};

/// The word that begins such a statement or step.
pub(crate) fn word(control: &Control) -> &'static str {
    match control {
        Control::Call(_) => "call",
        Control::Branch { .. } => "branch",
        Control::While { .. } => "while",
    }
}

/// What stands before each of the calls.
fn words(control: &Control) -> &'static [&'static str] {
    match control {
        Control::Call(_) => &[""],
        Control::Branch { .. } => &["then ", "else "],
        Control::While { .. } => &["by ", "do "],
    }
}

/// ` on p then @yes(x) sizes(s0 = 2*s1) else @no(x) -> (y)`.
pub(crate) fn write_control<T, N: Display>(
    f: &mut Formatter,
    control: &Control,
    (reads, writes): (&[T], &[T]),
    name: &dyn Fn(&T) -> N,
) -> fmt::Result {
    let (own_reads, own_writes) = control.own();
    let own = reads.iter().take(own_reads).chain(writes.iter().take(own_writes));
    f.write_str(if own_reads + own_writes == 0 { " " } else { " on " })?;
    for operand in own {
        write!(f, "{} ", name(operand))?;
    }
    for ((call, args, _), word) in control.operands(reads, writes).into_iter().zip(words(control)) {
        write!(f, "{word}{}(", Sigil('@', &call.function))?;
        commas(f, args, |f, operand| name(operand).fmt(f))?;
        f.write_str(")")?;
        if !call.sizes.is_empty() {
            f.write_str(" sizes(")?;
            commas(f, &call.sizes, |f, (sym, value)| write!(f, "{sym} = {value}"))?;
            f.write_str(")")?;
        }
        f.write_str(" ")?;
    }
    f.write_str("-> (")?;
    commas(f, writes.get(own_writes..).unwrap_or(&[]), |f, operand| name(operand).fmt(f))?;
    f.write_str(")")
}

/// How functions are called, what is read, and what is written.
pub(crate) type Parsed<T> = (Control, Vec<T>, Vec<T>);

/// What follows `word` and a name.
pub(crate) fn control<T>(
    cx: &mut Cursor,
    word: &str,
    operand: &dyn Fn(&mut Cursor) -> Result<T>,
) -> Result<Parsed<T>> {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let control = match word {
        "call" => Control::Call(call(cx, &mut reads, operand)?),
        "branch" => {
            cx.expect("on")?;
            reads.push(operand(cx)?);
            cx.expect("then")?;
            let then = call(cx, &mut reads, operand)?;
            cx.expect("else")?;
            Control::Branch { then, other: call(cx, &mut reads, operand)? }
        }
        _ => {
            cx.expect("on")?;
            writes.push(operand(cx)?);
            cx.expect("by")?;
            let cond = call(cx, &mut reads, operand)?;
            cx.expect("do")?;
            Control::While { cond, body: call(cx, &mut reads, operand)? }
        }
    };
    cx.expect("->")?;
    writes.extend(cx.list("(", ")", |cx| operand(cx))?);
    Ok((control, reads, writes))
}

/// `@f(x, w) sizes(s0 = 2*s1)`; the arguments are added to what is read.
fn call<T>(
    cx: &mut Cursor,
    reads: &mut Vec<T>,
    operand: &dyn Fn(&mut Cursor) -> Result<T>,
) -> Result<FunctionCall> {
    let function = cx.item_name()?;
    let args = cx.list("(", ")", |cx| operand(cx))?;
    let size = |cx: &mut Cursor| {
        let sym = cx.sym()?;
        cx.expect("=")?;
        Ok((sym, cx.expr()?))
    };
    let sizes = if cx.eat("sizes") { cx.list("(", ")", size)? } else { Vec::new() };
    let count = args.len();
    reads.extend(args);
    Ok(FunctionCall { function, args: count, sizes })
}
