//! Packs the integers of four bits that a product of one row makes its weights of into words, so that neighbours along the sum
//! are neighbours in the lanes of vectors.
//!
//! ```text
//! w[j, k] = f(k % 2 == 0 ? bytes[j, k / 2] & 15 : bytes[j, k / 2] >> 4, k / 128)
//!   =>  words[j, b, l] = or over t of bits(w, j, 128*b + 16*t + l) << 4*t        once, when the model is loaded
//!       w[j, 128*b + 16*t + l] = f(words[j, b, l] >> 4*t & 15, b)
//! ```
//!
//! Lanes along the sum share what a group of weights has in common, such as its scale, so that a weight is one of sixteen
//! numbers, which an instruction looks up in a register (the kernel pass `tabulate`). With lanes along columns each lane has
//! a scale of its own. Whichever way the model's file packs its integers, they are unpacked by its own operations here, and one
//! shift takes the next ones from the words.
//!
//! What is converted of constants that have few elements, such as those scales, is converted once as well.

use super::{Cx, Edits, Names, cse, names};
use litz_analysis::constants::Constants;
use litz_analysis::contraction::Words;
use litz_analysis::{Contraction, Uses};
use litz_ir::graph::TensorType;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::target::Target;
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::Expr;
use std::collections::BTreeMap;

/// Bits of an integer: a table has as many entries as there are of them.
const BITS: i64 = 4;

/// The types of words, with the integers that they hold.
const WORDS: [(Dtype, i64); 3] = [(Dtype::I32, 8), (Dtype::U16, 4), (Dtype::U8, 2)];

/// Bytes of words for each byte of constants that are converted for them: with groups of 64 integers a scale and a zero point take
/// a quarter more, and what converts them for each group would take as long as a third of its products.
const CONVERTED_SHARE: i64 = 4;

/// Whether a target looks up tables with an entry for each integer.
pub fn wants(target: &Target) -> bool {
    target.table_entries().map(i64::from) == Some(1 << BITS)
}

/// Packs integers; returns for how many products.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let lanes = 1 << BITS;
    let constants = Constants::of(loops, &[], &Uses::of(loops));
    let (mut edits, mut names) = (Edits::default(), Names::of(loops));
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        let Some(packing) = Packing::of(loops, nest, lanes, &constants) else { continue };
        let nest = nest.clone();
        let (words, packed) = add_words(loops, &nest, &packing, &mut names);
        edits.insert(at, Stmt::Nest(packed));
        let mut product = reading(loops, nest, &packing, words);
        convert_once(loops, &mut product, &packing, &constants, (&mut edits, at), &mut names);
        loops.stmts[at] = Stmt::Nest(product);
        count += 1;
    }
    edits.apply(loops);
    count
}

/// Whether a nest is a product with words that the target looks up in tables: vectors run along its sum.
pub(super) fn is_of_words(loops: &Loops, nest: &Nest, target: &Target) -> bool {
    target.table_entries().is_some_and(|lanes| Words::of(loops, nest, lanes.into()).is_some())
}

/// How the integers of a product's right operand are packed.
struct Packing {
    /// Position of the integer in the body of the product.
    integer: usize,
    /// The least one.
    least: i64,
    /// Outer axes that choose it.
    outer: Vec<Axis>,
    /// The reduced axis, and those that it becomes: words of a block, integers of a word, lanes.
    sum: Axis,
    parts: [Axis; 3],
    /// Type of a word.
    word: Dtype,
}

