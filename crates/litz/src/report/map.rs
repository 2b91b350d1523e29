//! Collects the way from the user's lines over operators and statements to steps and kernels, as lists that name each other by
//! position.

use super::Stages;
use crate::explain::{self, KernelStep};
use crate::measure::KernelTime;
use litz_codegen::Realized;
use litz_ir::graph::{Graph, Node, Type};
use litz_ir::loops::{Axis, Callee, Extern, Loops, Nest, Stmt};
use litz_ir::program::{Program, ProgramStep};
use litz_ir::schedule::Schedule;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Characters of a name or a type that are kept.
const MOST_NAME: usize = 200;

/// `sources`, `nodes`, `statements`, `steps` and `kernels`. `imported` is the graph before its passes: a line whose operators are all
/// gone is there with none.
pub(super) fn map(
    imported: &Graph,
    stages: &Stages<'_>,
    times: &[KernelTime],
) -> serde_json::Map<String, Value> {
    let mut map = Map::default();
    map.lines_of(imported);
    map.nodes_of(stages.graph, "");
    map.kernels_of(stages.realized);
    map.steps_of(stages.loops, stages.schedule, &stages.realized.program, "");
    let kernels: Vec<Value> = stages
        .realized
        .kernels
        .iter()
        .enumerate()
        .map(|(at, kernel)| map.kernel(at, &kernel.name, times))
        .collect();
    let lists = [
        ("sources", map.sources.iter().map(|line| json!(cut(line))).collect()),
        ("nodes", Value::Array(map.nodes)),
        ("statements", Value::Array(map.statements)),
        ("steps", Value::Array(map.steps)),
        ("kernels", Value::Array(kernels)),
    ];
    lists.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[derive(Default)]
struct Map {
    sources: Vec<String>,
    source_at: HashMap<String, usize>,
    nodes: Vec<Value>,
    /// Positions of nodes, each with its graph, by the names of their results.
    node_at: HashMap<String, Vec<(String, usize)>>,
    statements: Vec<Value>,
    steps: Vec<Value>,
    kernel_at: HashMap<String, usize>,
    /// For each kernel, its launches in the schedule: steps, bytes and operations.
    launches: Vec<Vec<(usize, i64, i64)>>,
}

impl Map {
    fn lines_of(&mut self, graph: &Graph) {
        for node in &graph.nodes {
            self.source(node);
        }
        graph.subgraphs.iter().for_each(|graph| self.lines_of(graph));
    }

    fn source(&mut self, node: &Node) -> Option<usize> {
        let line = node.source().map(|line| &**line)?;
        if let Some(&at) = self.source_at.get(line) {
            return Some(at);
        }
        self.source_at.insert(line.to_owned(), self.sources.len());
        self.sources.push(line.to_owned());
        Some(self.sources.len() - 1)
    }

    /// Operators of a graph and of those inside of it.
    fn nodes_of(&mut self, graph: &Graph, name: &str) {
        for node in &graph.nodes {
            let source = self.source(node);
            let results: Vec<_> = node.outputs.iter().flatten().collect();
            for &&value in &results {
                let places = self.node_at.entry(graph.values[value].name.clone()).or_default();
                places.push((name.to_owned(), self.nodes.len()));
            }
            let first = results.first().map(|&&value| &graph.values[value]);
            self.nodes.push(json!({
                "name": first.map_or(String::new(), |value| cut(&value.name)),
                "op": cut(node.op.as_str()),
                "type": first.map_or(String::new(), |value| cut(&type_text(&value.ty))),
                "source": source, "graph": cut(name),
                "module": node.origin.as_ref().and_then(|origin| origin.module.as_deref()).map(cut),
                "was": node.origin.as_ref().and_then(|origin| origin.name.as_deref()).map(cut),
            }));
        }
        graph.subgraphs.iter().for_each(|graph| self.nodes_of(graph, &graph.name));
    }

    fn kernels_of(&mut self, realized: &Realized) {
        let names = realized.kernels.iter().enumerate();
        self.kernel_at = names.map(|(at, kernel)| (kernel.name.clone(), at)).collect();
        self.launches = vec![Vec::new(); realized.kernels.len()];
    }

    /// Steps of a program and of its functions, with their statements. `function` is the name of the function, or nothing.
    fn steps_of(&mut self, loops: &Loops, schedule: &Schedule, program: &Program, function: &str) {
        let mut statement_at: HashMap<&str, usize> = HashMap::new();
        for stmt in &loops.stmts {
            let what = match stmt {
                Stmt::Extern(call) => vec![(call.name.as_str(), &call.from, call_text(call))],
                Stmt::Nest(_) | Stmt::Recurrence(_) => stmt
                    .nests()
                    .iter()
                    .map(|nest| (nest.name.as_str(), &nest.from, nest_text(nest)))
                    .collect(),
            };
            for (name, from, text) in what {
                statement_at.insert(name, self.statements.len());
                let nodes = self.nodes_named(from, function);
                self.statements.push(
                    json!({ "name": cut(name), "what": cut(&text), "nodes": nodes, "function": cut(function) }),
                );
            }
        }
        let (mut at_load, mut at_call) = (
            program.load.iter().filter_map(ProgramStep::launched),
            program.steps.iter().filter_map(ProgramStep::launched),
        );
        for step in explain::steps(loops, schedule) {
            let launched = if step.kernel.is_none() {
                None
            } else if step.at_load {
                at_load.next()
            } else {
                at_call.next()
            };
            let kernel = launched.and_then(|name| self.kernel_at.get(name)).copied();
            let names = step.kernel.as_ref().map_or_else(|| vec![step.name], |kernel| kernel.plan.nests());
            // Copies that a schedule declares are no statements.
            let statements: Vec<usize> =
                names.iter().filter_map(|name| statement_at.get(name)).copied().collect();
            if let (Some(at), Some(KernelStep { bytes, flops, .. })) = (kernel, &step.kernel) {
                self.launches[at].push((self.steps.len(), *bytes, *flops));
            }
            let parts = step.kernel.as_ref().map_or(0, |kernel| kernel.parts.len());
            self.steps.push(json!({
                "name": cut(step.name), "at_load": step.at_load, "function": cut(function), "kernel": kernel,
                "statements": statements, "parts": parts,
                "grid": step.kernel.as_ref().map(|kernel| cut(&kernel.grid())),
                "bytes": step.kernel.as_ref().map(|kernel| kernel.bytes),
                "flops": step.kernel.as_ref().map(|kernel| kernel.flops),
                "least_ms": step.kernel.as_ref().and_then(|kernel| Some(1e3 * kernel.least?)),
            }));
        }
        let functions = loops.functions.iter().zip(&schedule.functions).zip(&program.functions);
        functions
            .for_each(|((loops, schedule), program)| self.steps_of(loops, schedule, program, &loops.name));
    }

    /// Operators whose results have these names: those of the graph that a function is of, where it has them.
    fn nodes_named(&self, names: &[String], function: &str) -> Vec<usize> {
        let one = |name: &String| {
            let places = self.node_at.get(name)?;
            // Functions of one graph are told apart by what is behind its name.
            let own = places.iter().find(|(graph, _)| {
                if graph.is_empty() { function.is_empty() } else { function.starts_with(&**graph) }
            });
            own.or(places.first()).map(|place| place.1)
        };
        let mut nodes: Vec<usize> = names.iter().filter_map(one).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// A kernel: what was measured of it, else what is estimated of its launches at every call.
    fn kernel(&self, at: usize, name: &str, times: &[KernelTime]) -> Value {
        let own: Vec<&KernelTime> = times.iter().filter(|time| time.kernel == at).collect();
        let (steps, launches) = (&self.steps, &self.launches[at]);
        let each_call: Vec<_> =
            launches.iter().filter(|launch| steps[launch.0]["at_load"] == json!(false)).collect();
        let total = |of: fn(&KernelTime) -> f64| own.iter().map(|time| of(time)).sum::<f64>();
        let (count, bytes, flops) = if own.is_empty() {
            let bytes = each_call.iter().map(|launch| launch.1 as f64).sum();
            (each_call.len() as f64, bytes, each_call.iter().map(|launch| launch.2 as f64).sum())
        } else {
            (total(|time| time.launches), total(|time| time.bytes), total(|time| time.flops))
        };
        json!({
            "name": cut(name), "launches": count, "bytes": bytes, "flops": flops,
            "ms": (!own.is_empty()).then(|| total(|time| time.ms)),
            // The longest comes first: shares of a kernel with several sets of sizes are those of the one that takes most.
            "of_peak": own.first().and_then(|time| time.of_peak),
            "of_copy": own.first().and_then(|time| time.of_copy),
            "steps": launches.iter().map(|launch| launch.0).collect::<Vec<_>>(),
        })
    }
}

/// `i in s0, j in 32; sums over k in 768`.
fn nest_text(nest: &Nest) -> String {
    let axes = |axes: &[Axis]| {
        axes.iter().map(|axis| format!("{} in {}", axis.var, axis.extent)).collect::<Vec<_>>().join(", ")
    };
    match (nest.axes.is_empty(), nest.reduced.is_empty()) {
        (_, true) => axes(&nest.axes),
        (true, false) => format!("over {}", axes(&nest.reduced)),
        (false, false) => format!("{}; over {}", axes(&nest.axes), axes(&nest.reduced)),
    }
}

/// What a call runs.
fn call_text(call: &Extern) -> String {
    match &call.callee {
        Callee::Routine(routine) => format!("routine {}", routine.name),
        Callee::Host(host) => format!("host {}", host.op),
        Callee::Size { sym, .. } => format!("size {sym}"),
        Callee::Copy { .. } => "copy".to_owned(),
        Callee::Control(control) => {
            let functions: Vec<String> =
                control.control.calls().iter().map(|call| format!("@{}", call.function)).collect();
            format!("calls {}", functions.join(" or "))
        }
    }
}

fn type_text(ty: &Type) -> String {
    match ty {
        Type::Tensor(tensor) => tensor.to_string(),
        Type::Int(value) => value.to_string(),
        Type::Float => "float".to_owned(),
        Type::Bool => "bool".to_owned(),
    }
}

/// As much of a text as is kept.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_NAME) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
