//! Helpers of the tests: text to programs and back, and an interpreter of loops that is slow and obvious.
#![allow(dead_code)]

use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, BufData, BufKind, Inst, InstOp, Loops, Nest, Output, Region, Stmt};
use litz_ir::{ReduceOp, ScalarOp};
use litz_sym::{Expr, Sym};
use std::collections::{HashMap, HashSet};

/// The program that `text` spells, verified.
pub fn parse(text: &str) -> Loops {
    let loops = litz_ir::text::loops::parse(text).unwrap_or_else(|d| panic!("{}\nin\n{text}", join(&d)));
    verify(&loops);
    loops
}

/// Panics unless the verifier accepts the program.
pub fn verify(loops: &Loops) {
    let diags = litz_ir::verify::loops::verify(loops);
    assert!(diags.is_empty(), "{}\nin\n{loops}", join(&diags));
}

/// Diagnostics, one a line.
pub fn join(diags: &[litz_ir::Diag]) -> String {
    diags.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Compares texts line by line without indentation.
pub fn assert_text(found: &str, expected: &str) {
    let lines = |t: &str| t.trim().lines().map(|l| l.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(found), lines(expected), "found\n{found}");
}

/// Values of all outputs, then of all updates, when every input and constant holds small integers, so that sums are
/// exact in any order.
pub fn outputs(loops: &Loops, sizes: &[(&str, i64)]) -> Vec<Vec<f64>> {
    let sizes: HashMap<Sym, i64> = sizes.iter().map(|(name, n)| (Sym::new(name), *n)).collect();
    let mut machine = Machine { loops, sizes, memory: HashMap::new(), stored: HashSet::new() };
    for (buf, data) in loops.bufs.iter() {
        let span = machine.eval(data.span()).max(0) as usize;
        let contents = match &data.kind {
            BufKind::Temp => vec![None; span],
            BufKind::Input => random(&data.name, span).into_iter().map(Some).collect(),
            BufKind::Const(name) => random(name, span).into_iter().map(Some).collect(),
        };
        machine.memory.insert(buf, contents);
    }
    for stmt in &loops.stmts {
        match stmt {
            Stmt::Nest(nest) => machine.nest(nest),
            Stmt::Extern(call) => panic!("no routine {}", call.routine),
            Stmt::Region(region) => machine.region(region),
        }
    }
    let outputs = loops.outputs.iter().map(|o| machine.output(o));
    let updates = loops.updates.iter().map(|(_, source)| {
        let data = &loops.bufs[*source];
        let (sizes, strides) = (data.sizes.clone(), data.strides.clone());
        machine.output(&Output::View { buf: *source, sizes, strides, offset: Expr::zero() })
    });
    outputs.chain(updates).collect()
}

/// Integers from -8 to 8, the same for the same name; from 1 to 9 for names that say so.
fn random(name: &str, n: usize) -> Vec<f64> {
    let mut state =
        name.bytes().fold(0x9e37_79b9_7f4a_7c15u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = ((state >> 33) % 17) as f64 - 8.0;
        if name.starts_with("positive") { value.abs() + 1.0 } else { value }
    };
    (0..n).map(|_| next()).collect()
}

struct Machine<'a> {
    loops: &'a Loops,
    sizes: HashMap<Sym, i64>,
    /// Elements of each buffer; `None` until written.
    memory: HashMap<Buf, Vec<Option<f64>>>,
    /// Elements that the nest has written so far.
    stored: HashSet<(Buf, i64)>,
}

/// Values of the symbols at one point; there are few, so that looking through them is fast.
type Point = Vec<(Sym, i64)>;

fn lookup(point: &Point, sym: Sym) -> Option<i64> {
    point.iter().find(|p| p.0 == sym).map(|p| p.1)
}

