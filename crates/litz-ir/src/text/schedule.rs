//! Prints and parses schedules.

use std::fmt::{self, Display, Formatter};

use crate::diag::Diags;
use crate::loops::Axis;
use crate::schedule::{
    Block, Holds, KernelPlan, Layout, Leaf, LoadOf, Local, LocalSpace, LoopKind, Means, Part, Pool, Reuse,
    Schedule, ScheduleStep, Tree,
};
use crate::target::{Instruction, Level};
use crate::text::cursor::{Cursor, Result, parse_whole};
use crate::text::lexer::TokenKind;
use crate::text::print::{Behind, GridLine, Indent, Name, Quoted, Sigil, commas, is_bare, write_nested};

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let (name, of) = (Sigil('@', &self.name), Sigil('@', &self.of));
        writeln!(f, "schedule {name} of {of} for {} {{", self.target)?;
        self.functions.iter().try_for_each(|function| write_nested(f, function))?;
        for step in &self.steps {
            match step {
                ScheduleStep::Kernel(plan) => write_kernel(f, plan)?,
                ScheduleStep::Extern { name, at_load } => {
                    writeln!(f, "  extern {}{}", Name(name), when(*at_load))?
                }
            }
        }
        self.reuses.iter().try_for_each(|reuse| writeln!(f, "  {reuse}"))?;
        self.pools.iter().try_for_each(|pool| writeln!(f, "  {pool}"))?;
        writeln!(f, "}}")
    }
}

impl Display for Reuse {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "reuse {} as {}", Name(&self.from), Name(&self.to))
    }
}

impl Display for Pool {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "pool {}{}", Name(&self.name), when(self.at_load))?;
        if let Some(bytes) = self.bytes {
            write!(f, " = {bytes}")?;
        }
        f.write_str(if self.places.is_empty() { " {" } else { " { " })?;
        commas(f, &self.places, |f, (buf, offset)| write!(f, "{} at {offset}", Name(buf)))?;
        f.write_str(" }")
    }
}

fn when(at_load: bool) -> &'static str {
    if at_load { " at load" } else { "" }
}

fn write_kernel(f: &mut Formatter, plan: &KernelPlan) -> fmt::Result {
    writeln!(f, "  kernel {}{} {{", Name(&plan.name), when(plan.at_load))?;
    let &KernelPlan { grain, persistent, registers, .. } = plan;
    let grid = GridLine { axes: &plan.grid, grain, persistent, registers };
    let has_grid = !grid.is_plain();
    if has_grid {
        writeln!(f, "    parallel{grid} {{")?;
    }
    for tree in &plan.body {
        write_tree(f, tree, if has_grid { 3 } else { 2 })?;
    }
    if has_grid {
        writeln!(f, "    }}")?;
    }
    writeln!(f, "  }}")
}

/// A loop and those of the same keyword that make up its whole body share a line; a lone leaf stays on it.
fn write_tree(f: &mut Formatter, tree: &Tree, depth: usize) -> fmt::Result {
    let (indent, mut tree) = (Indent(depth), tree);
    match tree {
        Tree::Loop { .. } => {}
        Tree::Leaf(leaf) => return writeln!(f, "{indent}{leaf}"),
        Tree::Local(local) => return writeln!(f, "{indent}{local}"),
        Tree::If { cond, then, other } => {
            writeln!(f, "{indent}if {cond} {{")?;
            then.iter().try_for_each(|tree| write_tree(f, tree, depth + 1))?;
            if !other.is_empty() {
                writeln!(f, "{indent}}} else {{")?;
                other.iter().try_for_each(|tree| write_tree(f, tree, depth + 1))?;
            }
            return writeln!(f, "{indent}}}");
        }
    }
    let mut written: Option<&str> = None;
    let mut body: &[Tree] = &[];
    while let Tree::Loop { kind, axis, body: inner } = tree {
        match written {
            None => write!(f, "{indent}{} {axis}", kind.keyword())?,
            Some(keyword) if keyword == kind.keyword() => write!(f, ", {axis}")?,
            Some(_) => break,
        }
        write_lanes(f, *kind)?;
        (written, body) = (Some(kind.keyword()), inner);
        match &inner[..] {
            [only] => tree = only,
            _ => break,
        }
    }
    if let [Tree::Leaf(leaf)] = body {
        return writeln!(f, " {{ {leaf} }}");
    }
    writeln!(f, " {{")?;
    for tree in body {
        write_tree(f, tree, depth + 1)?;
    }
    writeln!(f, "{indent}}}")
}

