//! Writes a model: its kernels' descriptions, a function of C for each program, and what callers see.

use std::collections::{HashMap, HashSet};

use litz_ir::kernel::Kernel;
use litz_ir::program::{KernelAccesses, Output, Program, ProgramStep, Slot, accesses_of};
use litz_ir::scalar::Scalar;

use crate::inputs::bind;
use crate::kernels::describe;
use crate::names::{Names, identifier, quoted};
use crate::scope::{Origin, Scope, dtype, is_kept, mentioned};
use crate::steps::{self, Outside, view};
use crate::weights::Layout;
use crate::{Unsupported, expr::literal};

/// A model to be written.
#[derive(Clone, Copy)]
pub struct Model<'a> {
    /// What it is called: a name of C.
    pub name: &'a str,
    /// What it does.
    pub program: &'a Program,
    /// Its kernels, by the names that the program has for them.
    pub kernels: &'a [Kernel],
    /// Names of what it takes.
    pub inputs: &'a [String],
    /// Names of what it returns.
    pub outputs: &'a [String],
    /// Where its constants are in the file of weights.
    pub layout: &'a Layout,
    /// The number of the file's contents.
    pub weights_id: u64,
}

/// The text of a model.
#[derive(Clone, Debug)]
pub struct Source {
    /// What a caller includes.
    pub header: String,
    /// The program.
    pub source: String,
}

/// Writes a model. The machine code of a kernel `k0` is a function `NAME_k0`, where `NAME` is the model's.
///
/// # Errors
/// What C does not do: operators of a host, memory of other devices than the CPU, routines that are not in C.
pub fn write(model: &Model<'_>) -> Result<Source, Unsupported> {
    let accesses = accesses_of(model.kernels);
    let mut names = Names::new();
    let (mut source, mut kernels) = (String::new(), HashMap::new());
    for kernel in model.kernels {
        let (name, code) =
            (names.take_outside("kernel", &kernel.name), format!("{}_{}", model.name, kernel.name));
        source += &format!("extern litz_code {code};\n\n{}", describe(kernel, &name, &code));
        kernels.insert(kernel.name.as_str(), name);
    }
    let writer = Writer { kernels: &kernels, accesses: &accesses };
    let functions = writer.functions(model.program, &mut names, &mut source)?;
    source += &writer.load(model.program)?;
    source += &writer.run(model.program, functions)?;
    source += &interface(model);
    let math = if source.contains("INFINITY") || source.contains("NAN") { "#include <math.h>\n" } else { "" };
    let first = format!(
        "/* Runs the model {}: made by Litz. */\n#include \"{}.h\"\n\n#include \"litz_routines.h\"\n{math}\n",
        model.name, model.name
    );
    Ok(Source { header: header(model), source: first + &source })
}

struct Writer<'a> {
    kernels: &'a HashMap<&'a str, String>,
    accesses: &'a KernelAccesses<'a>,
}

