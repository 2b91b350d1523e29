//! `litz compile` takes a model, or the text of a stage, to a later stage.

use super::constants;
use super::failure::{Exit, Failure};
use super::load;
use super::options::Compiling;
use super::{output, sass};
use clap::ValueEnum;
use litz::ahead::{self, Names, Program, identifier};
use litz::pipeline::{self, Texts};
use litz::progress::Progress;
use litz::provenance;
use litz::{Backend, Error, Form, Options, Runner, Stage, Tensor, Text, listing};
use litz_codegen::Realized;
use litz_ir::Diag;
use litz_ir::kernel::Kernel;
use litz_ir::loops::Loops;
use litz_runtime::images::Architecture;
use litz_runtime::weights::Weights;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What to compile, and how far.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote, or a text: `.litz`
    file: PathBuf,
    #[command(flatten)]
    which: load::Which,
    /// Stage of the text [default: as its first word says]
    #[arg(long, value_enum, value_name = "STAGE")]
    from: Option<From>,
    /// How far to go [default: all the way to a program that `litz run` takes where -o names a .litzc file, else program]
    #[arg(long, value_enum, value_name = "STAGE")]
    to: Option<To>,
    /// Loops that a schedule's text belongs to
    #[arg(long, value_name = "FILE")]
    loops: Option<PathBuf>,
    /// Write here [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep the model's own constants in the .litzc file, so that programs that load it can give them new contents; they are
    /// packed and folded at each start
    #[arg(long)]
    updatable: bool,
    /// GPUs that machine code is made for, such as sm_80,sm_90, beside the PTX that later ones take [default: this machine's, else the target's]
    #[arg(long, value_name = "ARCH,..", value_delimiter = ',')]
    arch: Vec<Architecture>,
    #[command(flatten)]
    common: Compiling,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum From {
    Graph,
    Loops,
    Schedule,
    Kernel,
    Program,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum To {
    /// ATen operators on whole tensors, after passes
    Graph,
    /// Loop nests, after passes
    Loops,
    /// How nests run
    Schedule,
    /// Kernels
    Kernel,
    /// The wrapper around kernels
    Program,
    /// Which nodes of the model each launch computes, as JSON
    Maps,
    /// LLVM IR of the kernels
    Llvm,
    /// Machine code of the kernels, as text
    Asm,
    /// Machine code of the kernels of a GPU, as text, by CUDA's nvdisasm
    Sass,
    /// Machine code of the kernels, as an object file
    Object,
    /// A module of Python that builds a graph of torch.fx
    Fx,
    /// A module of Python that runs on NumPy's arrays
    Python,
    /// C of the wrapper with all that it needs, in a folder: -o DIR
    C,
}

impl From {
    fn stage(self) -> Stage {
        match self {
            From::Graph => Stage::Graph,
            From::Loops => Stage::Loops,
            From::Schedule => Stage::Schedule,
            From::Kernel => Stage::Kernel,
            From::Program => Stage::Program,
        }
    }
}

impl To {
    /// The last stage whose text is needed.
    fn stage(self) -> Stage {
        match self {
            To::Graph => Stage::Graph,
            To::Loops => Stage::Loops,
            To::Schedule => Stage::Schedule,
            To::Kernel | To::Llvm | To::Asm | To::Sass | To::Object => Stage::Kernel,
            To::Program | To::Maps | To::Fx | To::Python | To::C => Stage::Program,
        }
    }

    /// What a module of Python is for.
    fn form(self) -> Option<Form> {
        match self {
            To::Fx => Some(Form::Fx),
            To::Python => Some(Form::Python),
            To::Graph
            | To::Loops
            | To::Schedule
            | To::Kernel
            | To::Program
            | To::Maps
            | To::Llvm
            | To::Asm
            | To::Sass
            | To::Object
            | To::C => None,
        }
    }
}

/// Compiles and writes the result.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let to = args.to.unwrap_or(To::Program);
    if to == To::Object && args.output.is_none() {
        return Err(Failure::invalid("an object file needs a place to go: -o FILE"));
    }
    if to == To::C && args.output.is_none() {
        return Err(Failure::invalid("a program in C needs a folder to go to: -o DIR"));
    }
    let options = Options { architectures: args.arch.clone(), ..args.common.options() };
    if options.schedule.is_some() && to.stage() < Stage::Schedule {
        let message = format_args!("a schedule is of no use: {} comes before it", to.stage().name());
        return Err(Failure::invalid(message));
    }
    if let (None, Some(path)) =
        (args.to, args.output.as_deref().filter(|p| p.extension().is_some_and(|e| e == load::SAVED)))
    {
        let model = load::open(&args.file, &args.which)?;
        if litz::backend(&options)?.check_machine().is_err() && !options.reference {
            let progress = Progress::start();
            let timings = model.save_for(path, &options, &mut |step| progress.say(step))?;
            args.common.print_timings(&timings);
            return Ok(Exit::Ok);
        }
        let compiled = load::compile(&model, &options)?;
        args.common.print_timings(&compiled.timings);
        if args.updatable {
            compiled.save_updatable(path)?
        } else {
            compiled.save(path)?
        }
        return Ok(Exit::Ok);
    }
    if args.updatable {
        return Err(Failure::invalid("--updatable is for programs that are saved: -o FILE.litzc"));
    }
    let bytes = {
        let progress = Progress::start();
        let mut say = |step: &str| progress.say(step);
        let mut run = Runner::new(options.verify, options.dump.clone(), &mut say);
        let bytes = compile(args, to, &options, &mut run);
        args.common.print_timings(&run.timings);
        bytes?
    };
    match &args.output {
        // The folder is written.
        Some(_) if to == To::C => {}
        Some(path) => std::fs::write(path, &bytes).map_err(|error| Failure::io("write", path, &error))?,
        None => output::print_bytes(&bytes)?,
    }
    Ok(Exit::Ok)
}

