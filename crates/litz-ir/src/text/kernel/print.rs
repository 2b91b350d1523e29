//! Prints kernels.

use std::fmt::{self, Display, Formatter};

use litz_sym::Sym;

use crate::ids::Id;
use crate::kernel::{
    Act, BoxCopy, BoxDim, BoxPoints, Dot, Element, Fragment, FragmentLoad, FragmentProduct, Kernel,
    KernelLoopKind, LaneReduction, Loop, Matrix, MatrixProduct, Mem, Op, Operand, Panels, PointDim, Rows,
    Stmt, Swizzle, Sync, Val, visit,
};
use crate::text::print::{
    Behind, Commas, Declaration, GridLine, Guards, Indent, Name, Quoted, Shape, Sigil, commas, write_guards,
};

const LINE: Indent = Indent(1);

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "kernel {}", Sigil('@', &self.name))?;
        if !self.from.is_empty() {
            f.write_str(" from ")?;
            commas(f, &self.from, |f, nest| Name(nest).fmt(f))?;
        }
        f.write_str(" {\n")?;
        let (params, locals): (Vec<Mem>, Vec<Mem>) =
            self.mems.ids().partition(|mem| mem.index() < self.params);
        params.iter().try_for_each(|&mem| self.write_mem(f, mem))?;
        for &size in &self.sizes {
            writeln!(f, "{LINE}size {}", Declaration(&self.facts, size))?;
        }
        let is_size = |sym: &Sym| self.sizes.contains(sym);
        for sym in self.facts.symbols().filter(|sym| !is_size(sym)) {
            writeln!(f, "{LINE}sym {}", Declaration(&self.facts, sym))?;
        }
        write_guards(f, LINE, &self.facts)?;
        self.write_grid(f)?;
        if self.approximate {
            writeln!(f, "{LINE}approximate")?;
        }
        locals.iter().try_for_each(|&mem| self.write_mem(f, mem))?;
        for (ring, data) in self.rings.iter() {
            writeln!(f, "{LINE}{ring} {data}")?;
        }
        for (at, check) in self.checks.iter().enumerate() {
            writeln!(f, "{LINE}check {at} = {}", Quoted(check))?;
        }
        Printer::new(self).block(f, &self.body, 1)?;
        f.write_str("}\n")
    }
}

impl Display for Sync {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Sync::Barrier(level) => write!(f, "barrier {}", level.name()),
            Sync::Warps(warps) => write!(f, "barrier {warps}"),
            Sync::Cluster => f.write_str("barrier cluster"),
            Sync::Elect => f.write_str("elect last"),
            Sync::Commit => f.write_str("commit"),
            Sync::Wait { newest } => write!(f, "wait {newest}"),
            Sync::Kernels => f.write_str("wait kernels"),
            Sync::CommitProducts => f.write_str("commit products"),
            Sync::Products { newest: 0 } => f.write_str("wait products"),
            Sync::Products { newest } => write!(f, "wait products {newest}"),
            Sync::Await => f.write_str("await turn"),
            Sync::Pass => f.write_str("pass turn"),
            Sync::Acquire { ring, filling, buffer } => {
                write!(f, "acquire {} {ring} as {buffer}", filling.name())
            }
            Sync::Release { ring, filling } => write!(f, "release {} {ring}", filling.name()),
        }
    }
}

impl Kernel {
    fn write_mem(&self, f: &mut Formatter, mem: Mem) -> fmt::Result {
        let data = &self.mems[mem];
        let shape = Shape(&data.sizes, &data.strides);
        write!(f, "{LINE}{} {}: {}{shape}", data.space.name(), Name(&data.name), data.dtype)?;
        if let Some(Swizzle { unit, row, pairs }) = data.swizzle {
            write!(f, " swizzled {unit} of {row}{}", if pairs { " in pairs" } else { "" })?;
        }
        f.write_str("\n")
    }

    fn write_grid(&self, f: &mut Formatter) -> fmt::Result {
        let &Kernel { grain, persistent, registers, .. } = self;
        let grid = GridLine { axes: &self.grid, grain, persistent, registers };
        if grid.is_plain() { Ok(()) } else { writeln!(f, "{LINE}grid{grid}") }
    }
}

/// Prints statements; values are numbered in the order of their definitions.
struct Printer<'a> {
    kernel: &'a Kernel,
    numbers: Vec<Option<usize>>,
}

