//! Recurrent networks, written out step by step: the input's half of all gates in one product, then for each step the
//! state's half and the cell.

use crate::args::{Args, Tensor};
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::traits::Holds;
use litz_ir::graph::{Arg, Value};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.lstm.input", |r| network(r, Cell::Lstm)).random(IF_DROPPING),
    decompose("aten.gru.input", |r| network(r, Cell::Gru)).random(IF_DROPPING),
    decompose("aten.rnn_tanh.input", |r| network(r, Cell::Plain("aten.tanh.default"))).random(IF_DROPPING),
    decompose("aten.rnn_relu.input", |r| network(r, Cell::Plain("aten.relu.default"))).random(IF_DROPPING),
    decompose("aten.lstm_cell.default", |r| single(r, Cell::Lstm)),
    decompose("aten.gru_cell.default", |r| single(r, Cell::Gru)),
    decompose("aten.rnn_tanh_cell.default", |r| single(r, Cell::Plain("aten.tanh.default"))),
    decompose("aten.rnn_relu_cell.default", |r| single(r, Cell::Plain("aten.relu.default"))),
    decompose("aten._thnn_fused_lstm_cell.default", |r| fused(r, Cell::Lstm)),
    decompose("aten._thnn_fused_gru_cell.default", |r| fused(r, Cell::Gru)),
];

/// How the gates and a state make the next state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Lstm,
    Gru,
    /// A function of the sum of both halves, by its operator.
    Plain(&'static str),
}

impl Cell {
    /// Gates, whose rows lie one behind the other in weights and biases.
    fn gates(self) -> i64 {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Plain(_) => 1,
        }
    }
}

/// What one direction of one layer has learned. Rows of weights and biases are those of all gates.
struct Params {
    input: Value,
    hidden: Value,
    input_bias: Option<Value>,
    hidden_bias: Option<Value>,
    /// Makes the hidden state smaller than the cell's.
    projection: Option<Value>,
}

/// The hidden state and, of an LSTM, the cell's.
#[derive(Clone, Copy)]
struct State {
    hidden: Value,
    cell: Option<Value>,
}

/// One direction of one layer unrolled: the hidden states in order of time, and the state at the end.
struct Run {
    hidden: Vec<Value>,
    last: State,
}

fn int(i: i64) -> Arg {
    Arg::Int(Expr::int(i))
}

fn optional(value: Option<Value>) -> Arg {
    value.map_or(Arg::None, Arg::Value)
}

fn list(values: impl IntoIterator<Item = Value>) -> Arg {
    Arg::List(values.into_iter().map(Arg::Value).collect())
}

/// Whether elements are dropped between layers: in training only.
fn drops(args: &Args<'_>) -> Result<bool, OpError> {
    Ok(args.flag("train")? && args.float("dropout")? != 0.0 && args.literal("num_layers")? > 1)
}

const IF_DROPPING: Holds = Holds::When(|_, args| drops(args));

/// `[time, batch, features]` through all layers. Results: hidden states of the last layer, then final states.
fn network(r: &mut Rewriter<'_>, cell: Cell) -> Result<Vec<Value>, OpError> {
    let args = r.args();
    let layers = args.literal("num_layers")?;
    let (batch_first, bidirectional) = (args.flag("batch_first")?, args.flag("bidirectional")?);
    if drops(&args)? {
        return Err(args.unsupported("dropout between layers in training"));
    }
    let directions = if bidirectional { 2 } else { 1 };
    let states = states(&args, cell)?;
    let tensors = if cell == Cell::Lstm { args.tensors("hx")? } else { vec![args.tensor("hx")?] };
    let input = args.tensor("input")?.ty;
    // PyTorch refuses some of these and computes something of others; its modules make none.
    if let Some(ty) = tensors.iter().map(|t| t.ty).chain([input]).find(|ty| ty.rank() != 3) {
        return Err(args.unsupported(&format!("a sequence or state of other than three dimensions, {ty},")));
    }
    let runs = layers.saturating_mul(directions);
    let is_other = |states: Expr| states.as_int().is_some_and(|states| states != runs);
    if let Some(ty) = tensors.iter().map(|t| t.ty).find(|ty| is_other(ty.sizes[0])) {
        return Err(args.unsupported(&format!("{ty} as the states of {runs} directions of layers")));
    }
    let projects = match states.as_slice() {
        [hidden, cell] => hidden.1 != cell.1,
        _ => false,
    };
    let params = params(&args, args.flag("has_biases")?, projects)?;
    if params.len() as i64 != layers * directions {
        return Err(args.bad("params", &format!("weights of {} directions of layers", layers * directions)));
    }
    let mut x = args.tensor("input")?.value;
    if batch_first {
        x = r.call("aten.transpose.int", [Arg::Value(x), int(0), int(1)])?;
    }
    let mut last = Vec::new();
    for layer in 0..layers {
        let mut outputs = Vec::new();
        for direction in 0..directions {
            let at = layer * directions + direction;
            let mut start = |i: usize| match states.get(i) {
                Some(&(state, _)) => {
                    r.call("aten.select.int", [Arg::Value(state), int(0), int(at)]).map(Some)
                }
                None => Ok(None),
            };
            let (Some(hidden), cell_state) = (start(0)?, start(1)?) else {
                return Err(r.args().bad("hx", "initial states"));
            };
            let state = State { hidden, cell: cell_state };
            let run = run(r, cell, &params[at as usize], x, state, direction == 1)?;
            outputs.push(r.call("aten.stack.default", [list(run.hidden), int(0)])?);
            last.push(run.last);
        }
        x = match outputs.as_slice() {
            [only] => *only,
            _ => r.call("aten.cat.default", [list(outputs), int(-1)])?,
        };
    }
    if batch_first {
        x = r.call("aten.transpose.int", [Arg::Value(x), int(0), int(1)])?;
    }
    let mut results = vec![x, r.call("aten.stack.default", [list(last.iter().map(|s| s.hidden)), int(0)])?];
    if cell == Cell::Lstm {
        results.push(r.call("aten.stack.default", [list(last.iter().filter_map(|s| s.cell)), int(0)])?);
    }
    Ok(results)
}

