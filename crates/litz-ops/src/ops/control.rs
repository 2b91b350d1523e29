//! Lowers operators that choose among graphs and repeat them, as data decides: each graph becomes a function of the loops.
//!
//! What goes over the slices of tensors, such as `scan`, is a loop that counts: it reads a slice of each operand, calls the function
//! and stores a slice of each result. A loop changes its state in place, so that a row costs what a row has.

use crate::args::Args;
use crate::def::{OpDef, lower};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::is_overlapping;
use crate::lower::Lower;
use crate::lower::function::{Gives, Repeat, Wanted};
use crate::lower::results::Results;
use crate::view::ValueAccess;
use litz_ir::graph::{Arg, TensorType, Type};
use litz_ir::loops::Control;
use litz_ir::schema::Effect;
use litz_ir::{Dtype, Scalar};
use litz_sym::Expr;

/// Entries. None is left out or merged: graphs may assert something.
pub const OPS: &[OpDef] = &[
    lower("higher_order.cond.default", stated_types, cond).effect(Effect::Asserts),
    lower("higher_order.while_loop.default", stated_types, while_loop).effect(Effect::Asserts),
    lower("higher_order.map_impl.default", stated_types, map).effect(Effect::Asserts),
    lower("higher_order.scan.default", stated_types, scan).effect(Effect::Asserts),
    lower("higher_order.associative_scan.default", stated_types, associative_scan).effect(Effect::Asserts),
];

/// What the file says: lowering compares it with what the graphs give. Any type stands for results that nothing uses.
fn stated_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    for (at, ty) in (0..args.node.outputs.len()).filter_map(|at| Some((at, args.stated(at)?.stored()))) {
        if is_overlapping(cx.facts, &ty) {
            return Err(args.invalid(format!("result {at}: {ty}, whose elements share memory")));
        }
    }
    let missing = || Type::Tensor(TensorType::contiguous(Dtype::F32, Vec::new()));
    Ok((0..args.node.outputs.len()).map(|i| args.stated(i).cloned().unwrap_or_else(missing)).collect())
}

fn graph_name<'a>(args: &Args<'a>, name: &str) -> Result<&'a str, OpError> {
    match args.get(name) {
        Arg::Graph(name) => Ok(name),
        _ => Err(args.bad(name, "a graph")),
    }
}

fn list<'a>(args: &Args<'a>, name: &str) -> Result<&'a [Arg], OpError> {
    args.get(name).as_list().ok_or_else(|| args.bad(name, "a list"))
}

/// One of two graphs.
fn cond(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let operands = list(args, "operands")?;
    let (yes, no) = (graph_name(args, "true_fn")?, graph_name(args, "false_fn")?);
    let results = Results::new(lw, args, &[lw.subgraph(yes)?, lw.subgraph(no)?])?;
    let gives = Gives::Results(&results.wanted, &results.sizes);
    let then = lw.function(yes, gives)?;
    let other = lw.function(no, gives)?;
    let holds = lw.truth(args.get("pred"))?;
    let mut reads = vec![holds];
    for call in [&then, &other] {
        reads.extend(lw.arguments(&call.inputs, operands)?);
    }
    let given = results.buffers(lw);
    let writes = given.0.iter().chain(&given.1).map(|access| access.buf).collect();
    lw.control(Control::Branch { then: then.call(), other: other.call() }, reads, writes);
    results.give(lw, args, given)
}

/// A graph as long as another says.
fn while_loop(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (carried, others) = (list(args, "carried_inputs")?, list(args, "additional_inputs")?);
    args.at_most(carried.len())?;
    let truth = Wanted { at: 0, ty: TensorType::contiguous(Dtype::Bool, Vec::new()), is_part: false };
    let more = lw.function(graph_name(args, "cond_fn")?, Gives::Results(&[truth], &[]))?;
    let body = lw.function(graph_name(args, "body_fn")?, Gives::Updates(carried.len()))?;
    if carried.len() > body.inputs.len().min(more.inputs.len()) {
        return Err(args.invalid("expected graphs that take what is carried"));
    }
    let mut state = Vec::with_capacity(carried.len());
    for (operand, ty) in carried.iter().zip(&body.inputs) {
        let from = lw.operand(operand)?;
        state.push(lw.own_copy(&from, "state", ty)?);
    }
    for (own, (takes, ty)) in more.inputs.iter().zip(&body.inputs).take(carried.len()).enumerate() {
        if takes != ty {
            let message =
                format!("expected graphs that take the same state, found {takes} and {ty} at {own}");
            return Err(args.invalid(message));
        }
    }
    let own = || state.iter().map(|access| access.buf);
    let mut reads = Vec::new();
    for call in [&more, &body] {
        reads.extend(own());
        reads.extend(lw.arguments(&call.inputs[carried.len()..], others)?);
    }
    let holds = lw.temp("more", Dtype::Bool, &[]);
    let writes = std::iter::once(holds.buf).chain(own()).collect();
    lw.control(Control::While { cond: more.call(), body: body.call() }, reads, writes);
    lw.give(args, 0, state)
}

