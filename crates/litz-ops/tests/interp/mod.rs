//! An interpreter of loops: every element of every buffer, computed by asking for the values it depends on.
//!
//! It is slow and follows the definition of the IR word by word. Numbers are i64 or f64 and are rounded to the type of
//! the instruction that makes them.

use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest, Output, Stmt, Val};
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Rel, Sym};
use std::collections::HashMap;

/// A number: truth values and integers, or floats.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Num {
    I(i64),
    F(f64),
}

impl Num {
    pub fn f(self) -> f64 {
        match self {
            Num::I(i) => i as f64,
            Num::F(f) => f,
        }
    }
    fn i(self) -> i64 {
        match self {
            Num::I(i) => i,
            Num::F(f) => f as i64,
        }
    }
    fn truth(self) -> bool {
        self.f() != 0.0
    }
}

/// Buffers by input position and constant name go in, one list of elements for each output comes out.
pub fn run(
    loops: &Loops,
    symbols: &HashMap<Sym, i64>,
    contents: impl Fn(Buf) -> Option<Vec<Num>>,
) -> Vec<Vec<Num>> {
    let value = |e: Expr| e.eval(&|s| symbols.get(&s).copied()).expect("a size");
    let mut bufs: Vec<Vec<Num>> = Vec::new();
    for (buf, data) in loops.bufs.iter() {
        let span = value(data.span()).max(0) as usize;
        // What nothing has written shows as NaN, or as a number no test uses.
        let unset = if data.dtype.is_float() { Num::F(f64::NAN) } else { Num::I(-77) };
        bufs.push(contents(buf).unwrap_or_else(|| vec![unset; span]));
    }
    for stmt in &loops.stmts {
        match stmt {
            Stmt::Nest(nest) => Machine { loops, nest, bufs: &mut bufs, symbols }.run(),
            Stmt::Region(region) => unreachable!("lowering gives no region {}", region.name),
            Stmt::Extern(call) => {
                let ints: Vec<i64> = call.ints.iter().map(|&e| value(e)).collect();
                let source = bufs[call.reads[0].0 as usize].clone();
                let (values, indices) = sorted_lines(&call.routine, &source, &ints);
                bufs[call.writes[0].0 as usize] = values;
                bufs[call.writes[1].0 as usize] = indices;
            }
        }
    }
    loops.outputs.iter().map(|o| read_output(o, &bufs, &value)).collect()
}

/// `sort` and `topk` along the middle of `[outer, length, inner]`: stable, NaN as the largest.
fn sorted_lines(routine: &str, source: &[Num], ints: &[i64]) -> (Vec<Num>, Vec<Num>) {
    let (keep, descending) = match routine {
        "sort" => (ints[1], ints[3] != 0),
        "topk" => (ints[3], ints[4] != 0),
        other => panic!("unknown routine {other}"),
    };
    let (outer, length, inner, keep) = (ints[0] as usize, ints[1] as usize, ints[2] as usize, keep as usize);
    let order = |a: f64, b: f64| {
        a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal))
    };
    let mut values = vec![Num::I(0); outer * keep * inner];
    let mut indices = values.clone();
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let line: Vec<Num> = (0..length).map(|at| source[(o * length + at) * inner + i]).collect();
        let mut places: Vec<usize> = (0..length).collect();
        places.sort_by(|&a, &b| {
            let ascending = order(line[a].f(), line[b].f());
            if descending { ascending.reverse() } else { ascending }
        });
        for (rank, &place) in places[..keep].iter().enumerate() {
            let to = (o * keep + rank) * inner + i;
            (values[to], indices[to]) = (line[place], Num::I(place as i64));
        }
    }
    (values, indices)
}

fn read_output(output: &Output, bufs: &[Vec<Num>], value: &impl Fn(Expr) -> i64) -> Vec<Num> {
    match output {
        Output::View { buf, sizes, strides, offset } => {
            let sizes: Vec<i64> = sizes.iter().map(|&e| value(e)).collect();
            let strides: Vec<i64> = strides.iter().map(|&e| value(e)).collect();
            let offset = value(*offset);
            let at = |point: &[i64]| offset + point.iter().zip(&strides).map(|(i, s)| i * s).sum::<i64>();
            points(&sizes).iter().map(|p| bufs[buf.0 as usize][at(p) as usize]).collect()
        }
        Output::Int(e) => vec![Num::I(value(*e))],
        Output::Literal(s) => vec![scalar(*s)],
        Output::Nothing => Vec::new(),
    }
}