impl Machine<'_> {
    fn eval(&self, e: Expr) -> i64 {
        self.eval_at(e, &Point::new())
    }

    fn eval_at(&self, e: Expr, point: &Point) -> i64 {
        e.eval(&|s| lookup(point, s).or_else(|| self.sizes.get(&s).copied()))
            .unwrap_or_else(|| panic!("{e} has no value"))
    }

    fn points(&self, axes: &[Axis]) -> Vec<Point> {
        axes.iter().fold(vec![Point::new()], |points, axis| {
            let extend = |p: &Point| -> Vec<Point> {
                (0..self.eval(axis.extent))
                    .map(|i| p.iter().copied().chain([(axis.var, i)]).collect())
                    .collect()
            };
            points.iter().flat_map(extend).collect()
        })
    }

    /// Nests before, then the repeated ones for each point of the axis, then nests behind.
    fn region(&mut self, region: &Region) {
        let over = region.over.var;
        let is_repeated: Vec<bool> = region.nests.iter().map(|nest| region.repeats(nest)).collect();
        let start = is_repeated.iter().position(|&r| r).expect("something is repeated");
        let end = is_repeated.iter().rposition(|&r| r).expect("something is repeated") + 1;
        region.nests[..start].iter().for_each(|nest| self.nest(nest));
        for point in 0..self.eval(region.over.extent) {
            self.sizes.insert(over, point);
            for nest in &region.nests[start..end] {
                let mut here = nest.clone();
                here.axes.retain(|axis| axis.var != over);
                self.nest(&here);
            }
        }
        self.sizes.remove(&over);
        region.nests[end..].iter().for_each(|nest| self.nest(nest));
    }

    fn nest(&mut self, nest: &Nest) {
        let after = nest.after_reduce();
        let varies = varying(nest);
        self.stored.clear();
        let mut scans: HashMap<(usize, Vec<i64>), f64> = HashMap::new();
        for outer in self.points(&nest.axes) {
            let mut accumulators: HashMap<usize, (f64, f64)> = HashMap::new();
            for (position, reduced) in self.points(&nest.reduced).into_iter().enumerate() {
                if nest.reduced.is_empty() {
                    break;
                }
                let mut point: Point = outer.iter().chain(&reduced).copied().collect();
                let mut values = vec![0.0; nest.body.len()];
                for (i, inst) in nest.body.iter().enumerate() {
                    match inst.op {
                        InstOp::Reduce(op, v) => {
                            let slot = accumulators.entry(i).or_insert((op.identity(inst.ty).as_f64(), 0.0));
                            slot.0 = combine(op, slot.0, values[v.index()]);
                        }
                        InstOp::ArgReduce { max, value } => {
                            let new = values[value.index()];
                            let slot = accumulators.entry(i).or_insert((f64::NAN, -1.0));
                            let better = slot.1 < 0.0
                                || !slot.0.is_nan()
                                    && (new.is_nan() || if max { new > slot.0 } else { new < slot.0 });
                            if better {
                                *slot = (new, position as f64);
                            }
                        }
                        _ if after[i] => {}
                        _ => values[i] = self.inst(inst, &values, &mut point),
                    }
                }
            }
            let mut point = outer.clone();
            let mut values = vec![0.0; nest.body.len()];
            for (i, inst) in nest.body.iter().enumerate() {
                values[i] = match inst.op {
                    InstOp::Reduce(op, _) => {
                        accumulators.get(&i).map_or(op.identity(inst.ty).as_f64(), |a| a.0)
                    }
                    InstOp::ArgReduce { .. } => accumulators[&i].1,
                    InstOp::Scan { op, value, axis } => {
                        let others = nest
                            .axes
                            .iter()
                            .filter(|a| a.var != axis)
                            .filter_map(|a| lookup(&outer, a.var))
                            .collect();
                        let slot = scans.entry((i, others)).or_insert(op.identity(inst.ty).as_f64());
                        *slot = combine(op, *slot, values[value.index()]);
                        *slot
                    }
                    _ if varies[i] => 0.0,
                    _ => self.inst(inst, &values, &mut point),
                };
            }
        }
    }

    fn inst(&mut self, inst: &Inst, values: &[f64], point: &mut Point) -> f64 {
        match &inst.op {
            InstOp::Load { buf, index, guard, other } => {
                let holds = |r: &litz_sym::Rel| {
                    r.eval(&|s| lookup(point, s).or_else(|| self.sizes.get(&s).copied()))
                        .expect("a bound relation")
                };
                if !guard.iter().all(holds) {
                    return other.as_f64();
                }
                let at = self.eval_at(*index, point);
                let name = &self.loops.bufs[*buf].name;
                let memory = &self.memory[buf];
                assert!((0..memory.len() as i64).contains(&at), "load {name}[{index}] at {at}, {point:?}");
                memory[at as usize].unwrap_or_else(|| panic!("load {name}[{index}] at {at}: never written"))
            }
            InstOp::Const(s) => s.as_f64(),
            InstOp::Index(e) => self.eval_at(*e, point) as f64,
            InstOp::Cond(r) => {
                let holds = r.eval(&|s| lookup(point, s).or_else(|| self.sizes.get(&s).copied()));
                f64::from(u8::from(holds.expect("a bound relation")))
            }
            InstOp::Op(op, args) => scalar(*op, &args.iter().map(|v| values[v.index()]).collect::<Vec<_>>()),
            InstOp::Cast(v) => values[v.index()],
            InstOp::Bind { sym, value, extent } => {
                let value = values[value.index()] as i64;
                assert!((0..self.eval_at(*extent, point)).contains(&value), "bind {sym} = {value}");
                point.push((*sym, value));
                value as f64
            }
            InstOp::Store { buf, index, value, combine: how } => {
                let at = self.eval_at(*index, point);
                let name = &self.loops.bufs[*buf].name;
                let memory = self.memory.get_mut(buf).expect("a buffer");
                assert!((0..memory.len() as i64).contains(&at), "store {name}[{index}] at {at}, {point:?}");
                let slot = &mut memory[at as usize];
                let value = values[value.index()];
                let first = self.stored.insert((*buf, at));
                assert!(how.is_some() || first, "store {name}[{index}] at {at}: written twice by one nest");
                *slot = Some(match (how, *slot) {
                    (Some(op), Some(old)) => combine(*op, old, value),
                    _ => value,
                });
                value
            }
            InstOp::Bitcast(_) | InstOp::Reduce(..) | InstOp::ArgReduce { .. } | InstOp::Scan { .. } => {
                panic!("not at a point: {inst:?}")
            }
        }
    }

    fn output(&self, output: &Output) -> Vec<f64> {
        match output {
            Output::View { buf, sizes, strides, offset } => {
                let axes: Vec<Axis> = sizes
                    .iter()
                    .enumerate()
                    .map(|(d, &extent)| Axis { var: Sym::new(&format!("out{d}")), extent })
                    .collect();
                let index = axes.iter().zip(strides).fold(*offset, |e, (a, &s)| e + Expr::sym(a.var) * s);
                let element = |p: Point| self.memory[buf][self.eval_at(index, &p) as usize].expect("written");
                self.points(&axes).into_iter().map(element).collect()
            }
            Output::Int(e) => vec![self.eval(*e) as f64],
            Output::Literal(s) => vec![s.as_f64()],
            Output::Nothing => Vec::new(),
        }
    }
}

