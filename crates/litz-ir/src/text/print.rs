//! Prints the pieces that all five texts share: names, strings, lists, shapes, facts.

use std::fmt::{self, Display, Formatter};

use litz_sym::{Expr, Facts, Rel, Sym};

use crate::graph::{Device, Type, contiguous_strides};
use crate::target::{Persistent, Team};
use crate::{graph::TensorType, loops::Axis};

/// Words that start something wherever a name could stand; names spelled like one are printed in quotes.
const RESERVED: [&str; 44] = [
    "_",
    "atomic",
    "barrier",
    "bind",
    "check",
    "commit",
    "const",
    "extern",
    "false",
    "for",
    "graph",
    "grid",
    "guard",
    "if",
    "inf",
    "input",
    "int",
    "lane",
    "mma",
    "nan",
    "none",
    "number",
    "parallel",
    "partial",
    "pipeline",
    "prefetch",
    "read",
    "register",
    "return",
    "scratch",
    "shared",
    "size",
    "sym",
    "text",
    "thread",
    "tile",
    "true",
    "unroll",
    "update",
    "vector",
    "wait",
    "warp",
    "warpgroup",
    "write",
];

/// Whether `name` reads back as one bare word.
pub(crate) fn is_bare(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(is_word)
        && RESERVED.binary_search(&name).is_err()
}

/// Whether the byte can be inside of a word.
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.'
}

/// A name where a word is expected: bare, or in quotes if it is not a word.
pub(crate) struct Name<'a>(pub &'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        if is_bare(self.0) { f.write_str(self.0) } else { Quoted(self.0).fmt(f) }
    }
}

/// A name behind a sigil: `%x`, `@mlp`, `%"odd name"`.
pub(crate) struct Sigil<'a>(pub char, pub &'a str);

impl Display for Sigil<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Sigil(sigil, name) = *self;
        if !name.is_empty() && name.bytes().all(is_word) {
            return write!(f, "{sigil}{name}");
        }
        write!(f, "{sigil}{}", Quoted(name))
    }
}

/// Text in double quotes with `\"`, `\\`, `\n`, `\r`, `\t` and `\u{...}` for other control characters.
pub(crate) struct Quoted<'a>(pub &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str("\"")?;
        let mut plain = 0;
        for (at, c) in self.0.char_indices() {
            let escape = match c {
                '"' => "\\\"",
                '\\' => "\\\\",
                '\n' => "\\n",
                '\r' => "\\r",
                '\t' => "\\t",
                c if c.is_control() => "",
                _ => continue,
            };
            f.write_str(&self.0[plain..at])?;
            if escape.is_empty() {
                write!(f, "\\u{{{:x}}}", c as u32)?;
            } else {
                f.write_str(escape)?;
            }
            plain = at + c.len_utf8();
        }
        f.write_str(&self.0[plain..])?;
        f.write_str("\"")
    }
}

/// Spaces at the start of a line.
#[derive(Clone, Copy)]
pub(crate) struct Indent(pub usize);

impl Display for Indent {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{:1$}", "", 2 * self.0)
    }
}

/// Items between commas.
pub(crate) fn commas<T>(
    f: &mut Formatter,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Formatter, T) -> fmt::Result,
) -> fmt::Result {
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            f.write_str(", ")?;
        }
        write(f, item)?;
    }
    Ok(())
}

/// Displayable items between commas.
pub(crate) struct Commas<'a, T>(pub &'a [T]);

impl<T: Display> Display for Commas<'_, T> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        commas(f, self.0, |f, item| item.fmt(f))
    }
}

/// ` from 8 by 4`: unless a loop over a level begins with the first, and unless one of them runs each iteration.
pub(crate) struct Behind(pub Team);

impl Display for Behind {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Team { level: _, from, each } = self.0;
        if from != 0 {
            write!(f, " from {from}")?;
        }
        if each == 1 { Ok(()) } else { write!(f, " by {each}") }
    }
}

/// A grid, behind its keyword: `i in s0 persistent 132 teams 2 registers 168`.
pub(crate) struct GridLine<'a> {
    pub axes: &'a [Axis],
    pub grain: u64,
    pub persistent: Option<Persistent>,
    pub registers: Option<u32>,
}

impl GridLine<'_> {
    /// Whether there is nothing to be said: one point.
    pub fn is_plain(&self) -> bool {
        self.axes.is_empty() && self.grain == 1 && self.persistent.is_none() && self.registers.is_none()
    }
}