impl<'a> Printer<'a> {
    fn new(kernel: &'a Kernel) -> Printer<'a> {
        let mut numbers = vec![None; kernel.vals.len()];
        let mut next = 0;
        visit(&kernel.body, &mut |stmt| {
            if let Stmt::Act(Act::Let { val, .. }) = stmt
                && let Some(slot @ None) = numbers.get_mut(val.index())
            {
                *slot = Some(next);
                next += 1;
            }
        });
        Printer { kernel, numbers }
    }

    fn val(&self, val: Val) -> impl Display {
        let number = self.numbers.get(val.index()).copied().flatten();
        fmt::from_fn(move |f| match number {
            Some(number) => write!(f, "%{number}"),
            None => write!(f, "%undefined{}", val.index()),
        })
    }

    fn mem(&self, mem: Mem) -> Name<'a> {
        Name(&self.kernel.mems[mem].name)
    }

    fn block(&self, f: &mut Formatter, body: &[Stmt], depth: usize) -> fmt::Result {
        body.iter().try_for_each(|stmt| self.stmt(f, stmt, depth))
    }

    fn stmt(&self, f: &mut Formatter, stmt: &Stmt, depth: usize) -> fmt::Result {
        let indent = Indent(depth);
        match stmt {
            Stmt::Loop(Loop { kind, var, extent, body }) => {
                write!(f, "{indent}{} {var} in {extent}", kind.keyword())?;
                match kind {
                    KernelLoopKind::Level(team) => write!(f, "{}", Behind(*team))?,
                    KernelLoopKind::For
                    | KernelLoopKind::Unroll
                    | KernelLoopKind::Chain
                    | KernelLoopKind::Search => {}
                    KernelLoopKind::Mma { rounds } => f.write_str(if *rounds { " rounding" } else { "" })?,
                    KernelLoopKind::Vector { lanes, copies, interleaved, lane } => {
                        write!(f, "{}", Lanes(*lanes, *copies))?;
                        f.write_str(if *interleaved { " in turns" } else { "" })?;
                        if let Some(lane) = lane {
                            write!(f, " lane {lane}")?;
                        }
                    }
                    KernelLoopKind::Pipeline { buffers } => write!(f, " by {buffers}")?,
                }
                f.write_str(" {\n")?;
                self.block(f, body, depth + 1)?;
                writeln!(f, "{indent}}}")
            }
            Stmt::If { cond, then, other } => {
                match &cond[..] {
                    [] => writeln!(f, "{indent}if true {{")?,
                    cond => writeln!(f, "{indent}if {} {{", Commas(cond))?,
                }
                self.block(f, then, depth + 1)?;
                if !other.is_empty() {
                    writeln!(f, "{indent}}} else {{")?;
                    self.block(f, other, depth + 1)?;
                }
                writeln!(f, "{indent}}}")
            }
            Stmt::Act(Act::Let { val, op }) => {
                write!(f, "{indent}{}: {} = ", self.val(*val), self.kernel.vals[*val])?;
                self.op(f, op)?;
                f.write_str("\n")
            }
            Stmt::Act(Act::Bind { sym, value, extent, check }) => {
                writeln!(f, "{indent}bind {sym} = {} in {extent}, check {check}", self.val(*value))
            }
            Stmt::Act(Act::Store { mem, index, value, combine, guard, atomic }) => {
                let (prefix, mem) = (if *atomic { "atomic " } else { "" }, self.mem(*mem));
                let combine = combine.map_or("", |op| op.name());
                let (index, value) = (Commas(index), self.val(*value));
                writeln!(f, "{indent}{prefix}{mem}[{index}] {combine}= {value}{}", Guards(guard))
            }
            Stmt::Act(Act::MulAdd { mem, index, factors: [a, b], guard }) => {
                let (mem, index, a, b) = (self.mem(*mem), Commas(index), self.val(*a), self.val(*b));
                writeln!(f, "{indent}{mem}[{index}] fma= {a}, {b}{}", Guards(guard))
            }
            Stmt::Act(Act::Sync(sync)) => writeln!(f, "{indent}{sync}"),
            Stmt::Act(Act::Dot(Dot { by, mem, index, terms })) => {
                write!(f, "{indent}{}[{}] {}= ", self.mem(*mem), Commas(index), by.name)?;
                for (at, [a, b]) in terms.iter().enumerate() {
                    let and = if at == 0 { "" } else { " and " };
                    write!(f, "{and}{} by {}", self.element(a), self.element(b))?;
                }
                f.write_str("\n")
            }
            Stmt::Act(Act::MatrixProduct(product)) => self.matrix_product(f, product, indent),
            Stmt::Act(Act::FragmentLoad(FragmentLoad { by, side, into, rows })) => {
                let (into, rows) = (self.fragment(into), self.rows(rows));
                writeln!(f, "{indent}{into} {} of {}= {rows}", side.name(), by.name)
            }
            Stmt::Act(Act::FragmentProduct(FragmentProduct { by, columns, sum, left, right })) => {
                let sum = self.fragment(sum);
                let [left, right] = [left, right].map(|operand| self.operand(operand));
                write!(f, "{indent}{sum} {}= fragments {left} by {right}", by.name)?;
                if by.is_of_warpgroup() {
                    write!(f, " in {columns}")?;
                }
                f.write_str("\n")
            }
            Stmt::Act(Act::Copy { count, from, along, to, is_async }) => {
                let (from, to) = (self.element(from), self.element(to));
                let background = if *is_async { "async " } else { "" };
                writeln!(f, "{indent}copy {background}{count} {from}{} to {to}", Along(*along))
            }
            Stmt::Act(Act::BoxCopy(BoxCopy { from, origin, to, first, points, dims, rounds })) => {
                let (from, to) = (self.mem(*from), self.mem(*to));
                write!(f, "{indent}copy box {from}[{origin}] to {to}[{first}] of ")?;
                if let Some(BoxPoints { count, first, dims }) = points {
                    write!(f, "{count} points from {first} over (")?;
                    commas(f, dims, point_dim)?;
                    f.write_str("), ")?;
                }
                commas(f, dims, |f, BoxDim { count, step, range }| {
                    write!(f, "{count} step {step}")?;
                    range.map_or(Ok(()), |[first, end]| write!(f, " from {first} below {end}"))
                })?;
                f.write_str(if *rounds { " rounding\n" } else { "\n" })
            }
            Stmt::Act(Act::Prefetch { mem, index, ahead, guard }) => {
                write!(f, "{indent}prefetch {}[{}]", self.mem(*mem), Commas(index))?;
                if *ahead > 0 {
                    write!(f, " ahead {ahead}")?;
                }
                writeln!(f, "{}", Guards(guard))
            }
            Stmt::Act(Act::Lanes(lanes)) => self.lanes(f, lanes, indent),
            Stmt::Act(Act::ArgStore { max, best, at, index, value, position }) => {
                let (best, at, op) = (self.mem(*best), self.mem(*at), if *max { "argmax" } else { "argmin" });
                let (index, value) = (Commas(index), self.val(*value));
                writeln!(f, "{indent}{best}[{index}], {at}[{index}] {op}= {value}, {position}")
            }
        }
    }