/// Initial states and their widths: one, or hidden and cell state.
fn states(args: &Args<'_>, cell: Cell) -> Result<Vec<(Value, Expr)>, OpError> {
    let tensors = if cell == Cell::Lstm { args.tensors("hx")? } else { vec![args.tensor("hx")?] };
    let expected = if cell == Cell::Lstm { 2 } else { 1 };
    let width = |t: &Tensor<'_>| t.ty.sizes.last().map(|&w| (t.value, w));
    let states: Option<Vec<_>> = tensors.iter().map(width).collect();
    states.filter(|s| s.len() == expected).ok_or_else(|| args.bad("hx", &format!("{expected} states")))
}

/// The flat list of weights by layer and direction.
fn params(args: &Args<'_>, has_biases: bool, projects: bool) -> Result<Vec<Params>, OpError> {
    let each = if has_biases { 4 } else { 2 } + usize::from(projects);
    let values: Vec<Value> = args.tensors("params")?.iter().map(|t| t.value).collect();
    if !values.len().is_multiple_of(each) {
        return Err(args.bad("params", &format!("{each} tensors for each direction of each layer")));
    }
    let params = |v: &[Value]| Params {
        input: v[0],
        hidden: v[1],
        input_bias: has_biases.then(|| v[2]),
        hidden_bias: has_biases.then(|| v[3]),
        projection: projects.then(|| v[each - 1]),
    };
    Ok(values.chunks_exact(each).map(params).collect())
}

/// One direction of one layer over the whole sequence.
fn run(
    r: &mut Rewriter<'_>,
    cell: Cell,
    params: &Params,
    x: Value,
    mut state: State,
    backwards: bool,
) -> Result<Run, OpError> {
    let ty = r.ty(x)?;
    let Some(steps) = ty.sizes.first().and_then(|s| s.as_int()) else {
        return Err(r.args().unsupported("a sequence whose length is known only at run time"));
    };
    if steps < 1 {
        return Err(r.args().invalid(format!("a sequence {ty} has no steps")));
    }
    let gates = linear(r, x, params.input, params.input_bias)?;
    let mut hidden = Vec::new();
    for step in 0..steps {
        let time = if backwards { steps - 1 - step } else { step };
        let gates = r.call("aten.select.int", [Arg::Value(gates), int(0), int(time)])?;
        state = next(r, cell, params, gates, state)?;
        hidden.push(state.hidden);
    }
    if backwards {
        hidden.reverse();
    }
    Ok(Run { hidden, last: state })
}