/// A graph of each slice.
fn map(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let name = graph_name(args, "f")?;
    over_slices(lw, args, name, &[], list(args, "pos_args")?)
}

/// A graph of what it gave before and each slice.
fn scan(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let name = graph_name(args, "combine_fn")?;
    over_slices(lw, args, name, list(args, "init")?, list(args, "additional_inputs")?)
}

/// Copies of what a loop begins with, of the types of its results; of their own where nothing uses these.
fn states(lw: &mut Lower<'_>, args: &Args<'_>, carried: &[Arg]) -> Result<Vec<ValueAccess>, OpError> {
    let state = |(at, operand): (usize, &Arg)| {
        let from = lw.operand(operand)?;
        let own = || TensorType::contiguous(from.dtype, from.sizes.clone());
        let ty = args.stated(at).map_or_else(own, |ty| ty.stored().into_owned());
        lw.own_copy(&from, "state", &ty)
    };
    carried.iter().enumerate().map(state).collect()
}

fn over_slices(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    name: &str,
    carried: &[Arg],
    others: &[Arg],
) -> Result<(), OpError> {
    args.at_most(lw.subgraph(name)?.outputs.len())?;
    let mut given = states(lw, args, carried)?;
    let rows: Vec<usize> =
        (carried.len()..lw.subgraph(name)?.outputs.len()).filter(|&at| args.stated(at).is_some()).collect();
    for ty in rows.iter().filter_map(|&at| args.stated(at)) {
        if !ty.stored().sizes.iter().all(|&size| lw.is_given(size)) {
            return Err(
                args.unsupported(&format!("rows of a result of {}, whose size a graph decides", ty.stored()))
            );
        }
        let rows = lw.temp_of("rows", &ty.stored());
        lw.fill(&rows, Scalar::zero(rows.dtype))?;
        given.push(rows);
    }
    let repeat = Repeat { slices: list(args, "xs")?, others, first: 0, rows: &rows };
    lw.repeat(name, &repeat, &given)?;
    let of_rows = given.split_off(carried.len());
    lw.give(args, 0, given)?;
    for (at, access) in rows.into_iter().zip(of_rows) {
        lw.give(args, at, vec![access])?;
    }
    Ok(())
}

/// Slices combined one after another: each result holds what is so far.
fn associative_scan(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (name, slices) = (graph_name(args, "combine_fn")?, list(args, "xs")?);
    args.at_most(slices.len())?;
    let (mut states, mut rows) = (Vec::new(), Vec::new());
    for (at, operand) in slices.iter().enumerate() {
        let from = lw.operand(operand)?;
        let own = || TensorType::contiguous(from.dtype, from.sizes.clone());
        let ty = args.stated(at).map_or_else(own, |ty| ty.stored().into_owned());
        let Some((&length, sizes)) = ty.sizes.split_first() else {
            return Err(args.invalid("expected operands with a dimension to go along"));
        };
        if lw.infer_cx().known(litz_sym::Rel::le(1, length)) != Some(true) {
            return Err(args.unsupported("a scan along what may be empty"));
        }
        let state = lw.temp("state", ty.dtype, sizes);
        let given = lw.temp_of("rows", &ty);
        lw.fill(&given, Scalar::zero(ty.dtype))?;
        lw.nest(sizes, |b, at| {
            let first = [&[Expr::zero()], at].concat();
            let value = b.load(&from, &first);
            b.store(&state, at, value);
            b.store(&given, &first, value);
            Ok(())
        })?;
        states.push(state);
        rows.push(given);
    }
    let others = list(args, "additional_inputs")?;
    let same: Vec<usize> = (0..rows.len()).collect();
    let repeat = Repeat { slices, others, first: 1, rows: &same };
    let all = [states, rows.clone()].concat();
    lw.repeat(name, &repeat, &all)?;
    lw.give(args, 0, rows)
}
