//! Writes a program and its kernels as a module of Python.
//!
//! ```python
//! def load(m):
//!     w = m.constant("fc1.weight", "f32", 2359296, [3072, 768])
//!     wp = m.empty("f32", 2359296)
//!     m.launch("pack0", [w], [wp], [])
//!     return {"wp": wp}
//!
//!
//! def mlp(m, x):
//!     wp = m.kept("wp")
//!     s0 = m.size(x, 0, within=(2, 1024))
//!     x = m.input("x", x, "f32", 768*s0, [s0, 768])
//!     y = m.empty("f32", 3072*s0)
//!     m.launch("k0", [x, wp], [y], [s0])
//!     results = [m.shaped(y, [s0, 3072])]
//!     return results
//! ```
//!
//! Each step is one line, a call of a method of a *machine* `m`. The package `litz` has two machines: that of `litz.listings` does the steps on
//! NumPy's arrays, that of `litz.graphs` makes nodes of a `torch.fx.GraphModule` of them. So both forms are one text but for their first and
//! last lines. `docs/consumers.md` says what each method means.
//!
//! Memory is flat: a vector of elements, as slots of programs are.

#![forbid(unsafe_code)]

mod memory;
mod names;
mod refuse;
mod steps;
mod value;

use std::fmt::{self, Write};

use litz_ir::diag::Diags;
use litz_ir::kernel::Kernel;
use litz_ir::program::{KernelAccesses, Program, accesses_of};
use litz_ir::target::Target;

use names::{Functions, Names};
use steps::Body;
use value::Quoted;

/// What the module is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// It builds a graph of torch.fx.
    Fx,
    /// It runs on NumPy's arrays, kernels on the reference device.
    Python,
}

impl Form {
    /// The form of that name, as the command line has it.
    pub fn from_name(name: &str) -> Option<Form> {
        [Form::Fx, Form::Python].into_iter().find(|form| form.name() == name)
    }

    /// The name on the command line: `fx`, `python`.
    pub fn name(self) -> &'static str {
        match self {
            Form::Fx => "fx",
            Form::Python => "python",
        }
    }

    /// What the package has for it: a module, and a function that makes something to be called.
    fn maker(self) -> (&'static str, &'static str) {
        match self {
            Form::Fx => ("litz.graphs", "graph_module"),
            Form::Python => ("litz.listings", "listing"),
        }
    }

    /// What the module gives.
    fn product(self) -> &'static str {
        match self {
            Form::Fx => "a graph of torch.fx",
            Form::Python => "a listing for NumPy",
        }
    }
}

/// The module of a program that verifies, whose kernels were made for `target`.
///
/// # Errors
/// `unsupported-device` for memory and queues that are not a CPU's, and for a graph of kernels for a GPU.
pub fn listing(form: Form, program: &Program, kernels: &[Kernel], target: &Target) -> Result<String, Diags> {
    let mut problems = refuse::devices(program);
    problems.extend(refuse::target(form, target));
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut text = String::new();
    let module = Module { form, program, kernels, target };
    module.write(&mut text).expect("invariant: a string takes all that is written to it");
    Ok(text)
}

struct Module<'a> {
    form: Form,
    program: &'a Program,
    kernels: &'a [Kernel],
    target: &'a Target,
}

impl Module<'_> {
    fn write(&self, f: &mut impl Write) -> fmt::Result {
        let Module { form, program, kernels, target } = *self;
        let (package, make) = form.maker();
        let functions = Functions::of(program);
        let accesses = accesses_of(kernels);
        writeln!(
            f,
            "\"\"\"The program @{} as {}: `build()` makes it.\"\"\"\n",
            program.name.escape_debug(),
            form.product()
        )?;
        writeln!(f, "from {package} import beside, {make}\n")?;
        writeln!(f, "TARGET = {}\n", Quoted(&target.to_string()))?;
        self.write_kernels(f)?;
        self.write_load(f, &accesses, &functions)?;
        write_functions(f, program, &functions, &accesses)?;
        Body::new(program, &accesses, &functions).write_main(f)?;
        let main = functions.name(program);
        let (options, passed) = match form {
            Form::Fx => (", options=None", ", options"),
            Form::Python => ("", ""),
        };
        writeln!(f, "\n\ndef build(constants=None{options}):")?;
        writeln!(
            f,
            "    \"\"\"Makes it of constants by their names; without any, of those in the file beside this one.\"\"\""
        )?;
        writeln!(f, "    given = beside(__file__) if constants is None else constants")?;
        writeln!(f, "    return {make}({main}, load, KERNELS, TARGET, given{passed})")
    }

    /// The kernels as Litz's texts, which both machines load.
    fn write_kernels(&self, f: &mut impl Write) -> fmt::Result {
        let texts: String = self.kernels.iter().map(ToString::to_string).collect();
        match texts.contains("'''") {
            false => write!(f, "KERNELS = r'''\n{texts}'''\n"),
            true => writeln!(f, "KERNELS = {}", Quoted(&texts)),
        }
    }

    fn write_load(
        &self,
        f: &mut impl Write,
        accesses: &KernelAccesses<'_>,
        functions: &Functions,
    ) -> fmt::Result {
        Body::new(self.program, accesses, functions).write_load(f)
    }
}

/// The functions of a program, those that others call first.
fn write_functions(
    f: &mut impl Write,
    program: &Program,
    functions: &Functions,
    accesses: &KernelAccesses<'_>,
) -> fmt::Result {
    for function in &program.functions {
        write_functions(f, function, functions, accesses)?;
        Body::new(function, accesses, functions).write_function(f)?;
    }
    Ok(())
}

/// Names of one scope of Python: slots and size symbols of a program.
fn scope(program: &Program, functions: &Functions) -> Names {
    let mut names = Names::beside(functions.all());
    program.facts.symbols().for_each(|sym| names.add_symbol(sym));
    program.slots.iter().for_each(|(slot, data)| names.add_slot(slot, &data.name));
    names
}
