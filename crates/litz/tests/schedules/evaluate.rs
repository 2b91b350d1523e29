//! Loops to what their outputs hold, by walking every nest point by point: slow, and independent of schedules.

use litz_ir::loops::{Axis, BufKind, InstOp, Loops, Nest, Output, Stmt};
use litz_ir::{ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Rel, Sym};
use std::collections::HashMap;

type Values = HashMap<Sym, i64>;

/// Outputs, in order. `inputs` are in the order of buffers.
pub fn evaluate(loops: &Loops, symbols: &[(String, i64)], inputs: &[Vec<f32>]) -> Vec<Vec<f64>> {
    let sizes: Values = symbols.iter().map(|(name, value)| (Sym::new(name), *value)).collect();
    let mut inputs = inputs.iter();
    let mut bufs: Vec<Vec<f64>> = Vec::new();
    for data in loops.bufs.values() {
        bufs.push(match data.kind {
            BufKind::Input => inputs.next().expect("one for each").iter().map(|&v| f64::from(v)).collect(),
            BufKind::Const(_) | BufKind::Temp => vec![f64::NAN; product(&data.sizes, &sizes)],
        });
    }
    for stmt in &loops.stmts {
        match stmt {
            Stmt::Nest(nest) => run(nest, &sizes, &mut bufs),
            Stmt::Extern(_) | Stmt::Region(_) => unreachable!("programs are nests: {}", stmt.name()),
        }
    }
    let outputs = loops.outputs.iter().map(|output| match output {
        Output::View { buf, .. } => bufs[buf.0 as usize].clone(),
        Output::Int(_) | Output::Literal(_) | Output::Nothing => Vec::new(),
    });
    outputs.collect()
}

fn product(sizes: &[Expr], values: &Values) -> usize {
    sizes.iter().map(|&size| number(size, values) as usize).product()
}

fn number(e: Expr, values: &Values) -> i64 {
    e.eval(&|sym| values.get(&sym).copied()).expect("every symbol has a value")
}

fn holds(rel: &Rel, values: &Values) -> bool {
    rel.eval(&|sym| values.get(&sym).copied()).expect("every symbol has a value")
}

/// Every point of `axes`, row-major.
fn points(axes: &[Axis], sizes: &Values) -> Vec<Values> {
    let mut all = vec![sizes.clone()];
    for axis in axes {
        let extend = |values: Values| {
            let extent = number(axis.extent, sizes);
            (0..extent).map(move |at| {
                let mut values = values.clone();
                values.insert(axis.var, at);
                values
            })
        };
        all = all.into_iter().flat_map(extend).collect();
    }
    all
}

fn run(nest: &Nest, sizes: &Values, bufs: &mut [Vec<f64>]) {
    // Running values of scans, by instruction and coordinates along the other axes. Points come row-major, so that each
    // axis increases while the others stand still.
    let mut running: HashMap<(usize, Vec<i64>), f64> = HashMap::new();
    let reduces = !nest.reduced.is_empty();
    let after: Vec<bool> = nest.after_reduce().into_iter().map(|after| after && reduces).collect();
    for point in points(&nest.axes, sizes) {
        let mut reduced: Vec<Option<f64>> = vec![None; nest.body.len()];
        let mut best: Vec<f64> = vec![f64::NAN; nest.body.len()];
        let inner = points(&nest.reduced, &point);
        for (at, inner) in inner.iter().enumerate() {
            let vals = straight_line(nest, inner, bufs, &|i| !after[i], &[], &mut running);
            for (i, inst) in nest.body.iter().enumerate() {
                match &inst.op {
                    InstOp::Reduce(op, v) => {
                        let value = vals[v.0 as usize];
                        reduced[i] = Some(reduced[i].map_or(value, |total| combine(*op, total, value)));
                    }
                    InstOp::ArgReduce { max, value } => {
                        let value = vals[value.0 as usize];
                        let wins = if *max { value > best[i] } else { value < best[i] };
                        if at == 0 || wins {
                            (best[i], reduced[i]) = (value, Some(at as f64));
                        }
                    }
                    _ => {}
                }
            }
        }
        // What was reduced over no points at all is the operation's own.
        for (i, inst) in nest.body.iter().enumerate() {
            let empty = match &inst.op {
                InstOp::Reduce(op, _) => scalar(op.identity(inst.ty)),
                _ => 0.0,
            };
            reduced[i].get_or_insert(empty);
        }
        if reduces {
            let reduced: Vec<f64> = reduced.into_iter().map(|value| value.unwrap_or(0.0)).collect();
            straight_line(nest, &point, bufs, &|i| after[i], &reduced, &mut running);
        }
    }
}