impl Writer<'_> {
    /// Writes the functions that a program calls, those that they call first. What they are called, by their names in the program.
    fn functions<'p>(
        &self,
        program: &'p Program,
        names: &mut Names,
        source: &mut String,
    ) -> Result<HashMap<&'p str, String>, Unsupported> {
        let mut called = HashMap::new();
        let is_called = |function: &&Program| {
            program.steps.iter().any(|step| steps::calls(step).any(|name| *name == function.name))
        };
        for function in program.functions.iter().filter(is_called) {
            let inner = self.functions(function, names, source)?;
            let name = names.take_outside("function", &function.name);
            *source += &self.function(function, &name, inner)?;
            called.insert(function.name.as_str(), name);
        }
        Ok(called)
    }

    /// A function: inputs and results are in the caller's memory.
    fn function(
        &self,
        program: &Program,
        name: &str,
        functions: HashMap<&str, String>,
    ) -> Result<String, Unsupported> {
        if !program.consts.is_empty() || !program.load.is_empty() {
            return Err(Unsupported(format!("the function @{} has constants", program.name)));
        }
        let mut scope = Scope::new(program, self.accesses)?;
        let given = program.given_sizes();
        given.iter().for_each(|&sym| scope.learn(sym));
        for (at, param) in program.params.iter().enumerate() {
            scope.declare(param.slot);
            let (slot, extent) = (scope.slot(param.slot).to_owned(), scope.extent(param.slot));
            scope.step(format!("litz_view(call, args[{at}], 0, {extent}, &{slot})"));
        }
        let mut outputs = Outputs::new(&scope, Kind::Function);
        self.steps(&mut scope, &mut outputs, functions)?;
        outputs.write(&mut scope)?;
        updates(&mut scope, Kind::Function);
        let mut text = format!(
            "static bool {name}(litz_call *call, const int64_t *given, const litz_memory *args, const litz_memory *results) {{\n"
        );
        text += "  const int mark = litz_mark(call);\n";
        for (at, &sym) in given.iter().enumerate().filter(|(_, sym)| scope.sizes.is_used(**sym)) {
            let (size, range) = (scope.size(sym), program.facts.range_of(sym));
            text += &format!("  const int64_t {size} = given[{at}];\n");
            text += &format!(
                "  if ({size} < {} || {size} > {}) {{\n    return litz_bug(call, \"a function is given a size outside of its range\");\n  }}\n",
                literal(range.lo),
                literal(range.hi)
            );
        }
        if !given.iter().any(|&sym| scope.sizes.is_used(sym)) {
            text += "  (void)given;\n";
        }
        text += if program.params.is_empty() { "  (void)args;\n" } else { "" };
        text += if program.outputs.is_empty() { "  (void)results;\n" } else { "" };
        Ok(text + &scope.text + "  litz_release(call, mark);\n  return true;\n}\n\n")
    }

    /// What runs once.
    fn load(&self, program: &Program) -> Result<String, Unsupported> {
        let mut scope = Scope::new(program, self.accesses)?;
        // They do not change the state: they make it.
        scope.has_state = false;
        let used = used(program, &program.load, []);
        constants(&mut scope, &used);
        let first = program.consts.len();
        let outside = Outside { kernels: self.kernels, functions: HashMap::new() };
        for step in &program.load {
            steps::write(&mut scope, &outside, step, &mut |scope, slot| match scope.origin(slot) {
                Origin::Kept(at) => {
                    let extent = scope.extent(slot);
                    scope.step(format!("litz_keep(call, {}, {extent})", first + at));
                    scope.define(slot, &format!("call->kept[{}]", first + at));
                }
                Origin::Param(_) | Origin::Const(_) | Origin::Alloc | Origin::View { .. } | Origin::None => {
                    alloc(scope, slot)
                }
            })?;
        }
        let text = scope.text;
        let unused = if text.is_empty() { "  (void)call;\n" } else { "" };
        Ok(format!("static bool load(litz_call *call) {{\n{unused}{text}  return true;\n}}\n\n"))
    }

    /// What a call does.
    fn run(&self, program: &Program, functions: HashMap<&str, String>) -> Result<String, Unsupported> {
        let mut scope = Scope::new(program, self.accesses)?;
        bind(&mut scope)?;
        let updated = program.updates.iter().map(|&(target, _)| target);
        let used = used(program, &program.steps, program.read_at_end().chain(updated));
        constants(&mut scope, &used);
        loaded(&mut scope, &used);
        let stored = stored(&scope);
        for (at, param) in program.params.iter().enumerate() {
            self.input(&mut scope, at, param.slot, &stored);
        }
        let mut outputs = Outputs::new(&scope, Kind::Program);
        self.steps(&mut scope, &mut outputs, functions)?;
        outputs.write(&mut scope)?;
        updates(&mut scope, Kind::Program);
        let unused = if scope.text.is_empty() { "  (void)call;\n" } else { "" };
        Ok(format!("static bool run(litz_call *call) {{\n{unused}{}  return true;\n}}\n\n", scope.text))
    }

    fn steps(
        &self,
        scope: &mut Scope<'_>,
        outputs: &mut Outputs,
        functions: HashMap<&str, String>,
    ) -> Result<(), Unsupported> {
        let outside = Outside { kernels: self.kernels, functions };
        for step in &scope.program.steps {
            steps::write(scope, &outside, step, &mut |scope, slot| outputs.alloc(scope, slot))?;
        }
        Ok(())
    }

    /// Binds an input. One whose memory steps write is a copy; where they make its new contents there, the copy is the extra output.
    fn input(&self, scope: &mut Scope<'_>, at: usize, slot: Slot, stored: &HashSet<Slot>) {
        let program = scope.program;
        let ty = &program.params[at].ty;
        let is_stored = stored.contains(&slot);
        let made_in_place =
            extra_outputs(program).position(|(to, from)| to == slot && scope.root(from) == (slot, true));
        let mut into = "NULL".to_owned();
        if let Some(extra) = made_in_place.filter(|_| is_stored) {
            let (name, layout) = (scope.fresh("updated"), scope.layout(ty));
            scope.line(format!("litz_memory {name};"));
            scope.step(format!("litz_output(call, {}, {layout}, &{name})", program.outputs.len() + extra));
            into = format!("&{name}");
        }
        scope.declare(slot);
        let (name, strides) = (scope.slot(slot).to_owned(), scope.sizes.array(&ty.strides));
        let elements = scope.sizes.write(program.slots[slot].extent);
        scope.step(format!("litz_input(call, {at}, {strides}, {elements}, {is_stored}, {into}, &{name})"));
    }
}