/// Input and states of a step are matrices with a row for each sequence of the batch; states are as wide as the weights
/// have rows for each gate.
fn fitting(cx: &mut InferCx<'_>, args: &Args<'_>, cell: Cell) -> Result<(), OpError> {
    let mut tensors = if cell == Cell::Lstm { args.tensors("hx")? } else { vec![args.tensor("hx")?] };
    let input = args.tensor("input")?;
    tensors.push(input);
    for Tensor { ty, .. } in tensors {
        let differs =
            |_| args.invalid(format!("an input {} and a state {ty} are not of one batch", input.ty));
        let ([rows, _], [batch, _]) = (&ty.sizes[..], &input.ty.sizes[..]) else {
            return Err(
                args.invalid(format!("expected matrices as input and states, found {ty} and {}", input.ty))
            );
        };
        cx.require(Rel::eq(*rows, *batch), args.op()).map_err(differs)?;
    }
    let (states, gates) = (states(args, cell)?, cell.gates());
    let width = states[0].1;
    for &(_, other) in &states {
        let differs = |_| args.invalid(format!("states of {width} and {other} features"));
        cx.require(Rel::eq(other, width), args.op()).map_err(differs)?;
    }
    for name in ["w_ih", "w_hh"] {
        let ty = args.tensor(name)?.ty;
        let differs = |_| args.invalid(format!("{ty} is not {gates} gates of {width} features"));
        let [rows, _] = ty.sizes[..] else {
            return Err(args.invalid(format!("expected a matrix of weights, found {ty}")));
        };
        cx.require(Rel::eq(rows, width * gates), args.op()).map_err(differs)?;
    }
    Ok(())
}

/// One step alone.
fn single(r: &mut Rewriter<'_>, cell: Cell) -> Result<Vec<Value>, OpError> {
    r.require(|cx, args| fitting(cx, args, cell))?;
    let args = r.args();
    let states = states(&args, cell)?;
    let bias = |name: &str| args.opt_tensor(name).map(|t| t.map(|t| t.value));
    let params = Params {
        input: args.tensor("w_ih")?.value,
        hidden: args.tensor("w_hh")?.value,
        input_bias: bias("b_ih")?,
        hidden_bias: bias("b_hh")?,
        projection: None,
    };
    let x = args.tensor("input")?.value;
    let state = State { hidden: states[0].0, cell: states.get(1).map(|s| s.0) };
    let gates = linear(r, x, params.input, params.input_bias)?;
    let state = next(r, cell, &params, gates, state)?;
    Ok(std::iter::once(state.hidden).chain(state.cell).collect())
}

fn linear(r: &mut Rewriter<'_>, x: Value, weight: Value, bias: Option<Value>) -> Result<Value, OpError> {
    r.call("aten.linear.default", [Arg::Value(x), Arg::Value(weight), optional(bias)])
}

/// The next state from the input's half of the gates and the state. Formulas and the order of gates are those of
/// `torch.nn.LSTM`, `GRU` and `RNN`.
fn next(
    r: &mut Rewriter<'_>,
    cell: Cell,
    params: &Params,
    gates: Value,
    state: State,
) -> Result<State, OpError> {
    let own = linear(r, state.hidden, params.hidden, params.hidden_bias)?;
    let hidden = match cell {
        Cell::Lstm => {
            let Some(cell) = state.cell else { return Err(r.args().bad("hx", "a cell state")) };
            let gates = binary(r, "aten.add.Tensor", gates, own)?;
            let LstmStep { mut hidden, cell, .. } = lstm(r, gates, cell)?;
            if let Some(projection) = params.projection {
                hidden = linear(r, hidden, projection, None)?;
            }
            return Ok(State { hidden, cell: Some(cell) });
        }
        Cell::Gru => gru(r, gates, own, state.hidden)?.next,
        Cell::Plain(function) => {
            let sum = binary(r, "aten.add.Tensor", gates, own)?;
            unary(r, function, sum)?
        }
    };
    Ok(State { hidden, cell: None })
}

/// A cell of which both halves of the gates are there, as PyTorch has it for GPUs: the next states, and what its derivative needs. All of it is computed in one
/// type, and rounded at the end. (ATen/native/cuda/RNN.cu)
fn fused(r: &mut Rewriter<'_>, cell: Cell) -> Result<Vec<Value>, OpError> {
    let args = r.args();
    let dtype = args.tensor("input_gates")?.ty.dtype;
    let wide = dtype.compute();
    let value = |name: &str| args.tensor(name).map(|tensor| tensor.value);
    let bias = |name: &str| args.opt_tensor(name).map(|tensor| tensor.map(|tensor| tensor.value));
    let halves =
        [(value("input_gates")?, bias("input_bias")?), (value("hidden_gates")?, bias("hidden_bias")?)];
    let state = value(if cell == Cell::Gru { "hx" } else { "cx" })?;
    let mut gates = Vec::new();
    for (half, bias) in halves {
        let mut half = r.convert(half, wide)?;
        if let Some(bias) = bias {
            let bias = r.convert(bias, wide)?;
            half = binary(r, "aten.add.Tensor", half, bias)?;
        }
        gates.push(half);
    }
    let [input, hidden] = gates[..] else { return Err(r.args().invalid("expected two halves")) };
    let state = r.convert(state, wide)?;
    let results = match cell {
        Cell::Gru => {
            let GruStep { next, reset, update, new, hidden_new } = gru(r, input, hidden, state)?;
            vec![next, joined(r, &[reset, update, new, state, hidden_new])?]
        }
        Cell::Lstm | Cell::Plain(_) => {
            let gates = binary(r, "aten.add.Tensor", input, hidden)?;
            let LstmStep { hidden, cell, gates } = lstm(r, gates, state)?;
            vec![hidden, cell, joined(r, &gates)?]
        }
    };
    results.into_iter().map(|result| r.convert(result, dtype)).collect()
}