impl Packing {
    /// The packing of a nest, if it is a product of one row and of numbers that are made of constant integers of four bits, by
    /// what all integers of a block of words have in common.
    fn of(loops: &Loops, nest: &Nest, lanes: i64, constants: &Constants) -> Option<Packing> {
        let product = Contraction::by_result(loops, nest)?.contraction;
        let is_row = nest.axes.iter().all(|axis| product.n.contains(axis) || axis.extent.is_one());
        let &[sum] = &nest.reduced[..] else { return None };
        if product.is_plain || !is_row {
            return None;
        }
        let factor = factor_with(nest, product.rhs)?;
        let of_operand = with_operands(nest, factor);
        let takes_load = |at: &usize| with_operands(nest, *at).contains(&product.rhs);
        let is_made = |at: &usize| {
            let InstOp::Cast(from) = nest.body[*at].op else { return false };
            nest.body[*at].ty == Dtype::F32
                && range(nest, from.index()).is_some_and(|(lo, hi)| hi - lo < 1 << BITS)
        };
        let casts: Vec<usize> =
            of_operand.iter().copied().filter(|at| takes_load(at) && is_made(at)).collect();
        let &[cast] = &casts[..] else { return None };
        let InstOp::Cast(integer) = nest.body[cast].op else { return None };
        let integer = integer.index();
        let of_integer = with_operands(nest, integer);
        let is_kept = |at: &usize| {
            let op = &nest.body[*at].op;
            let is_changing = matches!(op, InstOp::Load { buf, guard, .. } if !constants.is_buffer(*buf) || !guard.is_empty());
            op.is_term() && !is_changing
        };
        let others = except(nest, factor, integer);
        if !of_integer.iter().all(is_kept) || others.contains(&product.rhs) {
            return None;
        }
        let mentions = |at: usize, axis: &Axis| nest.body[at].op.exprs().iter().any(|e| e.has_sym(axis.var));
        let outer = nest.axes.iter().filter(|axis| of_integer.iter().any(|&at| mentions(at, axis)));
        let outer: Vec<Axis> = outer.copied().collect();
        let length = sum.extent.as_int()?;
        outer.iter().try_for_each(|axis| axis.extent.as_int().map(drop))?;
        let name = |part: &str| names::symbol(&format!("{}{part}", sum.var), &loops.facts, nest.all_axes());
        let (block, place, lane) = (name("b"), name("t"), name("l"));
        let packing = |(word, integers): (Dtype, i64)| {
            let extents = [length / (integers * lanes), integers, lanes];
            let vars = [block, place, lane];
            let parts = std::array::from_fn(|i| Axis { var: vars[i], extent: Expr::int(extents[i]) });
            Packing {
                integer,
                least: range(nest, integer).map_or(0, |all| all.0),
                outer: outer.clone(),
                sum,
                parts,
                word,
            }
        };
        let fits = |packing: &Packing| {
            let [_, integers, lanes] = &packing.parts;
            let is_whole = (integers.extent * lanes.extent).as_int().is_some_and(|block| length % block == 0);
            let facts = packing.facts(loops, nest);
            let is_common = |at: &usize| {
                let exprs = nest.body[*at].op.exprs();
                let mut placed = exprs.iter().map(|e| facts.simplify(e.replace(sum.var, packing.value())));
                placed.all(|e| !e.has_sym(integers.var) && !e.has_sym(lanes.var))
            };
            is_whole && others.iter().all(is_common)
        };
        WORDS.into_iter().map(packing).find(fits)
    }

    /// Of the reduced axis in terms of its parts.
    fn value(&self) -> Expr {
        let [block, place, lane] = &self.parts;
        let number = Expr::sym(block.var) * place.extent + Expr::sym(place.var);
        number * lane.extent + Expr::sym(lane.var)
    }

    fn facts(&self, loops: &Loops, nest: &Nest) -> litz_sym::Facts {
        let mut facts = nest.facts(&loops.facts);
        self.parts.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
        facts
    }

    /// The axes of the words, in the order of their memory.
    fn axes(&self) -> Vec<Axis> {
        let [block, _, lane] = self.parts;
        self.outer.iter().copied().chain([block, lane]).collect()
    }

    fn element(&self) -> Vec<Expr> {
        self.axes().iter().map(|axis| Expr::sym(axis.var)).collect()
    }
}