fn write_lanes(f: &mut Formatter, kind: LoopKind) -> fmt::Result {
    match kind {
        LoopKind::Vector { lanes, copies: 1 } => write!(f, " by {lanes}"),
        LoopKind::Vector { lanes, copies } => write!(f, " by {lanes} copies {copies}"),
        LoopKind::Pipeline { buffers } => write!(f, " by {buffers}"),
        LoopKind::Level(team) => write!(f, "{}", Behind(team)),
        LoopKind::For | LoopKind::Unroll | LoopKind::Chain | LoopKind::Mma => Ok(()),
    }
}

impl LoopKind {
    /// The word its line starts with.
    pub fn keyword(self) -> &'static str {
        match self {
            LoopKind::For => "for",
            LoopKind::Unroll => "unroll",
            LoopKind::Vector { .. } => "vector",
            LoopKind::Pipeline { .. } => "pipeline",
            LoopKind::Level(team) => team.level.name(),
            LoopKind::Chain => "chain",
            LoopKind::Mma => "mma",
        }
    }
}

impl LocalSpace {
    /// Every space.
    pub const ALL: [LocalSpace; 5] = [
        LocalSpace::Register,
        LocalSpace::Scratch,
        LocalSpace::Shared,
        LocalSpace::Cluster,
        LocalSpace::Global,
    ];

    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            LocalSpace::Register => "register",
            LocalSpace::Scratch => "scratch",
            LocalSpace::Shared => "shared",
            LocalSpace::Cluster => "cluster",
            LocalSpace::Global => "global",
        }
    }

    /// Whether a thread sees there what another one has stored.
    pub fn is_shared(self) -> bool {
        match self {
            LocalSpace::Register | LocalSpace::Scratch => false,
            LocalSpace::Shared | LocalSpace::Cluster | LocalSpace::Global => true,
        }
    }
}

impl Display for Local {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match &self.holds {
            Holds::Buffer(buf) => write!(f, "{} {}", self.space.name(), Name(buf))?,
            Holds::Copy { name, of, reader } => {
                write!(f, "{} {} = {}", self.space.name(), Name(name), Name(of))?;
                if let Some(LoadOf { nest, at }) = reader {
                    write!(f, " for %{at} of {}", Name(nest))?;
                }
            }
            Holds::Result { name, of } => {
                write!(f, "{} {} to {}", self.space.name(), Name(name), Name(of))?;
            }
            Holds::Accumulator(nest) => write!(f, "{} accumulator of {}", self.space.name(), Name(nest))?,
        }
        match self.layout {
            Layout::Dense => Ok(()),
            Layout::Padded(line) => write!(f, " padded {line}"),
            Layout::Swizzled { unit, pairs } => {
                write!(f, " swizzled {unit}{}", if pairs { " in pairs" } else { "" })
            }
            Layout::Panels { unit, columns } => write!(f, " swizzled {unit} in panels of {columns}"),
        }
    }
}

impl Display for Leaf {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        // The part follows a dot, so a name with a dot of its own needs quotes.
        if is_bare(&self.nest) && !self.nest.contains('.') {
            f.write_str(&self.nest)?;
        } else {
            Quoted(&self.nest).fmt(f)?;
        }
        if let Some(part) = self.part.name() {
            write!(f, ".{part}")?;
        }
        if !self.bind.is_empty() {
            f.write_str(" [")?;
            commas(f, &self.bind, |f, (axis, value)| write!(f, "{axis} = {value}"))?;
            f.write_str("]")?;
        }
        if self.masked {
            f.write_str(" masked")?;
        }
        if let Some(Block { number, width }) = self.block {
            write!(f, " into {number} by {width}")?;
        }
        match self.by {
            Some(Means::Box) => f.write_str(" by box"),
            Some(Means::Instruction(instruction)) => write!(f, " by {}", instruction.name),
            None => Ok(()),
        }
    }
}

/// Reads one schedule.
///
/// # Errors
/// Where the text is no schedule. Whether it fits its loops program is for the verifier to say.
pub fn parse(text: &str) -> std::result::Result<Schedule, Diags> {
    parse_with_positions(text).map(|(schedule, _)| schedule)
}

/// Where in a text the parts of a schedule are: line and column, from 1, of each in the order of the text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Positions {
    /// Kernels and calls.
    pub steps: Vec<(u32, u32)>,
    /// Loops of all kernels, those of grids among them.
    pub loops: Vec<(u32, u32)>,
    /// Leaves of all kernels.
    pub leaves: Vec<(u32, u32)>,
    /// Declarations of memory in all kernels.
    pub locals: Vec<(u32, u32)>,
    /// The same of each function.
    pub functions: Vec<Positions>,
}

/// As [`parse`], with where the parts of the schedule are.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_positions(text: &str) -> std::result::Result<(Schedule, Positions), Diags> {
    let mut positions = Positions::default();
    let schedule = parse_whole(text, |cx| schedule(cx, &mut positions))?;
    Ok((schedule, positions))
}