fn compile(args: &Args, to: To, options: &Options, run: &mut Runner<'_>) -> Result<Vec<u8>, Failure> {
    let backend = litz::backend(options)?;
    let is_text = args.from.is_some() || args.file.extension().is_some_and(|extension| extension == "litz");
    if !is_text {
        let model = load::open(&args.file, &args.which)?;
        let texts = model.texts(options, to.stage(), run)?;
        if to == To::C {
            return ahead(args, texts, &Names::of(&model), &model, options, run);
        }
        if let (Some(_), Some(output), Some(realized)) = (to.form(), &args.output, &texts.realized) {
            constants::write(&model, &realized.program, output)?;
        }
        return finish(texts, to, &*backend, run);
    }
    let text = read_text(&args.file)?;
    if let Some(from) = args.from.filter(|from| from.stage() != text.stage()) {
        let (expected, found) = (from.stage().name(), text.stage().name());
        return Err(Failure::invalid(format_args!(
            "{}: expected {expected}, found {found}",
            args.file.display()
        )));
    }
    if text.stage() > to.stage() {
        let (from, to) = (text.stage().name(), to.stage().name());
        return Err(Failure::invalid(format_args!("{to} comes before {from}")));
    }
    if options.schedule.is_some() && text.stage() >= Stage::Schedule {
        let message = format_args!("a schedule is of no use: {} comes after loops", text.stage().name());
        return Err(Failure::invalid(message));
    }
    let loops = args.loops.as_deref().map(read_loops).transpose()?;
    expect_valid(&text, loops.as_ref())?;
    let texts = match text {
        Text::Graph(graph) => pipeline::compile(graph, &*backend, options, to.stage(), run)?,
        Text::Loops(loops) => pipeline::compile_loops(loops, &*backend, options, to.stage(), run)?,
        Text::Schedule(schedule, _) if to == To::Schedule => {
            Texts { schedule: Some(schedule), ..Texts::default() }
        }
        Text::Schedule(schedule, _) => {
            let loops = loops.ok_or_else(|| Failure::invalid("a schedule needs its loops: --loops FILE"))?;
            let realized = pipeline::realize(&loops, &schedule, &*backend, run)?;
            Texts { realized: Some(realized), ..Texts::default() }
        }
        Text::Kernels(mut kernels) if to.stage() == Stage::Kernel => {
            if to != To::Kernel {
                pipeline::kernel_passes(&mut kernels, &*backend, run)?;
            }
            return kernels_to(&kernels, to, &*backend, run);
        }
        Text::Program(program) if to == To::Program => return Ok(program.to_string().into_bytes()),
        Text::Program(program) if to == To::Maps => {
            return Ok(format!("{:#}\n", provenance::maps(&program)).into_bytes());
        }
        Text::Kernels(_) | Text::Program(_) => {
            return Err(Failure::invalid(
                "kernels and programs are two halves of one result: neither gives the other",
            ));
        }
    };
    if to == To::C {
        let constant = texts.realized.as_ref().and_then(|realized| realized.program.consts.first());
        if let Some(constant) = constant {
            let (text, name) = (args.file.display(), &constant.name);
            return Err(Failure::invalid(format_args!(
                "{text} says what weights are called, such as \"{name}\", and not what they are: compile the model's file"
            )));
        }
        let weights: HashMap<String, Tensor> = HashMap::new();
        return ahead(args, texts, &Names::default(), &weights, options, run);
    }
    finish(texts, to, &*backend, run)
}