/// The factor of a product that depends on a load.
fn factor_with(nest: &Nest, load: usize) -> Option<usize> {
    let sum = nest
        .body
        .iter()
        .find_map(|inst| if let InstOp::Reduce(_, value) = inst.op { Some(value.index()) } else { None })?;
    let InstOp::Op(ScalarOp::Mul, factors) = &nest.body[sum].op else { return None };
    factors.iter().map(|factor| factor.index()).find(|&factor| with_operands(nest, factor).contains(&load))
}

/// The instructions that a value is computed by, its own included, in order.
fn with_operands(nest: &Nest, at: usize) -> Vec<usize> {
    except(nest, at, usize::MAX)
}

/// The same without those that only `left_out` needs, and without it.
fn except(nest: &Nest, at: usize, left_out: usize) -> Vec<usize> {
    let mut is_needed = vec![false; at + 1];
    is_needed[at] = at != left_out;
    for position in (0..=at).rev().filter(|&position| position != left_out) {
        if is_needed[position] {
            nest.body[position].op.operands().iter().for_each(|val| is_needed[val.index()] = true);
        }
    }
    (0..=at).filter(|&position| is_needed[position] && position != left_out).collect()
}

/// The least and the greatest value of an integer, if that is known.
fn range(nest: &Nest, at: usize) -> Option<(i64, i64)> {
    let inst = &nest.body[at];
    if !inst.ty.is_int() {
        return None;
    }
    let bits = 8 * inst.ty.size() as u32;
    let all = match (inst.ty.is_unsigned(), bits) {
        (true, ..=32) => Some((0, (1 << bits) - 1)),
        (false, ..=32) => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
        (_, _) => None,
    };
    // What does not fit the type begins again at its other end.
    let fits = |found: &(i64, i64)| all.is_none_or(|all| all.0 <= found.0 && found.1 <= all.1);
    result_range(nest, inst).filter(fits).or(all)
}

/// The same of what an instruction gives, without the ends of its type.
fn result_range(nest: &Nest, inst: &Inst) -> Option<(i64, i64)> {
    let of = |val: &Val| range(nest, val.index());
    match &inst.op {
        InstOp::Const(Scalar::Int(value)) => Some((*value, *value)),
        InstOp::Cast(from) => of(from),
        InstOp::Op(ScalarOp::Select, args) => {
            let (a, b) = (of(&args[1])?, of(&args[2])?);
            Some((a.0.min(b.0), a.1.max(b.1)))
        }
        // What has no sign in either operand has none in both, and no more bits than the smaller one.
        InstOp::Op(ScalarOp::And, args) => {
            let ends = args.iter().filter_map(of).filter(|all| all.0 >= 0).map(|all| all.1);
            ends.min().map(|end| (0, end))
        }
        InstOp::Op(ScalarOp::Shr, args) => {
            let ((low, high), (by, same)) = (of(&args[0])?, of(&args[1])?);
            (by == same && (0..8 * inst.ty.size() as i64).contains(&by)).then_some((low >> by, high >> by))
        }
        InstOp::Op(ScalarOp::Add, args) => {
            let (a, b) = (of(&args[0])?, of(&args[1])?);
            Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?))
        }
        InstOp::Op(ScalarOp::Sub, args) => {
            let (a, b) = (of(&args[0])?, of(&args[1])?);
            Some((a.0.checked_sub(b.1)?, a.1.checked_sub(b.0)?))
        }
        InstOp::Const(_)
        | InstOp::Op(..)
        | InstOp::Load { .. }
        | InstOp::Index(_)
        | InstOp::Cond(_)
        | InstOp::Bitcast(_)
        | InstOp::Bind { .. }
        | InstOp::Reduce(..)
        | InstOp::ArgReduce { .. }
        | InstOp::Scan { .. }
        | InstOp::Store { .. } => None,
    }
}