fn alloc(scope: &mut Scope<'_>, slot: Slot) {
    scope.declare(slot);
    let (name, extent) = (scope.slot(slot).to_owned(), scope.extent(slot));
    scope.step(format!("litz_alloc(call, {extent}, &{name})"));
}

/// The updates of inputs, whose new contents calls return.
fn extra_outputs(program: &Program) -> impl Iterator<Item = (Slot, Slot)> + '_ {
    let is_param = |slot: Slot| program.params.iter().any(|param| param.slot == slot);
    program.updates.iter().copied().filter(move |&(to, _)| is_param(to))
}

/// The slots that steps mention, and others, with those that they lie in.
fn used(program: &Program, steps: &[ProgramStep], others: impl IntoIterator<Item = Slot>) -> HashSet<Slot> {
    steps.iter().flat_map(|step| mentioned(program, step)).chain(others).collect()
}

/// Declares the constants that are used.
fn constants(scope: &mut Scope<'_>, used: &HashSet<Slot>) {
    let program = scope.program;
    let lies_in = |scope: &Scope<'_>, slot: Slot| used.iter().any(|&inner| scope.root(inner).0 == slot);
    for (at, constant) in program.consts.iter().enumerate() {
        if lies_in(scope, constant.slot) {
            scope.define(constant.slot, &format!("call->kept[{at}]"));
        }
    }
}

/// Declares what load steps keep, as far as it is used, and places in it and in constants.
fn loaded(scope: &mut Scope<'_>, used: &HashSet<Slot>) {
    let program = scope.program;
    let mut wanted = used.clone();
    for step in program.load.iter().rev() {
        if let ProgramStep::View { slot, base, .. } = step
            && wanted.contains(slot)
        {
            wanted.insert(*base);
        }
    }
    for step in &program.load {
        match step {
            ProgramStep::Alloc { slot } if is_kept(program, *slot) && wanted.contains(slot) => {
                if let Origin::Kept(at) = scope.origin(*slot) {
                    scope.define(*slot, &format!("call->kept[{}]", program.consts.len() + at));
                }
            }
            ProgramStep::View { slot, base, offset } if wanted.contains(slot) => {
                view(scope, *slot, *base, *offset)
            }
            ProgramStep::Alloc { .. }
            | ProgramStep::View { .. }
            | ProgramStep::Check { .. }
            | ProgramStep::Launch { .. }
            | ProgramStep::Copy { .. }
            | ProgramStep::Record { .. }
            | ProgramStep::Wait { .. }
            | ProgramStep::Extern { .. }
            | ProgramStep::Size { .. }
            | ProgramStep::Control { .. }
            | ProgramStep::Call { .. }
            | ProgramStep::Free { .. } => {}
        }
    }
}

/// The slots of inputs whose memory steps write.
fn stored(scope: &Scope<'_>) -> HashSet<Slot> {
    scope.program.made(scope.accesses).into_iter().map(|slot| scope.root(slot).0).collect()
}

/// Whose outputs: a program's are the caller's values, those of a function memory of who calls it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Program,
    Function,
}

/// Where the outputs of a program or function go.
struct Outputs {
    kind: Kind,
    /// The output that may be computed where it goes, for slots that hold one and nothing else.
    direct: HashMap<Slot, usize>,
    /// What the memory of outputs is called that have been found.
    found: HashMap<usize, String>,
}