    fn lanes(&self, f: &mut Formatter, reduction: &LaneReduction, indent: Indent) -> fmt::Result {
        let LaneReduction { op, into, from, positions, index, first, lanes, copies, atomic } = reduction;
        let (index, first, lanes) = (Commas(index), Commas(first), Lanes(*lanes, *copies));
        let (into, from, op) = (self.mem(*into), self.mem(*from), op.name());
        write!(f, "{indent}{}{into}[{index}]", if *atomic { "atomic " } else { "" })?;
        match positions {
            None => writeln!(f, " {op}= lanes of {from}[{first}]{lanes}"),
            Some(positions) => {
                let [at, places] = positions.map(|mem| self.mem(mem));
                writeln!(f, ", {at}[{index}] arg{op}= lanes of {from}[{first}], {places}[{first}]{lanes}")
            }
        }
    }

    fn element(&self, Element { mem, index, guard }: &Element) -> impl Display {
        let mem = self.mem(*mem);
        fmt::from_fn(move |f| write!(f, "{mem}[{}]{}", Commas(index), Guards(guard)))
    }

    fn fragment(&self, Fragment { mem, first, steps }: &Fragment) -> impl Display {
        let (mem, first, steps) = (self.mem(*mem), *first, *steps);
        fmt::from_fn(move |f| write!(f, "{mem}[{first} step {}]", Commas(&steps)))
    }