/// Adds a buffer of words; returns it with the nest that fills it.
fn add_words(loops: &mut Loops, nest: &Nest, packing: &Packing, names: &mut Names) -> (Buf, Nest) {
    let of_integer = with_operands(nest, packing.integer);
    let facts = packing.facts(loops, nest);
    let mut body: Vec<Inst> = Vec::new();
    let mut word = None;
    for place in 0..packing.parts[1].extent.as_int().unwrap_or(0) {
        let at = packing.value().replace(packing.parts[1].var, Expr::int(place));
        let mut map: BTreeMap<usize, Val> = BTreeMap::new();
        for &position in &of_integer {
            let mut inst = nest.body[position].clone();
            inst.op.operands_mut().into_iter().for_each(|val| *val = map[&val.index()]);
            inst.op.map_exprs(&mut |e| facts.simplify(e.replace(packing.sum.var, at)));
            map.insert(position, push(&mut body, inst.op, inst.ty));
        }
        let wide = push(&mut body, InstOp::Cast(map[&packing.integer]), Dtype::I32);
        let least = integer(&mut body, packing.least);
        let above = push(&mut body, InstOp::Op(ScalarOp::Sub, vec![wide, least]), Dtype::I32);
        let by = integer(&mut body, BITS * place);
        let placed = push(&mut body, InstOp::Op(ScalarOp::Shl, vec![above, by]), Dtype::I32);
        word = Some(match word {
            None => placed,
            Some(word) => push(&mut body, InstOp::Op(ScalarOp::Or, vec![word, placed]), Dtype::I32),
        });
    }
    let mut value = word.expect("invariant: a word holds integers");
    if packing.word != Dtype::I32 {
        value = push(&mut body, InstOp::Cast(value), packing.word);
    }
    let source = source(loops, nest, &of_integer);
    let (axes, index) = (packing.axes(), packing.element());
    let sizes = axes.iter().map(|axis| axis.extent).collect();
    let ty = TensorType::contiguous(packing.word, sizes).on(loops.device_of(&nest.body));
    let buf = names.add_buf(loops, &format!("{source}_words"), ty);
    push(&mut body, InstOp::Store { buf, index, value, combine: None }, packing.word);
    let name = names.statement(&loops.bufs[buf].name);
    let mut packed = Nest::new(name, vec![source], axes, body);
    cse::clean(&mut packed);
    (buf, packed)
}

/// Name of the buffer that integers are loaded from.
fn source(loops: &Loops, nest: &Nest, of_integer: &[usize]) -> String {
    let loaded = of_integer.iter().filter_map(|&at| nest.body[at].op.element());
    let largest = loaded.max_by_key(|(buf, _)| loops.facts.hint(loops.bufs[*buf].elements()));
    largest.map_or_else(String::new, |(buf, _)| loops.bufs[buf].name.clone())
}

/// The product with its integers taken from words.
fn reading(loops: &Loops, mut nest: Nest, packing: &Packing, words: Buf) -> Nest {
    let facts = packing.facts(loops, &nest);
    let mut body: Vec<Inst> = Vec::new();
    let mut map: Vec<Val> = Vec::with_capacity(nest.body.len());
    for (position, mut inst) in std::mem::take(&mut nest.body).into_iter().enumerate() {
        inst.op.operands_mut().into_iter().for_each(|val| *val = map[val.index()]);
        inst.op.map_exprs(&mut |e| {
            if e.has_sym(packing.sum.var) {
                facts.simplify(e.replace(packing.sum.var, packing.value()))
            } else {
                e
            }
        });
        if position != packing.integer {
            map.push(push(&mut body, inst.op, inst.ty));
            continue;
        }
        let other = Scalar::zero(packing.word);
        let load = InstOp::Load { buf: words, index: packing.element(), guard: Vec::new(), other };
        let mut value = push(&mut body, load, packing.word);
        if packing.word != Dtype::I32 {
            value = push(&mut body, InstOp::Cast(value), Dtype::I32);
        }
        let by = push(&mut body, InstOp::Index(Expr::sym(packing.parts[1].var) * BITS), Dtype::I64);
        let by = push(&mut body, InstOp::Cast(by), Dtype::I32);
        value = push(&mut body, InstOp::Op(ScalarOp::Shr, vec![value, by]), Dtype::I32);
        let mask = integer(&mut body, (1 << BITS) - 1);
        value = push(&mut body, InstOp::Op(ScalarOp::And, vec![value, mask]), Dtype::I32);
        if packing.least != 0 {
            let least = integer(&mut body, packing.least);
            value = push(&mut body, InstOp::Op(ScalarOp::Add, vec![value, least]), Dtype::I32);
        }
        if inst.ty != Dtype::I32 {
            value = push(&mut body, InstOp::Cast(value), inst.ty);
        }
        map.push(value);
    }
    (nest.body, nest.reduced) = (body, packing.parts.to_vec());
    cse::clean(&mut nest);
    nest
}