fn schedule(cx: &mut Cursor, at: &mut Positions) -> Result<Schedule> {
    cx.expect("schedule")?;
    let name = cx.item_name()?;
    cx.expect("of")?;
    let of = cx.item_name()?;
    cx.expect("for")?;
    let target = cx.target_before("{")?;
    let (steps, reuses, pools) = (Vec::new(), Vec::new(), Vec::new());
    let mut schedule = Schedule { name, of, target, functions: Vec::new(), steps, reuses, pools };
    cx.expect("{")?;
    while !cx.eat("}") {
        let position = cx.position();
        if cx.is("schedule") {
            let mut inner = Positions::default();
            let function = cx.nested(|cx| self::schedule(cx, &mut inner))?;
            schedule.functions.push(function);
            at.functions.push(inner);
        } else if cx.eat("kernel") {
            at.steps.push(position);
            schedule.steps.push(ScheduleStep::Kernel(kernel(cx, at)?));
        } else if cx.eat("extern") {
            at.steps.push(position);
            let name = cx.name("a statement name")?;
            schedule.steps.push(ScheduleStep::Extern { name, at_load: at_load(cx)? });
        } else if cx.eat("reuse") {
            let from = cx.name("a buffer name")?;
            cx.expect("as")?;
            schedule.reuses.push(Reuse { from, to: cx.name("a buffer name")? });
        } else if cx.eat("pool") {
            schedule.pools.push(pool(cx)?);
        } else {
            return Err(cx.expected("kernel, extern, reuse or pool"));
        }
    }
    Ok(schedule)
}

/// `at load`, or nothing.
fn at_load(cx: &mut Cursor) -> Result<bool> {
    if !cx.eat("at") {
        return Ok(false);
    }
    cx.expect("load").map(|()| true)
}

fn kernel(cx: &mut Cursor, at: &mut Positions) -> Result<KernelPlan> {
    let name = cx.name("a kernel name")?;
    let at_load = at_load(cx)?;
    let mut plan = KernelPlan { name, at_load, ..KernelPlan::new(Vec::new(), 1, Vec::new()) };
    cx.expect("{")?;
    let position = cx.position();
    if cx.eat("parallel") {
        (plan.grid, plan.grain, plan.persistent, plan.registers) = cx.grid()?;
        at.loops.extend(plan.grid.iter().map(|_| position));
        plan.body = trees(cx, at)?;
        cx.expect("}")?;
    } else {
        plan.body = rest_of_block(cx, at)?;
    }
    Ok(plan)
}

fn local_space(cx: &Cursor) -> Option<LocalSpace> {
    LocalSpace::ALL.into_iter().find(|space| cx.is(space.name()))
}

/// Trees within braces.
fn trees(cx: &mut Cursor, at: &mut Positions) -> Result<Vec<Tree>> {
    cx.expect("{")?;
    rest_of_block(cx, at)
}

/// Trees up to the closing brace.
fn rest_of_block(cx: &mut Cursor, at: &mut Positions) -> Result<Vec<Tree>> {
    let mut trees = Vec::new();
    while !cx.eat("}") {
        trees.push(tree(cx, at)?);
    }
    Ok(trees)
}

fn tree(cx: &mut Cursor, at: &mut Positions) -> Result<Tree> {
    if let Some(space) = local_space(cx) {
        at.locals.push(cx.position());
        cx.take();
        return local(cx, space).map(Tree::Local);
    }
    let keyword = cx.peek_text();
    if keyword == "if" {
        cx.take();
        let cond = cx.rel()?;
        let then = cx.nested(|cx| trees(cx, at))?;
        let other = if cx.eat("else") { cx.nested(|cx| trees(cx, at))? } else { Vec::new() };
        return Ok(Tree::If { cond, then, other });
    }
    let is_level = Level::LOOPS.into_iter().any(|level| level.name() == keyword);
    if !is_level && !["for", "unroll", "vector", "pipeline", "chain", "mma"].contains(&keyword) {
        at.leaves.push(cx.position());
        return leaf(cx).map(Tree::Leaf);
    }
    cx.take();
    let loops = cx.commas(|cx| {
        at.loops.push(cx.position());
        loop_head(cx, keyword)
    })?;
    let body = cx.nested(|cx| trees(cx, at))?;
    // Every loop but the innermost has the next one as its whole body.
    let mut loops = loops.into_iter().rev();
    let (axis, kind) = loops.next().ok_or_else(|| cx.expected("a loop"))?;
    let innermost = Tree::Loop { kind, axis, body };
    Ok(loops.fold(innermost, |inner, (axis, kind)| Tree::Loop { kind, axis, body: vec![inner] }))
}