impl Outputs {
    fn new(scope: &Scope<'_>, kind: Kind) -> Outputs {
        let mut direct = HashMap::new();
        for (at, output) in scope.program.outputs.iter().enumerate() {
            if let Output::View { slot, offset, .. } = output
                && offset.is_zero()
                && let (root, true) = scope.root(*slot)
                && scope.origin(root) == Origin::Alloc
            {
                direct.entry(root).or_insert(at);
            }
        }
        Outputs { kind, direct, found: HashMap::new() }
    }

    /// Gives a slot memory: that of an output, where the sizes of both are known.
    fn alloc(&mut self, scope: &mut Scope<'_>, slot: Slot) {
        let program = scope.program;
        let direct = self.direct.get(&slot).copied().filter(|&at| match &program.outputs[at] {
            Output::View { ty, .. } => scope.knows_all(ty.sizes.iter().chain(&ty.strides)),
            Output::Number(_) | Output::Int(_) | Output::Literal(_) | Output::Text(_) | Output::Nothing => {
                false
            }
        });
        let Some(at) = direct else { return alloc(scope, slot) };
        let result = self.find(scope, at);
        scope.declare(slot);
        let (name, extent) = (scope.slot(slot).to_owned(), scope.extent(slot));
        scope.step(format!("litz_alloc_result(call, {result}, {extent}, &{name})"));
    }

    /// Finds the memory of an output that is a tensor.
    fn find(&mut self, scope: &mut Scope<'_>, at: usize) -> String {
        let program = scope.program;
        if let Some(found) = self.found.get(&at) {
            return found.clone();
        }
        let Output::View { ty, .. } = &program.outputs[at] else { return "NULL".to_owned() };
        let (name, layout) = (scope.fresh(&format!("result_{at}")), scope.layout(ty));
        scope.line(format!("litz_memory {name};"));
        scope.step(match self.kind {
            Kind::Program => format!("litz_output(call, {at}, {layout}, &{name})"),
            Kind::Function => format!("litz_result(call, results[{at}], {layout}, &{name})"),
        });
        self.found.insert(at, name.clone());
        name
    }

    /// Hands over what is not where it goes.
    fn write(mut self, scope: &mut Scope<'_>) -> Result<(), Unsupported> {
        let program = scope.program;
        for (at, output) in program.outputs.iter().enumerate() {
            match output {
                Output::View { slot, ty, offset } => {
                    let result = self.find(scope, at);
                    let (from, offset) = (scope.slot(*slot).to_owned(), scope.sizes.write(*offset));
                    scope.step(format!("litz_finish(call, {from}, {offset}, {}, {result})", dtype(ty.dtype)));
                }
                Output::Number(slot) => {
                    let (from, dtype) = (scope.slot(*slot).to_owned(), dtype(program.slots[*slot].dtype));
                    scope.step(format!("litz_number(call, {at}, {from}, {dtype})"));
                }
                Output::Int(value) => {
                    let value = scope.sizes.write(*value);
                    scope.step(format!("litz_integer(call, {at}, {value})"));
                }
                Output::Literal(Scalar::Int(value)) => {
                    scope.step(format!("litz_integer(call, {at}, {})", literal(*value)));
                }
                Output::Literal(Scalar::Float(value)) => {
                    scope.line(format!("litz_real(call, {at}, {});", real(*value)));
                }
                Output::Literal(Scalar::Bool(value)) => {
                    scope.line(format!("litz_truth_value(call, {at}, {value});"));
                }
                Output::Text(text) => scope.line(format!("litz_text(call, {at}, {});", quoted(text))),
                Output::Nothing => scope.line(format!("litz_nothing(call, {at});")),
            }
            if self.kind == Kind::Function && !matches!(output, Output::View { .. }) {
                return Err(Unsupported(format!("the function @{} gives what is no tensor", program.name)));
            }
        }
        Ok(())
    }
}

fn real(value: f64) -> String {
    match value {
        value if value.is_nan() => "(double)NAN".to_owned(),
        value if value.is_infinite() => format!("{}(double)INFINITY", if value < 0.0 { "-" } else { "" }),
        value => format!("{value:?}"),
    }
}