impl Display for GridLine<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{}{}", if self.axes.is_empty() { "" } else { " " }, Commas(self.axes))?;
        if self.grain != 1 {
            write!(f, " grain {}", self.grain)?;
        }
        if let Some(Persistent { blocks, teams }) = self.persistent {
            write!(f, " persistent {blocks}")?;
            if teams != 1 {
                write!(f, " teams {teams}")?;
            }
        }
        self.registers.map_or(Ok(()), |registers| write!(f, " registers {registers}"))
    }
}

/// `[sizes]`, and `{strides}` unless row-major.
pub(crate) struct Shape<'a>(pub &'a [Expr], pub &'a [Expr]);

impl Display for Shape<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Shape(sizes, strides) = *self;
        write!(f, "[{}]", Commas(sizes))?;
        if strides != contiguous_strides(sizes) {
            write!(f, "{{{}}}", Commas(strides))?;
        }
        Ok(())
    }
}

/// ` on cuda:1` where a device is not the one that a text's first line names.
pub(crate) struct On {
    pub device: Device,
    pub head: Device,
}

impl Display for On {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        if self.device == self.head { Ok(()) } else { write!(f, " on {}", self.device) }
    }
}

/// ` stream 1`, where it is not the first.
pub(crate) struct OfStream(pub u32);

impl Display for OfStream {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " stream {}", self.0) }
    }
}

/// A type in a text whose first line names the device `head`.
pub(crate) struct Under<'a, T>(pub Device, pub &'a T);

impl Display for Under<'_, TensorType> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Under(head, TensorType { dtype, sizes, strides, device }) = *self;
        write!(f, "{dtype}{}{}", Shape(sizes, strides), On { device: *device, head })
    }
}

impl Display for Under<'_, Type> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self.1 {
            Type::Tensor(tensor) => Under(self.0, tensor).fmt(f),
            Type::Int(value) => write!(f, "int({value})"),
            Type::Float => f.write_str("float"),
            Type::Bool => f.write_str("bool"),
        }
    }
}

/// Outside of a text, where no first line names a device, a type without one is on the host.
impl Display for TensorType {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        Under(Device::Cpu, self).fmt(f)
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        Under(Device::Cpu, self).fmt(f)
    }
}

impl Display for Axis {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{} in {}", self.var, self.extent)
    }
}

/// ` if a <= b, c < d` where there are guards.
pub(crate) struct Guards<'a>(pub &'a [Rel]);

impl Display for Guards<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " if {}", Commas(self.0)) }
    }
}

/// ` {keyword}(items)` where there are any.
pub(crate) struct Optional<'a, T>(pub &'static str, pub &'a [T]);

impl<T: Display> Display for Optional<'_, T> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        if self.1.is_empty() { Ok(()) } else { write!(f, " {}({})", self.0, Commas(self.1)) }
    }
}

/// One line `sym s0 in [2, 1024] multiple 8 hint 16` for each symbol, then the guards.
pub(crate) fn write_facts(f: &mut Formatter, indent: Indent, facts: &Facts) -> fmt::Result {
    for sym in facts.symbols() {
        writeln!(f, "{indent}sym {}", Declaration(facts, sym))?;
    }
    write_guards(f, indent, facts)
}

/// One line `guard s0 <= 64 for "who"` for each guard.
pub(crate) fn write_guards(f: &mut Formatter, indent: Indent, facts: &Facts) -> fmt::Result {
    for guard in facts.guards() {
        writeln!(f, "{indent}guard {} for {}", guard.clause, Quoted(&guard.who))?;
    }
    Ok(())
}

/// ` for "x must be small"`, or nothing.
pub(crate) fn write_message(f: &mut Formatter, message: Option<&str>) -> fmt::Result {
    message.map_or(Ok(()), |message| write!(f, " for {}", Quoted(message)))
}

/// A symbol and what is known of it: `s0 in [2, 1024] multiple 8 hint 16`; just the name if it was not declared.
pub(crate) struct Declaration<'a>(pub &'a Facts, pub Sym);

impl Display for Declaration<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Declaration(facts, sym) = *self;
        write!(f, "{sym}")?;
        if facts.is_symbol_declared(sym) {
            write!(f, " in {}", facts.range_of(sym))?;
        }
        if facts.divisor_of(sym) != 1 {
            write!(f, " multiple {}", facts.divisor_of(sym))?;
        }
        match facts.hint_of(sym) {
            Some(hint) => write!(f, " hint {hint}"),
            None => Ok(()),
        }
    }
}

/// An item within another: its lines, further in.
pub(crate) fn write_nested(f: &mut Formatter, item: &impl Display) -> fmt::Result {
    item.to_string().lines().try_for_each(|line| writeln!(f, "{}{line}", Indent(1)))
}
