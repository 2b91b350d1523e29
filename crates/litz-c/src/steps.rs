//! Writes the steps of a program as statements of C, in their order.

use std::collections::HashMap;

use litz_ir::loops::{Control, FunctionCall};
use litz_ir::program::{ProgramStep, Slot};
use litz_sym::{Expr, Sym};

use crate::Unsupported;
use crate::expr::literal;
use crate::inputs::check;
use crate::names::quoted;
use crate::routines;
use crate::scope::{Origin, Scope, dtype};

/// What steps refer to outside of their program.
pub(crate) struct Outside<'a> {
    /// What the descriptions of kernels are called, by the names of these.
    pub(crate) kernels: &'a HashMap<&'a str, String>,
    /// What the functions of the program are called, by their names there.
    pub(crate) functions: HashMap<&'a str, String>,
}

/// Names of the functions that a step calls.
pub(crate) fn calls(step: &ProgramStep) -> impl Iterator<Item = &String> {
    let calls = match step {
        ProgramStep::Control { control, .. } => control.calls(),
        ProgramStep::Check { .. }
        | ProgramStep::Alloc { .. }
        | ProgramStep::View { .. }
        | ProgramStep::Launch { .. }
        | ProgramStep::Copy { .. }
        | ProgramStep::Record { .. }
        | ProgramStep::Wait { .. }
        | ProgramStep::Extern { .. }
        | ProgramStep::Size { .. }
        | ProgramStep::Call { .. }
        | ProgramStep::Free { .. } => Vec::new(),
    };
    calls.into_iter().map(|call| &call.function)
}

