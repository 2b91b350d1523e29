//! Adds the copies that a schedule declares to a loops program: for each a buffer, and a nest that copies every element.
//!
//! Both come last, so that all else keeps its place. The nest reads the buffer, or the copy of it that is named; which loads of
//! other nests take their elements from a copy is for the places of their leaves to say.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashSet;

use litz_ir::graph::{TensorType, contiguous_strides};
use litz_ir::loops::{Axis, Buf, BufData, BufKind, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::scalar::Scalar;
use litz_ir::schedule::{KernelPlan, LoadOf, Local, Schedule, ScheduleStep};
use litz_sym::{Expr, Sym};

/// The program with the copies that a schedule declares. One of a buffer that there is not, or under a name that is taken, is left out.
pub fn with_copies<'l>(loops: Cow<'l, Loops>, schedule: &Schedule) -> Cow<'l, Loops> {
    let declared = declared(schedule, |local| local.buffer().zip(local.copied()));
    if declared.is_empty() {
        return loops;
    }
    let mut loops = loops.into_owned();
    let names = loops.stmts.iter().map(Stmt::name).chain(loops.bufs.values().map(|data| &*data.name));
    let mut taken: HashSet<String> = names.map(str::to_owned).collect();
    for (name, of) in declared {
        let original = loops.bufs.iter().find(|(_, data)| data.name == of).map(|(buf, _)| buf);
        if let Some(original) = original
            && taken.insert(name.to_owned())
        {
            let copy = beside(&mut loops, original, name);
            let nest = copying(&loops, original, copy, name);
            loops.stmts.push(Stmt::Nest(nest));
        }
    }
    Cow::Owned(loops)
}

/// What `of` finds in the memory that a schedule declares, in order.
pub(crate) fn declared<'s, T>(schedule: &'s Schedule, of: impl Fn(&'s Local) -> Option<T>) -> Vec<T> {
    let plans = schedule.steps.iter().filter_map(|step| match step {
        ScheduleStep::Kernel(plan) => Some(plan),
        ScheduleStep::Extern { .. } => None,
    });
    plans.flat_map(KernelPlan::locals).filter_map(of).collect()
}

/// A local buffer where it is declared.
#[derive(Clone, Copy)]
pub struct Held<'l, D> {
    /// The buffer.
    pub buf: Buf,
    /// The buffer that it is a copy of.
    pub of: Option<Buf>,
    /// The load that alone reads that copy.
    pub reader: Option<&'l LoadOf>,
    /// What the caller knows of it.
    pub declared: D,
}

/// The buffer that the load at position `at` of a leaf of `nest` reads where the nest names `buf`, and what is known of it if it is local:
/// that of a copy where one is declared around. Of those `around`, the outermost come first.
pub fn read_of<'l, D>(
    nest: &Nest,
    (at, mut buf): (usize, Buf),
    around: impl Iterator<Item = Held<'l, D>>,
) -> (Buf, Option<D>) {
    let reads =
        |held: &Held<'l, D>| held.reader.is_none_or(|load| load.nest == nest.name && load.at as usize == at);
    let own = nest.writes();
    let (mut found, mut is_made) = (None, false);
    for held in around {
        // What makes a copy reads no copies that are declared after it.
        is_made |= held.of.is_some() && own.contains(&held.buf);
        if held.buf == buf || held.of == Some(buf) && !is_made && reads(&held) {
            (buf, found) = (held.buf, Some(held.declared));
        }
    }
    (buf, found)
}

/// The variable of a dimension of a copy.
pub(crate) fn dimension(at: usize) -> Sym {
    Sym::new(&format!("d{at}"))
}

/// A buffer of that name like another one, of the program alone. What is adjacent in the original is so there, too.
pub(crate) fn beside(loops: &mut Loops, original: Buf, name: &str) -> Buf {
    let BufData { dtype, sizes, strides, device, stream, .. } = loops.bufs[original].clone();
    let mut dims: Vec<usize> = (0..sizes.len()).collect();
    dims.sort_by_key(|&dim| Reverse(loops.facts.hint(strides[dim]).unwrap_or(i64::MAX)));
    let nested: Vec<Expr> = dims.iter().map(|&dim| sizes[dim]).collect();
    let mut strides = vec![Expr::one(); sizes.len()];
    for (&dim, stride) in dims.iter().zip(contiguous_strides(&nested)) {
        strides[dim] = stride;
    }
    let ty = TensorType::strided(dtype, sizes, strides).on(device);
    loops.bufs.push(BufData { stream, ..BufData::new(name, ty, BufKind::Temp) })
}

/// A nest of that name that copies every element of a buffer to another one like it.
pub(crate) fn copying(loops: &Loops, from: Buf, to: Buf, name: &str) -> Nest {
    let BufData { dtype, ref sizes, .. } = loops.bufs[from];
    let axes: Vec<Axis> =
        sizes.iter().enumerate().map(|(at, &extent)| Axis { var: dimension(at), extent }).collect();
    let index: Vec<Expr> = axes.iter().map(|axis| Expr::sym(axis.var)).collect();
    let load =
        InstOp::Load { buf: from, index: index.clone(), guard: Vec::new(), other: Scalar::zero(dtype) };
    let store = InstOp::Store { buf: to, index, value: Val(0), combine: None };
    let body = [load, store].map(|op| Inst { op, ty: dtype }).to_vec();
    Nest::new(name.to_owned(), Vec::new(), axes, body)
}