/// All coordinates of a shape, row-major.
pub fn points(sizes: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![Vec::new()];
    for &size in sizes {
        all = all.iter().flat_map(|p| (0..size).map(move |i| [&p[..], &[i]].concat())).collect();
    }
    all
}

fn scalar(s: Scalar) -> Num {
    match s {
        Scalar::Bool(b) => Num::I(i64::from(b)),
        Scalar::Int(i) => Num::I(i),
        Scalar::Float(f) => Num::F(f),
    }
}

struct Machine<'a> {
    loops: &'a Loops,
    nest: &'a Nest,
    bufs: &'a mut Vec<Vec<Num>>,
    symbols: &'a HashMap<Sym, i64>,
}

/// Values of axes and size symbols, and the reductions of this outer point.
#[derive(Clone)]
struct Env {
    symbols: HashMap<Sym, i64>,
    reduced: HashMap<u32, Num>,
}

impl Machine<'_> {
    fn run(&mut self) {
        let after = self.nest.after_reduce();
        let start = Env { symbols: self.symbols.clone(), reduced: HashMap::new() };
        for mut env in self.over(&self.nest.axes, &start) {
            let inner = self.over(&self.nest.reduced, &env);
            for (i, inst) in self.nest.body.iter().enumerate() {
                match inst.op {
                    InstOp::Reduce(op, v) => {
                        let start = scalar(op.identity(inst.ty));
                        let all = inner.iter().fold(start, |acc, e| {
                            let v = self.value(v, e);
                            round(apply(op.combine(), &[acc, v], inst.ty), inst.ty)
                        });
                        env.reduced.insert(i as u32, all);
                    }
                    InstOp::ArgReduce { max, value } => {
                        let values: Vec<f64> = inner.iter().map(|e| self.value(value, e).f()).collect();
                        env.reduced.insert(i as u32, Num::I(arg_extreme(&values, max)));
                    }
                    // A failing check is an error even where nothing uses the value.
                    InstOp::Bind { sym, .. } if !after[i] => inner.iter().for_each(|e| {
                        self.symbol(sym, e);
                    }),
                    InstOp::Store { .. } if !after[i] => inner.iter().for_each(|e| self.store(i, e)),
                    InstOp::Store { .. } => self.store(i, &env),
                    _ => {}
                }
            }
        }
    }

    fn over(&self, axes: &[Axis], env: &Env) -> Vec<Env> {
        let sizes: Vec<i64> = axes.iter().map(|a| self.index(a.extent, env)).collect();
        let bind = |point: Vec<i64>| {
            let mut env = env.clone();
            env.symbols.extend(axes.iter().zip(point).map(|(a, i)| (a.var, i)));
            env
        };
        points(&sizes).into_iter().map(bind).collect()
    }

    fn store(&mut self, at: usize, env: &Env) {
        let InstOp::Store { buf, index, value, combine } = self.nest.body[at].op else { return };
        let ty = self.nest.body[at].ty;
        assert_eq!(ty, self.loops.bufs[buf].dtype, "a store converts nothing");
        assert_eq!(ty, self.nest.body[value.0 as usize].ty, "a store converts nothing");
        let place = self.index(index, env) as usize;
        let mut v = self.value(value, env);
        if let Some(op) = combine {
            v = round(apply(op.combine(), &[self.bufs[buf.0 as usize][place], v], ty), ty);
        }
        self.bufs[buf.0 as usize][place] = v;
    }

    fn index(&self, e: Expr, env: &Env) -> i64 {
        e.eval(&|s| Some(self.symbol(s, env))).expect("an index")
    }

    /// An axis, a size, or a bound value, which is checked.
    fn symbol(&self, sym: Sym, env: &Env) -> i64 {
        if let Some(&v) = env.symbols.get(&sym) {
            return v;
        }
        let bind = self.nest.body.iter().find_map(|i| match i.op {
            InstOp::Bind { sym: s, value, extent } if s == sym => Some((value, extent)),
            _ => None,
        });
        let (value, extent) = bind.unwrap_or_else(|| panic!("{sym} is not defined"));
        let (v, extent) = (self.value(value, env).i(), self.index(extent, env));
        assert!((0..extent).contains(&v), "{sym} = {v} is not below {extent}");
        v
    }

    fn holds(&self, rel: &Rel, env: &Env) -> bool {
        rel.eval(&|s| Some(self.symbol(s, env))).expect("a relation")
    }

    fn value(&self, val: Val, env: &Env) -> Num {
        let inst = &self.nest.body[val.0 as usize];
        let ty = inst.ty;
        let result = match &inst.op {
            InstOp::Load { buf, index, guard, other } => {
                assert_eq!(ty, self.loops.bufs[*buf].dtype, "a load converts nothing");
                if guard.iter().all(|r| self.holds(r, env)) {
                    self.bufs[buf.0 as usize][self.index(*index, env) as usize]
                } else {
                    scalar(*other)
                }
            }
            InstOp::Const(s) => scalar(*s),
            InstOp::Index(e) => Num::I(self.index(*e, env)),
            InstOp::Cond(rel) => Num::I(i64::from(self.holds(rel, env))),
            InstOp::Op(op, args) => {
                let operands: Vec<Num> = args.iter().map(|&a| self.value(a, env)).collect();
                let types: Vec<Dtype> = args.iter().map(|a| self.nest.body[a.0 as usize].ty).collect();
                let same = if *op == ScalarOp::Select { &types[1..] } else { &types[..] };
                assert!(
                    same.windows(2).all(|w| w[0] == w[1]),
                    "{}: operand types differ: {types:?}",
                    op.name()
                );
                assert_eq!(types[0].compute(), types[0], "arithmetic is not done in half types");
                apply(*op, &operands, *types.last().expect("operands"))
            }
            InstOp::Cast(v) => return cast(self.value(*v, env), ty),
            InstOp::Bitcast(_) => panic!("bit casts are not interpreted"),
            InstOp::Bind { value, .. } => self.value(*value, env),
            InstOp::Reduce(..) | InstOp::ArgReduce { .. } => env.reduced[&val.0],
            InstOp::Scan { op, value, axis } => {
                let last = env.symbols[axis];
                (0..=last).fold(scalar(op.identity(ty)), |acc, i| {
                    let mut env = env.clone();
                    env.symbols.insert(*axis, i);
                    round(apply(op.combine(), &[acc, self.value(*value, &env)], ty), ty)
                })
            }
            InstOp::Store { .. } => panic!("a store has no value"),
        };
        round(result, ty)
    }
}