/// Writes a step. `alloc` writes those that give a slot memory of its own.
pub(crate) fn write(
    scope: &mut Scope<'_>,
    outside: &Outside<'_>,
    step: &ProgramStep,
    alloc: &mut dyn FnMut(&mut Scope<'_>, Slot),
) -> Result<(), Unsupported> {
    if scope.has_state && stores_state(scope, step) {
        scope.line("call->changes_state = true;");
    }
    match step {
        ProgramStep::Check { clause, who } => check(scope, clause, who),
        ProgramStep::Alloc { slot } => alloc(scope, *slot),
        ProgramStep::View { slot, base, offset } => view(scope, *slot, *base, *offset),
        ProgramStep::Launch { kernel, args, sizes, .. } => {
            let name = outside.kernels.get(kernel.as_str());
            let name = name.ok_or_else(|| Unsupported(format!("there is no kernel @{kernel}")))?;
            let (args, sizes) = (scope.memories(args), scope.sizes.array(sizes));
            scope.step(format!("litz_launch(call, &{name}, {args}, {sizes})"));
        }
        ProgramStep::Copy { from, to, queue: _ } => {
            let [from, to] = [from, to].map(|&slot| scope.slot(slot).to_owned());
            scope.step(format!("litz_copy(call, {from}, {to})"));
        }
        // Everything happens in the order of the program.
        ProgramStep::Record { .. } | ProgramStep::Wait { .. } => {}
        ProgramStep::Extern { routine, reads, writes, ints, message } => {
            let found = routines::shape(routine);
            if found != Some((reads.len(), writes.len(), ints.len())) {
                let lines = message.as_deref().map(|message| format!(" ({message})")).unwrap_or_default();
                return Err(Unsupported(format!("there is no routine `{routine}` in C{lines}")));
            }
            let text = match &**routine {
                // Memory is taken as it is.
                "fresh" => return Ok(()),
                "assert" => {
                    let message = quoted(message.as_deref().unwrap_or_default());
                    format!("litz_assert(call, {}, {message})", scope.slot(reads[0]))
                }
                _ => {
                    let [reads, writes] = [reads, writes].map(|slots| buffers(scope, slots));
                    format!("litz_{routine}(call, {reads}, {writes}, {})", scope.sizes.array(ints))
                }
            };
            scope.step(text);
        }
        ProgramStep::Size { sym, slot, message } => {
            let (name, range) = (scope.size(*sym), scope.program.facts.range_of(*sym));
            let (memory, dtype) = (scope.slot(*slot).to_owned(), dtype(scope.program.slots[*slot].dtype));
            let (lo, hi) = (literal(range.lo), literal(range.hi));
            let divisor = literal(scope.program.facts.divisor_of(*sym));
            let who = message.clone().unwrap_or_else(|| format!("the range of {sym}"));
            let (symbol, who) = (quoted(sym.name()), quoted(&who));
            scope.line(format!("int64_t {name};"));
            scope.step(format!(
                "litz_late(call, {memory}, {dtype}, {symbol}, {lo}, {hi}, {divisor}, {who}, &{name})"
            ));
            scope.learn(*sym);
        }
        ProgramStep::Control { control, reads, writes } => {
            write_control(scope, outside, control, reads, writes)?;
        }
        ProgramStep::Call { op, .. } => {
            return Err(Unsupported(format!("{op} is an operator of a host, of which C has none")));
        }
        ProgramStep::Free { slot } => {
            if scope.origin(*slot) == Origin::Alloc {
                let name = scope.slot(*slot).to_owned();
                scope.line(format!("litz_give_back(call, {name});"));
            }
        }
    }
    Ok(())
}

/// Places a slot inside of another.
pub(crate) fn view(scope: &mut Scope<'_>, slot: Slot, base: Slot, offset: Expr) {
    scope.declare(slot);
    let (outer, inner) = (scope.slot(base).to_owned(), scope.slot(slot).to_owned());
    let (offset, extent) = (scope.sizes.write(offset), scope.extent(slot));
    scope.step(format!("litz_view(call, {outer}, {offset}, {extent}, &{inner})"));
}

/// Whether a step stores to a constant: when it fails, or one behind it, the state is neither the old nor the new one.
fn stores_state(scope: &Scope<'_>, step: &ProgramStep) -> bool {
    let effects = scope.program.effects(step, scope.accesses);
    effects.writes().any(|slot| matches!(scope.origin(scope.root(slot).0), Origin::Const(_)))
}

fn buffers(scope: &Scope<'_>, slots: &[Slot]) -> String {
    let buffer =
        |&slot: &Slot| format!("{{{}, {}}}", scope.slot(slot), dtype(scope.program.slots[slot].dtype));
    let buffers: Vec<String> = slots.iter().map(buffer).collect();
    if buffers.is_empty() {
        "NULL".to_owned()
    } else {
        format!("(const litz_buffer[]){{{}}}", buffers.join(", "))
    }
}

fn write_control(
    scope: &mut Scope<'_>,
    outside: &Outside<'_>,
    control: &Control,
    reads: &[Slot],
    writes: &[Slot],
) -> Result<(), Unsupported> {
    let called = |scope: &Scope<'_>, (call, args, writes): (&FunctionCall, &[Slot], &[Slot])| {
        let unknown = || Unsupported(format!("there is no function @{}", call.function));
        let name = outside.functions.get(call.function.as_str()).ok_or_else(unknown)?;
        let callee = scope.program.function(&call.function).ok_or_else(unknown)?;
        let value = |sym: Sym| {
            let given = call.sizes.iter().find(|(given, _)| *given == sym);
            given
                .map(|(_, value)| *value)
                .ok_or_else(|| Unsupported(format!("@{}: no value of {sym}", call.function)))
        };
        let given = callee.given_sizes().into_iter().map(value).collect::<Result<Vec<Expr>, _>>()?;
        // What is written behind the results are arguments that the function updates where they are.
        let results = writes.get(..callee.outputs.len()).unwrap_or(writes);
        let (given, args, results) =
            (scope.sizes.array(&given), scope.memories(args), scope.memories(results));
        Ok(format!("LITZ_TRY({name}(call, {given}, {args}, {results}));"))
    };
    let truth = |scope: &Scope<'_>, slot: Slot, name: &str| {
        let memory = scope.slot(slot);
        format!("LITZ_TRY(litz_truth(call, {memory}, {}, &{name}));", dtype(scope.program.slots[slot].dtype))
    };
    let operands = control.operands(reads, writes);
    let holds = scope.fresh("holds");
    match (control, &operands[..]) {
        (Control::Call(_), &[only]) => {
            let text = called(scope, only)?;
            scope.line(text);
        }
        (Control::Branch { .. }, &[then, other]) => {
            let (then, other) = (called(scope, then)?, called(scope, other)?);
            scope.line(format!("bool {holds};"));
            let text = truth(scope, reads[0], &holds);
            scope.line(text);
            scope.line(format!("if ({holds}) {{\n    {then}\n  }} else {{\n    {other}\n  }}"));
        }
        (Control::While { .. }, &[cond, body]) => {
            let (cond, body) = (called(scope, cond)?, called(scope, body)?);
            let truth = truth(scope, writes[0], &holds);
            scope.line("for (;;) {");
            scope.line(format!("  bool {holds};\n    {cond}\n    {truth}"));
            scope.line(format!("  if (!{holds}) {{\n      break;\n    }}\n    {body}\n  }}"));
        }
        (Control::Call(_) | Control::Branch { .. } | Control::While { .. }, _) => {
            return Err(Unsupported("a call of functions has other operands".to_owned()));
        }
    }
    Ok(())
}
