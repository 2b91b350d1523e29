//! Says of each launch of a program which nodes of the user's model it computes, and where in the model these are.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use litz_codegen::Realized;
use litz_ir::graph::{Graph, Node, Origin};
use litz_ir::loops::{Loops, Stmt};
use litz_ir::program::{FromNode, Program, ProgramStep};
use litz_ir::schedule::{Schedule, ScheduleStep};
use serde_json::{Value, json};

/// How much of the user's model is kept in what is compiled. Machine code is the same in all cases.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Provenance {
    /// The user's line of each node, for messages.
    Lines,
    /// Also the path of the module that each node belongs to, and its name before passes; launches say which nodes they compute.
    #[default]
    Basic,
    /// Also all lines of the stack.
    Full,
}

/// Leaves what a level keeps of where nodes come from.
pub(crate) fn keep(graph: &mut Graph, level: Provenance) {
    let mut kept: HashMap<*const Origin, Arc<Origin>> = HashMap::new();
    let mut cut = |origin: &mut Arc<Origin>| {
        let own = Arc::clone(origin);
        let short = kept.entry(Arc::as_ptr(&own)).or_insert_with(|| {
            Arc::new(match level {
                Provenance::Full => Origin::clone(&own),
                Provenance::Basic => Origin { stack: Vec::new(), ..Origin::clone(&own) },
                Provenance::Lines => Origin { line: own.line.clone(), ..Origin::default() },
            })
        });
        *origin = Arc::clone(short);
    };
    each_node(graph, &mut |node| node.origin.iter_mut().for_each(&mut cut));
}

fn each_node(graph: &mut Graph, f: &mut dyn FnMut(&mut Node)) {
    graph.nodes.iter_mut().for_each(&mut *f);
    graph.subgraphs.iter_mut().for_each(|graph| each_node(graph, f));
}

/// Names the nodes that each launch computes, and says where those come from. `graph` is what the loops were made of.
pub(crate) fn attach(realized: &mut Realized, graph: &Graph, loops: &Loops, schedule: &Schedule) {
    let mut nodes = HashMap::new();
    collect(graph, "", &mut nodes);
    let of_routines = realized.kernels.iter().filter(|kernel| realized.is_of_routine(&kernel.name));
    let of_routines: HashSet<String> = of_routines.map(|kernel| kernel.name.clone()).collect();
    of_program(&mut realized.program, (&nodes, &of_routines), loops, schedule);
}

/// Nodes by the names of their results, each with its graph's name.
type Nodes<'a> = HashMap<&'a str, Vec<(&'a str, &'a Node)>>;

fn collect<'a>(graph: &'a Graph, name: &'a str, nodes: &mut Nodes<'a>) {
    for node in &graph.nodes {
        for &value in node.outputs.iter().flatten() {
            nodes.entry(&graph.values[value].name).or_default().push((name, node));
        }
    }
    graph.subgraphs.iter().for_each(|graph| collect(graph, &graph.name, nodes));
}

/// Launches of kernels of routines name their nodes already.
fn of_program(
    program: &mut Program,
    (nodes, of_routines): (&Nodes<'_>, &HashSet<String>),
    loops: &Loops,
    schedule: &Schedule,
) {
    let stmts = loops.stmts.iter().flat_map(Stmt::nests);
    let from: HashMap<&str, &[String]> =
        stmts.map(|nest| (nest.name.as_str(), nest.from.as_slice())).collect();
    let mut mentioned: HashSet<String> = HashSet::new();
    let mut found = Vec::new();
    let mut mention = |name: &String| {
        if mentioned.insert(name.clone())
            && let Some(node) = node_named(nodes, name, &loops.name)
        {
            found.push(FromNode { name: name.clone(), op: node.op.clone(), origin: node.origin.clone() });
        }
    };
    for step in &program.steps {
        if let ProgramStep::Launch { kernel, from, .. } = step
            && of_routines.contains(kernel)
        {
            from.iter().for_each(&mut mention);
        }
    }
    let mut steps = [&mut program.load, &mut program.steps].map(|steps| {
        steps.iter_mut().filter_map(|step| match step {
            ProgramStep::Launch { kernel, from, .. } if !of_routines.contains(kernel) => Some(from),
            _ => None,
        })
    });
    for step in &schedule.steps {
        let ScheduleStep::Kernel(plan) = step else { continue };
        let Some(launch) = steps[usize::from(!plan.at_load)].next() else { continue };
        for name in plan.nests().into_iter().filter_map(|nest| from.get(nest)).copied().flatten() {
            if !launch.contains(name) {
                launch.push(name.clone());
            }
            mention(name);
        }
    }
    program.nodes = found;
    let functions = loops.functions.iter().zip(&schedule.functions).zip(&mut program.functions);
    functions.for_each(|((loops, schedule), program)| {
        of_program(program, (nodes, of_routines), loops, schedule);
    });
}

/// The node whose result has this name: that of the graph that a function was made of, where there are several.
fn node_named<'a>(nodes: &Nodes<'a>, name: &str, function: &str) -> Option<&'a Node> {
    let places = nodes.get(name)?;
    let own = places.iter().find(|(graph, _)| !graph.is_empty() && function.starts_with(graph));
    own.or(places.first()).map(|(_, node)| *node)
}