/// Writes what becomes of inputs and constants. All sources are read before any destination is written: a source that is itself
/// updated is set aside.
fn updates(scope: &mut Scope<'_>, kind: Kind) {
    let program = scope.program;
    let mut sources = Vec::new();
    for &(to, from) in &program.updates {
        let root = scope.root(from).0;
        let is_updated = program.updates.iter().any(|&(other, _)| other != to && other == root);
        let mut source = scope.slot(from).to_owned();
        if is_updated {
            let aside = scope.fresh("aside");
            let extent = scope.extent(to);
            scope.line(format!("litz_memory {aside};"));
            scope.step(format!("litz_alloc(call, {extent}, &{aside})"));
            scope.step(format!("litz_update(call, {source}, {aside})"));
            source = aside;
        }
        sources.push((to, source));
    }
    let mut extra = program.outputs.len();
    for (to, source) in sources {
        match (scope.origin(to), kind) {
            (Origin::Param(at), Kind::Program) => {
                let ty = &program.params[at].ty;
                let (name, layout) = (scope.fresh("result"), scope.layout(ty));
                scope.line(format!("litz_memory {name};"));
                scope.step(format!("litz_output(call, {extra}, {layout}, &{name})"));
                scope.step(format!("litz_finish(call, {source}, 0, {}, {name})", dtype(ty.dtype)));
                extra += 1;
            }
            _ => {
                let target = scope.slot(to).to_owned();
                scope.step(format!("litz_update(call, {source}, {target})"));
            }
        }
    }
}

/// What callers see: the description of the program, and functions that open, run and close it.
fn interface(model: &Model<'_>) -> String {
    let Model { name, program, layout, weights_id, .. } = model;
    let mut text = String::new();
    let constants: Vec<String> = layout
        .constants
        .iter()
        .map(|constant| {
            let [offset, bytes] =
                [constant.offset, constant.bytes].map(|n| literal(i64::try_from(n).unwrap_or(i64::MAX)));
            format!("    {{{offset}, {bytes}}},\n")
        })
        .collect();
    if !constants.is_empty() {
        text += &format!("static const litz_constant constants[] = {{\n{}}};\n\n", constants.concat());
    }
    let inputs = ports(program, model.inputs);
    let outputs = output_ports(program, model.inputs, model.outputs);
    for (name, ports) in [("inputs", &inputs), ("outputs", &outputs)] {
        if !ports.is_empty() {
            text += &format!("static const litz_port {name}[] = {{\n{}}};\n\n", ports.concat());
        }
    }
    let or_null = |name: &'static str, count: usize| if count == 0 { "NULL" } else { name };
    let kept = program
        .load
        .iter()
        .filter(|step| matches!(step, ProgramStep::Alloc { slot } if is_kept(program, *slot)));
    let most_params = model.kernels.iter().map(|kernel| kernel.params).max().unwrap_or(0);
    let inputs_name = or_null("inputs", inputs.len());
    text += "static const litz_program program = {\n";
    for (field, value) in [
        ("name", quoted(name)),
        ("weights_id", format!("UINT64_C({weights_id:#018x})")),
        ("weights_bytes", literal(i64::try_from(layout.bytes).unwrap_or(i64::MAX))),
        ("constants", or_null("constants", constants.len()).to_owned()),
        ("constant_count", constants.len().to_string()),
        ("kept_count", kept.count().to_string()),
        ("most_params", most_params.to_string()),
        ("inputs", inputs_name.to_owned()),
        ("input_count", inputs.len().to_string()),
        ("output_count", outputs.len().to_string()),
        ("load", "load".to_owned()),
        ("run", "run".to_owned()),
    ] {
        text += &format!("    .{field} = {value},\n");
    }
    text += &format!(
        "}};\n\n\
         litz_model *{name}_open(const char *weights, int threads, litz_error *error) {{\n  \
           return litz_open(&program, weights, threads, error);\n}}\n\n\
         litz_status {name}_run(litz_model *model, const litz_tensor *inputs_given, int input_count, litz_value *outputs_given,\n\
         {pad}int output_count, litz_error *error) {{\n  \
           return litz_run(model, inputs_given, input_count, outputs_given, output_count, error);\n}}\n\n\
         void {name}_close(litz_model *model) {{ litz_close(model); }}\n\n\
         const litz_interface {name} = {{\n    \
           .name = {quoted},\n    .inputs = {},\n    .outputs = {},\n    .input_ports = {inputs_name},\n    \
           .output_ports = {},\n    .open = {name}_open,\n    .run = {name}_run,\n    .close = {name}_close,\n}};\n",
        inputs.len(),
        outputs.len(),
        or_null("outputs", outputs.len()),
        pad = " ".repeat("litz_status _run(".len() + name.len()),
        quoted = quoted(name),
    );
    text
}

