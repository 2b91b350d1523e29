//! Holds the steps of a program in C against those of the program: the same, on the same memory, in the same order.

use std::collections::{HashMap, HashSet};

use litz::ahead::identifier;
use litz_ir::loops::Control;
use litz_ir::program::{Program, ProgramStep, Slot};

/// A step: the function of C that does it, and memory in the order in which it is mentioned.
type Step<M> = (String, Vec<M>);

/// Compares the steps of calls. Names of memory may be others, as long as each slot has one.
///
/// # Errors
/// The first step that differs, in words.
pub fn same(program: &Program, source: &str) -> Result<(), String> {
    let (expected, found) = (of_program(program), of_source(source));
    let (mut names, mut slots) = (HashMap::new(), HashMap::new());
    for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let is_same = |(&slot, name): (&Slot, &String)| {
            names.entry(slot).or_insert_with(|| name.clone()) == name
                && *slots.entry(name.clone()).or_insert(slot) == slot
        };
        let is_alike = expected.0 == found.0 && expected.1.len() == found.1.len();
        if !is_alike || !expected.1.iter().zip(&found.1).all(is_same) {
            return Err(format!("step {at}: expected {expected:?}, found {found:?}"));
        }
    }
    if expected.len() != found.len() {
        return Err(format!("expected {} steps, found {}", expected.len(), found.len()));
    }
    Ok(())
}

/// Those that do something to the contents of memory.
fn of_program(program: &Program) -> Vec<Step<Slot>> {
    let mut steps = Vec::new();
    for step in &program.steps {
        let touched = || program.touches(step).uses.iter().map(|used| used.slot).collect();
        match step {
            ProgramStep::Launch { .. } => steps.push(("litz_launch".to_owned(), touched())),
            ProgramStep::Copy { .. } => steps.push(("litz_copy".to_owned(), touched())),
            ProgramStep::Size { .. } => steps.push(("litz_late".to_owned(), touched())),
            // Memory is taken as it is.
            ProgramStep::Extern { routine, .. } if &**routine == "fresh" => {}
            ProgramStep::Extern { routine, .. } => steps.push((format!("litz_{routine}"), touched())),
            ProgramStep::Control { control, reads, writes } => {
                let mut functions = Vec::new();
                for (call, args, writes) in control.operands(reads, writes) {
                    let results = program.function(&call.function).map_or(0, |called| called.outputs.len());
                    let memory = args.iter().chain(writes.iter().take(results)).copied().collect();
                    functions.push((format!("function_{}", identifier(&call.function)), memory));
                }
                let truth = |slot: Slot| ("litz_truth".to_owned(), vec![slot]);
                match control {
                    Control::Call(_) => {}
                    Control::Branch { .. } => functions.insert(0, truth(reads[0])),
                    Control::While { .. } => functions.insert(1, truth(writes[0])),
                }
                steps.extend(functions);
            }
            ProgramStep::Check { .. }
            | ProgramStep::Alloc { .. }
            | ProgramStep::View { .. }
            | ProgramStep::Record { .. }
            | ProgramStep::Wait { .. }
            | ProgramStep::Call { .. }
            | ProgramStep::Free { .. } => {}
        }
    }
    steps
}

/// What finds memory, or brings inputs and results to where they belong.
const AROUND: [&str; 16] = [
    "litz_alloc",
    "litz_alloc_result",
    "litz_expect",
    "litz_finish",
    "litz_in_range",
    "litz_input",
    "litz_integer",
    "litz_nothing",
    "litz_number",
    "litz_output",
    "litz_real",
    "litz_solve",
    "litz_text",
    "litz_truth_value",
    "litz_update",
    "litz_view",
];

/// The calls in the function that runs the program.
fn of_source(source: &str) -> Vec<Step<String>> {
    let (_, body) = source.split_once("\nstatic bool run(litz_call *call) {\n").expect("there is a function");
    let (body, _) = body.split_once("\n}\n").expect("the function ends");
    let declared = body.lines().filter_map(|line| line.trim().strip_prefix("litz_memory "));
    let declared: HashSet<&str> = declared.filter_map(|rest| rest.split([' ', ';']).next()).collect();
    let calls = body.lines().filter_map(|line| line.trim().strip_prefix("LITZ_TRY(")?.split_once('('));
    calls
        .filter(|(function, _)| !AROUND.contains(function))
        .map(|(function, args)| {
            // Texts come behind all memory.
            let args = args.split('"').next().unwrap_or_default();
            let words = args.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            (function.to_owned(), words.filter(|word| declared.contains(word)).map(str::to_owned).collect())
        })
        .collect()
}