/// A launch of a program, by its number: see [`litz_runtime::device::Launch::number`].
pub struct LaunchOf<'a> {
    /// The kernel.
    pub kernel: &'a str,
    /// The nodes that it computes, as far as they are known.
    pub nodes: Vec<&'a FromNode>,
}

impl LaunchOf<'_> {
    /// Something of each node, each thing once.
    fn of_nodes<T: PartialEq>(&self, part: impl Fn(&FromNode) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        for item in self.nodes.iter().filter_map(|node| part(node)) {
            if !found.contains(&item) {
                found.push(item);
            }
        }
        found
    }

    /// Operators.
    pub fn ops(&self) -> Vec<String> {
        self.of_nodes(|node| Some(node.op.to_string()))
    }

    /// Paths of modules.
    pub fn modules(&self) -> Vec<Arc<str>> {
        self.of_nodes(|node| node.origin.as_ref()?.module.clone())
    }

    /// The user's lines.
    pub fn lines(&self) -> Vec<Arc<str>> {
        self.of_nodes(|node| node.origin.as_ref()?.line.clone())
    }

    /// Names of the nodes in the user's graph.
    pub fn before_passes(&self) -> Vec<Arc<str>> {
        self.of_nodes(|node| {
            let was = node.origin.as_ref().and_then(|origin| origin.name.clone());
            Some(was.unwrap_or_else(|| Arc::from(node.name.as_str())))
        })
    }

    /// What it is called where there is one line for it: `k7 layers.3.mlp.up: linear, gelu`.
    pub fn title(&self) -> String {
        let operator = |op: String| op.split('.').nth(1).unwrap_or(&op).to_owned();
        let ops: Vec<String> = self.ops().into_iter().map(operator).collect();
        let modules: Vec<String> = self.modules().iter().map(|module| module.to_string()).collect();
        let place = if modules.is_empty() { String::new() } else { format!(" {}", modules.join(" ")) };
        let what = if ops.is_empty() { String::new() } else { format!(": {}", ops.join(", ")) };
        format!("{}{place}{what}", self.kernel)
    }
}

/// The launches of a program, by number.
pub fn launches(program: &Program) -> Vec<LaunchOf<'_>> {
    let mut found = Vec::new();
    for program in program.all() {
        let nodes: HashMap<&str, &FromNode> =
            program.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        for step in program.load.iter().chain(&program.steps) {
            if let ProgramStep::Launch { kernel, from, .. } = step {
                let nodes = from.iter().filter_map(|name| nodes.get(name.as_str()).copied()).collect();
                found.push(LaunchOf { kernel, nodes });
            }
        }
    }
    found
}

/// Which nodes of the user's graph, of the graph after passes and which kernels belong together, as one object: `kernels` has for each
/// kernel its launches with nodes, operators, modules, lines and stacks; `before_to_after`, `after_to_before`, `after_to_kernels` and
/// `kernels_to_after` are maps of names.
pub fn maps(program: &Program) -> Value {
    let mut kernels: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut names: [BTreeMap<String, BTreeSet<String>>; 4] = Default::default();
    for (number, launch) in launches(program).iter().enumerate() {
        let node = |node: &&FromNode| {
            let origin = node.origin.as_deref().cloned().unwrap_or_default();
            json!({
                "name": node.name, "was": origin.name.as_deref().unwrap_or(&node.name), "op": node.op.as_str(),
                "module": origin.module.as_deref(), "line": origin.line.as_deref(),
                "stack": origin.stack.iter().map(|line| &**line).collect::<Vec<_>>(),
            })
        };
        let nodes: Vec<Value> = launch.nodes.iter().map(node).collect();
        let launches = kernels.entry(launch.kernel).or_default();
        launches.push(json!({ "launch": format!("{}#{number}", launch.kernel), "nodes": nodes }));
        for node in &launch.nodes {
            let was = node.origin.as_ref().and_then(|origin| origin.name.as_deref()).unwrap_or(&node.name);
            let mut add = |map: usize, from: &str, to: &str| {
                names[map].entry(from.to_owned()).or_default().insert(to.to_owned());
            };
            add(0, was, &node.name);
            add(1, &node.name, was);
            add(2, &node.name, launch.kernel);
            add(3, launch.kernel, &node.name);
        }
    }
    let [before_to_after, after_to_before, after_to_kernels, kernels_to_after] = names;
    json!({
        "kernels": kernels, "before_to_after": before_to_after, "after_to_before": after_to_before,
        "after_to_kernels": after_to_kernels, "kernels_to_after": kernels_to_after,
    })
}