    fn rows(&self, Rows { mem, row, first, is_transposed, panels }: &Rows) -> impl Display {
        let (mem, row, first) = (self.mem(*mem), *row, *first);
        let rows = if *is_transposed { "columns" } else { "rows" };
        fmt::from_fn(move |f| {
            write!(f, "{mem}[{first}] {rows} {row}")?;
            panels
                .as_ref()
                .map_or(Ok(()), |Panels { columns, step }| write!(f, " panels {columns} step {step}"))
        })
    }

    fn operand(&self, operand: &Operand) -> impl Display {
        fmt::from_fn(move |f| match operand {
            Operand::Own(own) => self.fragment(own).fmt(f),
            Operand::Rows(rows) => self.rows(rows).fmt(f),
        })
    }

    fn matrix_product(&self, f: &mut Formatter, product: &MatrixProduct, indent: Indent) -> fmt::Result {
        let MatrixProduct { by, rows, columns, depth, over, is_from_zero, .. } = product;
        let matrix = |Matrix { mem, first, step }: &Matrix| {
            let (mem, first, step) = (self.mem(*mem), *first, *step);
            fmt::from_fn(move |f| write!(f, "{mem}[{first} step {step}]"))
        };
        let [sum, left, right] = product.matrices().map(matrix);
        write!(f, "{indent}{sum} {}= {left} by {right} in {rows}, {columns}, {depth}", by.name)?;
        if !over.is_empty() {
            write!(f, " over {}", Commas(over))?;
        }
        f.write_str(if *is_from_zero { " from zero\n" } else { "\n" })
    }

    fn op(&self, f: &mut Formatter, op: &Op) -> fmt::Result {
        match op {
            Op::Load { mem, index, guard, other } => {
                write!(f, "load {}[{}]{}", self.mem(*mem), Commas(index), Guards(guard))?;
                if guard.is_empty() { Ok(()) } else { write!(f, " else {other}") }
            }
            Op::Transposed { mem, index, along } => {
                write!(f, "load {}[{}]{}", self.mem(*mem), Commas(index), Along(Some(*along)))
            }
            Op::Lookup { mem, first, count, by } => {
                let (mem, by) = (self.mem(*mem), self.val(*by));
                write!(f, "lookup {mem}[{}] of {count} by {by}", Commas(first))
            }
            Op::Const(value) => write!(f, "const {value}"),
            Op::Index(value) => write!(f, "index {value}"),
            Op::Cond(rel) => write!(f, "cond {rel}"),
            Op::Call(op, args) => {
                write!(f, "{} ", op.name())?;
                commas(f, args, |f, &arg| self.val(arg).fmt(f))
            }
            Op::Cast(value) => write!(f, "cast {}", self.val(*value)),
            Op::Round(dtype, value) => write!(f, "round.{dtype} {}", self.val(*value)),
            Op::Bitcast(value) => write!(f, "bitcast {}", self.val(*value)),
        }
    }
}

/// The loop along whose rows something is loaded and transposed.
struct Along(Option<Sym>);

impl Display for Along {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        self.0.map_or(Ok(()), |var| write!(f, " transposed along {var}"))
    }
}

/// Lanes of a vector, and copies if there are several.
struct Lanes(u32, u32);

impl Display for Lanes {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Lanes(lanes, copies) = self;
        write!(f, " by {lanes}")?;
        if *copies == 1 { Ok(()) } else { write!(f, " copies {copies}") }
    }
}

impl KernelLoopKind {
    /// The word its line starts with.
    pub fn keyword(self) -> &'static str {
        match self {
            KernelLoopKind::For => "for",
            KernelLoopKind::Unroll => "unroll",
            KernelLoopKind::Vector { .. } => "vector",
            KernelLoopKind::Pipeline { .. } => "pipeline",
            KernelLoopKind::Level(team) => team.level.name(),
            KernelLoopKind::Chain => "chain",
            KernelLoopKind::Search => "search",
            KernelLoopKind::Mma { .. } => "mma",
        }
    }
}

/// A dimension of points: what is as it mostly is stays unsaid.
fn point_dim(f: &mut Formatter, dim: &PointDim) -> fmt::Result {
    let PointDim { count, by, step, corner, offset, end } = dim;
    write!(f, "{count}")?;
    if *by != 1 {
        write!(f, " by {by}")?;
    }
    write!(f, " step {step}")?;
    if *corner != 0 {
        write!(f, " from {corner}")?;
    }
    if !offset.is_zero() {
        write!(f, " offset {offset}")?;
    }
    write!(f, " below {end}")
}