/// Writes the folder of a program in C, and nothing else.
fn ahead(
    args: &Args,
    texts: Texts,
    names: &Names,
    weights: &dyn Weights,
    options: &Options,
    run: &mut Runner<'_>,
) -> Result<Vec<u8>, Failure> {
    let realized = texts.realized.ok_or_else(|| Error::bug("realize", "it gave nothing"))?;
    let stem = args.file.file_stem().unwrap_or_default().to_string_lossy();
    let program = Program { name: &identifier(&stem), realized: &realized, names, weights };
    let folder = args.output.as_deref().unwrap_or(Path::new("."));
    run.step("c", || ahead::write(folder, &program, options))?;
    Ok(Vec::new())
}

/// Reads a text.
pub fn read_text(path: &Path) -> Result<Text, Failure> {
    let source = std::fs::read_to_string(path).map_err(|error| Failure::io("read", path, &error))?;
    Ok(Text::parse(&source)?)
}

fn read_loops(path: &Path) -> Result<Loops, Failure> {
    let text = read_text(path)?;
    expect_valid(&text, None)?;
    match text {
        Text::Loops(loops) => Ok(loops),
        other => Err(Failure::invalid(format_args!(
            "{}: expected loops, found {}",
            path.display(),
            other.stage().name()
        ))),
    }
}

/// Texts come from people: they are verified always.
pub fn expect_valid(text: &Text, loops: Option<&Loops>) -> Result<(), Failure> {
    let diags: Vec<Diag> = text.verify(loops);
    if diags.is_empty() { Ok(()) } else { Err(Failure::diags(Exit::Invalid, &diags)) }
}

fn finish(texts: Texts, to: To, backend: &dyn Backend, run: &mut Runner<'_>) -> Result<Vec<u8>, Failure> {
    let text = match to {
        To::Graph => texts.graph.map(|graph| graph.to_string()),
        To::Loops => texts.loops.map(|loops| loops.to_string()),
        To::Schedule => texts.schedule.map(|schedule| schedule.to_string()),
        To::Program | To::C => texts.realized.map(|realized| realized.program.to_string()),
        To::Maps => texts.realized.map(|realized| format!("{:#}\n", provenance::maps(&realized.program))),
        To::Fx | To::Python => {
            let form = to.form().expect("invariant: both are forms of modules");
            let of = |Realized { program, kernels, .. }| listing(form, &program, &kernels, backend.target());
            texts.realized.map(of).transpose().map_err(Error::Unsupported)?
        }
        To::Kernel | To::Llvm | To::Asm | To::Sass | To::Object => {
            let realized = texts.realized.ok_or_else(|| Error::bug("realize", "it gave nothing"))?;
            return kernels_to(&realized.kernels, to, backend, run);
        }
    };
    Ok(text.ok_or_else(|| Error::bug("compile", "a stage gave nothing"))?.into_bytes())
}

fn kernels_to(
    kernels: &[Kernel],
    to: To,
    backend: &dyn Backend,
    run: &mut Runner<'_>,
) -> Result<Vec<u8>, Failure> {
    let emit = |run: &mut Runner<'_>| run.step("emit", || backend.emit(kernels)).map_err(Error::from);
    Ok(match to {
        To::Llvm => emit(run)?.into_bytes(),
        To::Asm => {
            let text = emit(run)?;
            let listing = run.step("assemble", || backend.listing(&text)).map_err(Error::from)?;
            let none = || Failure::invalid("the backend's code has no form for people to read");
            listing.ok_or_else(none)?.into_bytes()
        }
        To::Sass => {
            let text = emit(run)?;
            sass::text(&run.step("assemble", || backend.assemble(&text)).map_err(Error::from)?)?
        }
        To::Object => {
            let text = emit(run)?;
            run.step("assemble", || backend.assemble(&text)).map_err(Error::from)?
        }
        To::Graph
        | To::Loops
        | To::Schedule
        | To::Kernel
        | To::Program
        | To::Maps
        | To::Fx
        | To::Python
        | To::C => kernels.iter().map(ToString::to_string).collect::<String>().into_bytes(),
    })
}
