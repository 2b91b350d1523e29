//! Every recorded call of an operator with its tensors on another device than the graph's: all that the stages make is on
//! that device, and else as on the graph's.

#![allow(missing_docs, reason = "a test")]

use litz::pipeline;
use litz::{Options, Runner, Stage, Verify};
use litz_ir::graph::{Arg, Device, Graph, Type};
use litz_testing::cases::{self, Case};

const ELSEWHERE: Device = Device::Ref(1);
const NEXT: Device = Device::Ref(2);

/// The call on the other device, if nothing in it says where something is to be.
fn moved(case: &Case, to: Device) -> Option<Case> {
    let is_placed = |arg: &Arg| matches!(arg, Arg::Device(_));
    if case.tensors.is_empty() || case.args.iter().any(is_placed) {
        return None;
    }
    let mut case = case.clone();
    case.tensors.iter_mut().for_each(|recorded| recorded.ty.device = to);
    Some(case)
}

/// Loops, schedule and program of a graph; the schedule is proved, all else is verified.
fn texts(graph: Graph) -> Result<[String; 3], String> {
    let options = Options {
        verify: Verify::Stages,
        ..Options::for_target("cpu(isa=avx2, threads=2)".parse().expect("a target"))
    };
    let backend = litz::backend(&options).map_err(|error| error.to_string())?;
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(options.verify, None, &mut silent);
    let texts = pipeline::compile(graph, &*backend, &options, Stage::Program, &mut runner);
    let texts = texts.map_err(|error| error.to_string())?;
    let (Some(loops), Some(schedule), Some(realized)) = (texts.loops, texts.schedule, texts.realized) else {
        return Err("a stage gave nothing".to_owned());
    };
    Ok([loops.to_string(), schedule.to_string(), realized.program.to_string()])
}

fn check(case: &Case) -> Result<(), String> {
    let Some(elsewhere) = moved(case, ELSEWHERE) else { return Ok(()) };
    let (graph, there) = (case.graph()?, elsewhere.graph()?);
    let is_there = |ty: &Type| match ty {
        Type::Tensor(ty) => ty.device == ELSEWHERE,
        Type::Int(_) | Type::Float | Type::Bool => true,
    };
    if !there.values.values().all(|value| is_there(&value.ty)) {
        return Err(format!("results are elsewhere: {there}"));
    }
    let on = format!(" on {ELSEWHERE}");
    let (mut here, there) = (texts(graph)?, texts(there)?);
    // Launches of a device come together, between what it cannot capture, where those of the CPU keep their order.
    let is_cut = |line: &str| ["extern ", "call "].iter().any(|step| line.trim_start().starts_with(step));
    if here[2].lines().any(is_cut) {
        let next = moved(case, NEXT).ok_or("it was moved before")?;
        here = texts(next.graph()?)?;
    }
    for (here, there) in here.iter().zip(there) {
        if there.replace(&on, "") != here.replace(&format!(" on {NEXT}"), "") {
            return Err(format!("expected, on another device,\n{here}\nfound\n{there}"));
        }
        let places = ["buf ", "alloc ", "param ", "view "];
        let is_place = |line: &&str| places.iter().any(|place| line.trim_start().starts_with(place));
        if let Some(line) = there.lines().filter(is_place).find(|line| !line.contains(&on)) {
            return Err(format!("expected all of it on {ELSEWHERE}, found {line} in\n{there}"));
        }
    }
    Ok(())
}

#[test]
fn all_that_stages_make_is_where_the_operands_are() {
    let mut failures = Vec::new();
    let mut count = 0;
    for family in cases::FAMILIES {
        for case in cases::read(family).expect("the file is as it was written") {
            count += 1;
            if let Err(why) = check(&case) {
                let why: String = why.chars().take(600).collect();
                failures.push(format!("{family}.txt:{}: {}: {why}", case.line, case.op));
            }
        }
    }
    let shown = failures[..failures.len().min(10)].join("\n");
    assert!(failures.is_empty(), "{} failures of {count}\n{shown}", failures.len());
}