/// Gates side by side.
fn joined(r: &mut Rewriter<'_>, gates: &[Value]) -> Result<Value, OpError> {
    let gates = gates.iter().map(|&gate| Arg::Value(gate)).collect();
    r.call("aten.cat.default", [Arg::List(gates), int(-1)])
}

/// What a step of an LSTM gives: the next states, and the gates i, f, g and o behind their functions.
struct LstmStep {
    hidden: Value,
    cell: Value,
    gates: [Value; 4],
}

/// `c' = f * c + i * g`, `h' = o * tanh(c')`; gates lie in the order i, f, g, o.
fn lstm(r: &mut Rewriter<'_>, gates: Value, cell: Value) -> Result<LstmStep, OpError> {
    let [input, forget, candidate, output] = chunks(r, gates)?;
    let (input, forget) =
        (unary(r, "aten.sigmoid.default", input)?, unary(r, "aten.sigmoid.default", forget)?);
    let (candidate, output) =
        (unary(r, "aten.tanh.default", candidate)?, unary(r, "aten.sigmoid.default", output)?);
    let kept = binary(r, "aten.mul.Tensor", forget, cell)?;
    let added = binary(r, "aten.mul.Tensor", input, candidate)?;
    let cell = binary(r, "aten.add.Tensor", kept, added)?;
    let shown = unary(r, "aten.tanh.default", cell)?;
    let hidden = binary(r, "aten.mul.Tensor", output, shown)?;
    Ok(LstmStep { hidden, cell, gates: [input, forget, candidate, output] })
}

/// What a step of a GRU gives: the next state, the gates r and z and the new value behind their functions, and the state's half of that.
struct GruStep {
    next: Value,
    reset: Value,
    update: Value,
    new: Value,
    hidden_new: Value,
}

/// `h' = (h - n) * z + n` with `n = tanh(x_n + r * h_n)`; gates lie in the order r, z, n.
fn gru(r: &mut Rewriter<'_>, gates: Value, own: Value, hidden: Value) -> Result<GruStep, OpError> {
    let ([x_reset, x_update, x_new], [h_reset, h_update, h_new]) = (chunks(r, gates)?, chunks(r, own)?);
    let reset = binary(r, "aten.add.Tensor", h_reset, x_reset)?;
    let reset = unary(r, "aten.sigmoid.default", reset)?;
    let update = binary(r, "aten.add.Tensor", h_update, x_update)?;
    let update = unary(r, "aten.sigmoid.default", update)?;
    let kept = binary(r, "aten.mul.Tensor", reset, h_new)?;
    let new = binary(r, "aten.add.Tensor", x_new, kept)?;
    let new = unary(r, "aten.tanh.default", new)?;
    let distance = binary(r, "aten.sub.Tensor", hidden, new)?;
    let part = binary(r, "aten.mul.Tensor", distance, update)?;
    let next = binary(r, "aten.add.Tensor", part, new)?;
    Ok(GruStep { next, reset, update, new, hidden_new: h_new })
}

/// The gates of all kinds apart.
fn chunks<const N: usize>(r: &mut Rewriter<'_>, gates: Value) -> Result<[Value; N], OpError> {
    let parts = r.call_all("aten.chunk.default", [Arg::Value(gates), int(N as i64), int(-1)])?;
    let parts: Option<Vec<Value>> = parts.into_iter().collect();
    parts.and_then(|p| p.try_into().ok()).ok_or_else(|| r.args().invalid(format!("expected {N} gates")))
}

fn unary(r: &mut Rewriter<'_>, op: &str, x: Value) -> Result<Value, OpError> {
    r.call(op, [Arg::Value(x)])
}

fn binary(r: &mut Rewriter<'_>, op: &str, a: Value, b: Value) -> Result<Value, OpError> {
    r.call(op, [Arg::Value(a), Arg::Value(b)])
}