fn header(model: &Model<'_>) -> String {
    let name = model.name;
    let guard = format!("{}_H", identifier(name).to_ascii_uppercase());
    let comment = |what: &str, lines: Vec<String>| {
        let lines: Vec<String> =
            lines.into_iter().map(|line| format!("\n *   {}", line.replace("*/", "* /"))).collect();
        format!("/* {what}:{}\n */\n", lines.concat())
    };
    let inputs = listed(model.program, model.inputs);
    let outputs = listed_outputs(model.program, model.inputs, model.outputs);
    let lines = |ports: Vec<Port>| -> Vec<String> {
        ports.iter().enumerate().map(|(at, port)| format!("{at} {}: {}", port.name, port.ty)).collect()
    };
    format!(
        "/* Declares the model {name}: made by Litz. */\n#ifndef {guard}\n#define {guard}\n\n#include \"litz.h\"\n\n{}{}\n\
         /* Opens the model with its file of weights and so many threads; NULL where that fails. */\n\
         litz_model *{name}_open(const char *weights, int threads, litz_error *error);\n\n\
         /* Calls the model. */\n\
         litz_status {name}_run(litz_model *model, const litz_tensor *inputs, int input_count, litz_value *outputs,\n\
         {pad}int output_count, litz_error *error);\n\n\
         /* Frees all that the model has, but for what calls made of values. */\nvoid {name}_close(litz_model *model);\n\n\
         extern const litz_interface {name};\n\n#endif\n",
        comment("Inputs", lines(inputs)),
        comment("Outputs", lines(outputs)),
        pad = " ".repeat("litz_status _run(".len() + name.len()),
    )
}

/// An input or output, in words.
struct Port {
    name: String,
    ty: String,
    dtype: String,
    rank: usize,
}

fn listed(program: &Program, names: &[String]) -> Vec<Port> {
    let params = program.params.iter().enumerate();
    params
        .map(|(at, param)| {
            let name = names.get(at).cloned().unwrap_or_else(|| program.slots[param.slot].name.clone());
            Port { name, ty: param.ty.to_string(), dtype: dtype(param.ty.dtype), rank: param.ty.rank() }
        })
        .collect()
}

fn listed_outputs(program: &Program, inputs: &[String], names: &[String]) -> Vec<Port> {
    let own = program.outputs.iter().enumerate().map(|(at, output)| {
        let name = names.get(at).cloned().unwrap_or_else(|| format!("out.{at}"));
        let (ty, dtype, rank) = match output {
            Output::View { ty, .. } => (ty.to_string(), dtype(ty.dtype), ty.rank()),
            Output::Number(slot) => {
                let number = program.slots[*slot].dtype;
                (format!("a number of {number}"), dtype(number), 0)
            }
            Output::Int(_) | Output::Literal(Scalar::Int(_)) => {
                ("an integer".to_owned(), "LITZ_I64".to_owned(), 0)
            }
            Output::Literal(Scalar::Float(_)) => ("a number".to_owned(), "LITZ_F64".to_owned(), 0),
            Output::Literal(Scalar::Bool(_)) => ("a truth value".to_owned(), "LITZ_BOOL".to_owned(), 0),
            Output::Text(_) => ("a text".to_owned(), "LITZ_U8".to_owned(), 0),
            Output::Nothing => ("nothing".to_owned(), "LITZ_U8".to_owned(), 0),
        };
        Port { name, ty, dtype, rank }
    });
    let ports = listed(program, inputs);
    let extra = extra_outputs(program).filter_map(|(to, _)| {
        let at = program.params.iter().position(|param| param.slot == to)?;
        let port = ports.get(at)?;
        let (name, ty, dtype) = (format!("new {}", port.name), port.ty.clone(), port.dtype.clone());
        Some(Port { name, ty, dtype, rank: port.rank })
    });
    own.chain(extra).collect()
}

fn in_c(ports: Vec<Port>) -> Vec<String> {
    let line = |port: Port| {
        format!("    {{{}, {}, {}, {}}},\n", quoted(&port.name), quoted(&port.ty), port.dtype, port.rank)
    };
    ports.into_iter().map(line).collect()
}

fn ports(program: &Program, names: &[String]) -> Vec<String> {
    in_c(listed(program, names))
}

fn output_ports(program: &Program, inputs: &[String], outputs: &[String]) -> Vec<String> {
    in_c(listed_outputs(program, inputs, outputs))
}