/// Keeps what a product converts of small constants.
fn convert_once(
    loops: &mut Loops,
    nest: &mut Nest,
    packing: &Packing,
    constants: &Constants,
    (edits, at): (&mut Edits, usize),
    names: &mut Names,
) {
    let bytes = |axes: &[Axis]| axes.iter().filter_map(|axis| axis.extent.as_int()).product::<i64>();
    let mut left = bytes(&packing.axes()) * packing.word.size() as i64 / CONVERTED_SHARE;
    for position in 0..nest.body.len() {
        let InstOp::Cast(from) = nest.body[position].op else { continue };
        let InstOp::Load { buf, index, guard, .. } = &nest.body[from.index()].op else { continue };
        let (source, ty) = (loops.bufs[*buf].clone(), nest.body[position].ty);
        let elements = source.elements().as_int().unwrap_or(i64::MAX);
        let size = elements.saturating_mul(ty.size() as i64);
        if !constants.is_buffer(*buf) || !guard.is_empty() || !ty.is_float() || size > left {
            continue;
        }
        left -= size;
        let axes = source.sizes.iter().enumerate().map(|(dim, &extent)| {
            let var = names::symbol(&format!("d{dim}"), &loops.facts, std::iter::empty());
            Axis { var, extent }
        });
        let axes: Vec<Axis> = axes.collect();
        let element: Vec<Expr> = axes.iter().map(|axis| Expr::sym(axis.var)).collect();
        let name = format!("{}_{ty}", source.name);
        let other = Scalar::zero(ty);
        let read = InstOp::Load {
            buf: *buf,
            index: element.clone(),
            guard: Vec::new(),
            other: Scalar::zero(source.dtype),
        };
        let index = index.clone();
        let loaded_as = nest.body[from.index()].ty;
        let kept_type = TensorType::contiguous(ty, source.sizes.clone()).on(source.device);
        let kept = names.add_buf(loops, &name, kept_type);
        let mut body = Vec::new();
        let value = push(&mut body, read, loaded_as);
        let value = push(&mut body, InstOp::Cast(value), ty);
        push(&mut body, InstOp::Store { buf: kept, index: element, value, combine: None }, ty);
        let name = names.statement(&loops.bufs[kept].name);
        let from = vec![source.name];
        edits.insert(at, Stmt::Nest(Nest::new(name, from, axes, body)));
        nest.body[position].op = InstOp::Load { buf: kept, index, guard: Vec::new(), other };
    }
    cse::clean(nest);
}

fn integer(body: &mut Vec<Inst>, value: i64) -> Val {
    push(body, InstOp::Const(Scalar::Int(value)), Dtype::I32)
}

fn push(body: &mut Vec<Inst>, op: InstOp, ty: Dtype) -> Val {
    body.push(Inst { op, ty });
    Val::new(body.len() - 1)
}