/// Runs the instructions that `wanted` picks, at one point; reductions have the values `reduced`.
fn straight_line(
    nest: &Nest,
    point: &Values,
    bufs: &mut [Vec<f64>],
    wanted: &dyn Fn(usize) -> bool,
    reduced: &[f64],
    running: &mut HashMap<(usize, Vec<i64>), f64>,
) -> Vec<f64> {
    let mut vals = vec![f64::NAN; nest.body.len()];
    for (i, inst) in nest.body.iter().enumerate() {
        // Constants and the like are part of both halves; loads may depend on axes that a tail does not have.
        let is_free = matches!(inst.op, InstOp::Const(_));
        if !(wanted(i) || is_free) {
            continue;
        }
        let of = |v: &litz_ir::loops::Val, vals: &[f64]| vals[v.0 as usize];
        vals[i] = match &inst.op {
            InstOp::Load { buf, index, guard, other } => match guard.iter().all(|rel| holds(rel, point)) {
                true => bufs[buf.0 as usize][number(*index, point) as usize],
                false => scalar(*other),
            },
            InstOp::Const(value) => scalar(*value),
            InstOp::Op(op, args) => {
                let args: Vec<f64> = args.iter().map(|v| of(v, &vals)).collect();
                match op {
                    ScalarOp::Add => args[0] + args[1],
                    ScalarOp::Sub => args[0] - args[1],
                    ScalarOp::Mul => args[0] * args[1],
                    ScalarOp::Max => args[0].max(args[1]),
                    ScalarOp::Min => args[0].min(args[1]),
                    other => unreachable!("no program uses {}", other.name()),
                }
            }
            InstOp::Cast(v) => of(v, &vals),
            InstOp::Reduce(..) | InstOp::ArgReduce { .. } => reduced.get(i).copied().unwrap_or(f64::NAN),
            InstOp::Scan { op, value, axis } => {
                let others = nest.axes.iter().filter(|a| a.var != *axis).map(|a| point[&a.var]).collect();
                let value = of(value, &vals);
                let total = running.entry((i, others)).or_insert_with(|| scalar(op.identity(inst.ty)));
                *total = combine(*op, *total, value);
                *total
            }
            InstOp::Store { buf, index, value, .. } => {
                let value = of(value, &vals);
                bufs[buf.0 as usize][number(*index, point) as usize] = value;
                value
            }
            InstOp::Index(_) | InstOp::Cond(_) | InstOp::Bitcast(_) | InstOp::Bind { .. } => {
                unreachable!("no program has {inst:?}")
            }
        };
    }
    vals
}

fn combine(op: ReduceOp, a: f64, b: f64) -> f64 {
    match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Max => a.max(b),
        ReduceOp::Min => a.min(b),
        ReduceOp::Prod | ReduceOp::Any | ReduceOp::All | ReduceOp::Xor => {
            unreachable!("no program uses {op:?}")
        }
    }
}

fn scalar(value: Scalar) -> f64 {
    match value {
        Scalar::Int(value) => value as f64,
        Scalar::Float(value) => value,
        Scalar::Bool(value) => f64::from(u8::from(value)),
    }
}