/// `for %2 of scores`: the load at that position among the instructions of a nest.
fn load_of(cx: &mut Cursor) -> Result<LoadOf> {
    cx.expect("for")?;
    let unknown = cx.expected("the number of a load, such as `%2`");
    let at = cx.value_name()?.parse().map_err(|_| unknown)?;
    cx.expect("of")?;
    Ok(LoadOf { nest: cx.name("a nest name")?, at })
}

/// What is behind the name of a space.
fn local(cx: &mut Cursor, space: LocalSpace) -> Result<Local> {
    let is_accumulator = cx.is("accumulator") && cx.second_is("of");
    let holds = if is_accumulator {
        cx.take();
        cx.take();
        Holds::Accumulator(cx.name("a nest name")?)
    } else {
        let name = cx.name("a buffer name")?;
        if cx.eat("=") {
            let of = cx.name("a buffer name")?;
            // A loop may follow, too.
            let has_reader = cx.is("for") && cx.second_kind() == TokenKind::Value;
            let reader = if has_reader { Some(load_of(cx)?) } else { None };
            Holds::Copy { name, of, reader }
        } else if cx.eat("to") {
            Holds::Result { name, of: cx.name("a buffer name")? }
        } else {
            Holds::Buffer(name)
        }
    };
    let layout = match cx.peek_text() {
        "padded" if cx.second_is_number() => {
            cx.take();
            Layout::Padded(cx.integer()?)
        }
        "swizzled" if cx.second_is_number() => {
            cx.take();
            let unit = cx.integer()?;
            match cx.panels()? {
                Some(columns) => Layout::Panels { unit, columns },
                None => Layout::Swizzled { unit, pairs: cx.pairs() },
            }
        }
        _ => Layout::Dense,
    };
    Ok(Local { holds, space, layout })
}

fn loop_head(cx: &mut Cursor, keyword: &str) -> Result<(Axis, LoopKind)> {
    let axis = cx.axis()?;
    let kind = match keyword {
        "for" => LoopKind::For,
        "chain" => LoopKind::Chain,
        "unroll" => LoopKind::Unroll,
        "vector" => {
            let (lanes, copies) = cx.lanes()?;
            LoopKind::Vector { lanes, copies }
        }
        "pipeline" => {
            cx.expect("by")?;
            LoopKind::Pipeline { buffers: cx.integer()? }
        }
        _ => match Level::LOOPS.into_iter().find(|level| level.name() == keyword) {
            Some(level) => LoopKind::Level(cx.team(level)?),
            None => LoopKind::Mma,
        },
    };
    Ok((axis, kind))
}

fn leaf(cx: &mut Cursor) -> Result<Leaf> {
    let (nest, part) = if cx.peek().kind == TokenKind::Str {
        let nest = cx.string()?;
        let part = if cx.eat(".") { Some(cx.word("init, update, merge or final")?.to_owned()) } else { None };
        (nest, part)
    } else {
        let word = cx.word("a loop or a nest")?;
        match word.rsplit_once('.') {
            Some((nest, part)) => (nest.to_owned(), Some(part.to_owned())),
            None => (word.to_owned(), None),
        }
    };
    let named = Part::ALL.into_iter().find(|known| known.name() == part.as_deref());
    let part = named.ok_or_else(|| {
        let found = part.unwrap_or_default();
        cx.error("syntax", format!("expected init, update, merge or final, found `{found}`"))
    })?;
    let pair = |cx: &mut Cursor| {
        let axis = cx.sym()?;
        cx.expect("=")?;
        Ok((axis, cx.expr()?))
    };
    let bind = if cx.is("[") { cx.list("[", "]", pair)? } else { Vec::new() };
    let masked = cx.eat("masked");
    let block = if cx.eat("into") {
        let number = cx.expr()?;
        cx.expect("by")?;
        Some(Block { number, width: cx.expr()? })
    } else {
        None
    };
    let by = if cx.eat("by") { Some(means(cx)?) } else { None };
    Ok(Leaf { nest, part, bind, masked, block, by })
}

fn means(cx: &mut Cursor) -> Result<Means> {
    if cx.eat("box") {
        return Ok(Means::Box);
    }
    let unknown = cx.expected("box or an instruction");
    let name = cx.word("box or an instruction")?;
    Instruction::mma(name).map(Means::Instruction).ok_or(unknown)
}

fn pool(cx: &mut Cursor) -> Result<Pool> {
    let name = cx.name("a pool name")?;
    let at_load = at_load(cx)?;
    let bytes = if cx.eat("=") { Some(cx.expr()?) } else { None };
    let place = |cx: &mut Cursor| {
        let buf = cx.name("a buffer name")?;
        cx.expect("at")?;
        Ok((buf, cx.expr()?))
    };
    let places = cx.list("{", "}", place)?;
    Ok(Pool { name, bytes, places, at_load })
}