fn arg_extreme(values: &[f64], max: bool) -> i64 {
    let better = |a: f64, b: f64| !b.is_nan() && (a.is_nan() || if max { a > b } else { a < b });
    let mut best = 0;
    for (i, &v) in values.iter().enumerate() {
        if better(v, values[best]) {
            best = i;
        }
    }
    best as i64
}

fn cast(v: Num, to: Dtype) -> Num {
    match (v, to) {
        (v, Dtype::Bool) => Num::I(i64::from(v.truth())),
        (v, to) if to.is_float() => round(Num::F(v.f()), to),
        (Num::F(f), to) => round(Num::I(f as i64), to),
        (v, to) => round(v, to),
    }
}

/// The nearest number of a type.
pub fn round(v: Num, ty: Dtype) -> Num {
    match (v, ty) {
        (Num::F(f), Dtype::F32) => Num::F(f64::from(f as f32)),
        (Num::F(f), Dtype::BF16) => Num::F(round_mantissa(f, 8, -126, 3.3895313892515355e38)),
        (Num::F(f), Dtype::F16) => Num::F(round_mantissa(f, 11, -14, 65504.0)),
        (Num::I(i), Dtype::I32) => Num::I(i64::from(i as i32)),
        (Num::I(i), Dtype::I16) => Num::I(i64::from(i as i16)),
        (Num::I(i), Dtype::I8) => Num::I(i64::from(i as i8)),
        (Num::I(i), Dtype::U8) => Num::I(i64::from(i as u8)),
        (v, _) => v,
    }
}

/// Rounds to `bits` of mantissa, ties to even.
fn round_mantissa(f: f64, bits: i32, least: i32, largest: f64) -> f64 {
    if f == 0.0 || !f.is_finite() {
        return f;
    }
    let unit = 2f64.powi(((f.abs().log2().floor() as i32).max(least)) - bits + 1);
    let rounded = (f / unit).round_ties_even() * unit;
    if rounded.abs() > largest { f64::INFINITY.copysign(f) } else { rounded }
}