fn varying(nest: &Nest) -> Vec<bool> {
    let mut symbols: Vec<Sym> = nest.reduced.iter().map(|a| a.var).collect();
    let mut varies: Vec<bool> = Vec::new();
    for inst in &nest.body {
        let reduces = matches!(inst.op, InstOp::Reduce(..) | InstOp::ArgReduce { .. });
        let by_operand = inst.op.operands().iter().any(|v| varies[v.index()]);
        let by_symbol = inst.op.exprs().iter().any(|e| symbols.iter().any(|&s| e.has_sym(s)));
        let own = !reduces && (by_operand || by_symbol);
        if let (InstOp::Bind { sym, .. }, true) = (&inst.op, own) {
            symbols.push(*sym);
        }
        varies.push(own);
    }
    varies
}

fn combine(op: ReduceOp, a: f64, b: f64) -> f64 {
    match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Prod => a * b,
        ReduceOp::Max => scalar(ScalarOp::Max, &[a, b]),
        ReduceOp::Min => scalar(ScalarOp::Min, &[a, b]),
        ReduceOp::Any => f64::from(u8::from(a != 0.0 || b != 0.0)),
        ReduceOp::All => f64::from(u8::from(a != 0.0 && b != 0.0)),
        ReduceOp::Xor => ((a as i64) ^ (b as i64)) as f64,
    }
}

fn scalar(op: ScalarOp, args: &[f64]) -> f64 {
    let truth = |b: bool| f64::from(u8::from(b));
    match (op, args) {
        (ScalarOp::Add, [a, b]) => a + b,
        (ScalarOp::Sub, [a, b]) => a - b,
        (ScalarOp::Mul, [a, b]) => a * b,
        (ScalarOp::Max, [a, b]) => {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                a.max(*b)
            }
        }
        (ScalarOp::Min, [a, b]) => {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                a.min(*b)
            }
        }
        (ScalarOp::Neg, [a]) => -a,
        (ScalarOp::Abs, [a]) => a.abs(),
        (ScalarOp::Exp, [a]) => a.exp(),
        (ScalarOp::Sqrt, [a]) => a.sqrt(),
        (ScalarOp::Rsqrt, [a]) => 1.0 / a.sqrt(),
        (ScalarOp::Div, [a, b]) => a / b,
        (ScalarOp::And, [a, b]) => truth(*a != 0.0 && *b != 0.0),
        (ScalarOp::Eq, [a, b]) => truth(a == b),
        (ScalarOp::Gt, [a, b]) => truth(a > b),
        (ScalarOp::Lt, [a, b]) => truth(a < b),
        (ScalarOp::Le, [a, b]) => truth(a <= b),
        (ScalarOp::Select, [c, a, b]) => {
            if *c != 0.0 {
                *a
            } else {
                *b
            }
        }
        _ => panic!("{} is not needed by any test", op.name()),
    }
}

/// The buffer of that name.
pub fn buf<'a>(loops: &'a Loops, name: &str) -> &'a BufData {
    loops.bufs.values().find(|b| b.name == name).unwrap_or_else(|| panic!("no buffer {name}"))
}