/// A scalar operation on operands of one type.
pub fn apply(op: ScalarOp, v: &[Num], ty: Dtype) -> Num {
    use ScalarOp as S;
    let flag = |b: bool| Num::I(i64::from(b));
    match op {
        S::Select => return if v[0].truth() { v[1] } else { v[2] },
        S::Eq => return flag(v[0].f() == v[1].f()),
        S::Ne => return flag(v[0].f() != v[1].f()),
        S::Lt => return flag(v[0].f() < v[1].f()),
        S::Le => return flag(v[0].f() <= v[1].f()),
        S::Gt => return flag(v[0].f() > v[1].f()),
        S::Ge => return flag(v[0].f() >= v[1].f()),
        S::Isnan => return flag(v[0].f().is_nan()),
        S::Isinf => return flag(v[0].f().is_infinite()),
        _ => {}
    }
    if ty.is_float() { Num::F(apply_float(op, v)) } else { Num::I(apply_int(op, v, ty)) }
}

fn apply_int(op: ScalarOp, v: &[Num], ty: Dtype) -> i64 {
    use ScalarOp as S;
    let a = v[0].i();
    let b = v.get(1).map_or(0, |n| n.i());
    match op {
        S::Add => a.wrapping_add(b),
        S::Sub => a.wrapping_sub(b),
        S::Mul => a.wrapping_mul(b),
        S::Div => a.checked_div(b).unwrap_or(0),
        S::FloorDiv => a.checked_div(b).map_or(0, |q| q - i64::from(a % b != 0 && (a < 0) != (b < 0))),
        S::Mod => a.checked_rem(b).map_or(0, |r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r }),
        S::Rem => a.checked_rem(b).unwrap_or(0),
        S::Max => a.max(b),
        S::Min => a.min(b),
        S::Neg => a.wrapping_neg(),
        S::Abs => a.wrapping_abs(),
        S::Sign => a.signum(),
        S::Pow => a.wrapping_pow(b as u32),
        S::And => a & b,
        S::Or => a | b,
        S::Xor => a ^ b,
        S::Not => {
            if ty == Dtype::Bool {
                1 - a
            } else {
                !a
            }
        }
        S::Shl => a << b,
        S::Shr => a >> b,
        other => panic!("{} on {ty}", other.name()),
    }
}

fn apply_float(op: ScalarOp, v: &[Num]) -> f64 {
    use ScalarOp as S;
    let a = v[0].f();
    let b = v.get(1).map_or(0.0, |n| n.f());
    match op {
        S::Add => a + b,
        S::Sub => a - b,
        S::Mul => a * b,
        S::Div => a / b,
        S::FloorDiv => (a / b).floor(),
        S::Mod => {
            let r = a % b;
            if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
        }
        S::Rem => a % b,
        S::Max => {
            if a.is_nan() || a > b {
                a
            } else {
                b
            }
        }
        S::Min => {
            if a.is_nan() || a < b {
                a
            } else {
                b
            }
        }
        S::Neg => -a,
        S::Abs => a.abs(),
        S::Sign => {
            if a > 0.0 {
                1.0
            } else if a < 0.0 {
                -1.0
            } else {
                0.0
            }
        }
        S::Fma => a * b + v[2].f(),
        S::Pow => a.powf(b),
        S::Sqrt => a.sqrt(),
        S::Rsqrt => 1.0 / a.sqrt(),
        S::Exp => a.exp(),
        S::Exp2 => a.exp2(),
        S::Expm1 => a.exp_m1(),
        S::Log => a.ln(),
        S::Log2 => a.log2(),
        S::Log10 => a.log10(),
        S::Log1p => a.ln_1p(),
        S::Sin => a.sin(),
        S::Cos => a.cos(),
        S::Tan => a.tan(),
        S::Asin => a.asin(),
        S::Acos => a.acos(),
        S::Atan => a.atan(),
        S::Atan2 => a.atan2(b),
        S::Sinh => a.sinh(),
        S::Cosh => a.cosh(),
        S::Tanh => a.tanh(),
        S::Asinh => a.asinh(),
        S::Acosh => a.acosh(),
        S::Atanh => a.atanh(),
        S::Erf => libm::erf(a),
        S::Erfc => libm::erfc(a),
        S::Lgamma => libm::lgamma(a),
        S::Floor => a.floor(),
        S::Ceil => a.ceil(),
        S::Round => a.round_ties_even(),
        S::Trunc => a.trunc(),
        S::Copysign => a.copysign(b),
        other => panic!("{} is not interpreted", other.name()),
    }
}

/// Kept in step with the reduction of the same name.
#[test]
fn reductions_start_from_their_identity() {
    for op in ReduceOp::ALL {
        let ty = if matches!(op, ReduceOp::Any | ReduceOp::All) { Dtype::Bool } else { Dtype::I64 };
        let one = Num::I(1);
        assert_eq!(apply(op.combine(), &[scalar(op.identity(ty)), one], ty), one, "{}", op.name());
    }
}
