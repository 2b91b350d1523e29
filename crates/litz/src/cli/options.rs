//! Turns the flags that every command takes into options of the compiler.

use super::format::Table;
use super::output;
use clap::ValueEnum;
use litz::{GivenSchedule, GuardPages, Options, Provenance, Target, Timing, Verify};
use litz_runtime::limits::Limit;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Flags that every command takes.
#[derive(clap::Args)]
pub struct Common {
    /// Threads that run kernels [default: LITZ_NUM_THREADS, else all]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Let the system move threads between cores: for several processes that take turns on the same ones
    #[arg(long)]
    no_bind: bool,
    /// What to compile for, such as `cpu(isa=avx512-amx, threads=7, l1=48K, l2=2M)`; isa: sse2, avx2, avx512,
    /// avx512-vnni, avx512-bf16, avx512-amx, neon [default: this machine]
    #[arg(long, value_name = "TARGET", conflicts_with = "threads")]
    target: Option<Target>,
    /// What runs the kernels: native code on `cpu`, `cuda` or `cuda:1`, the second GPU, or `reference`, an interpreter: slow, the
    /// definition of right [default: that of the target, else cpu]
    #[arg(long, value_name = "DEVICE", value_parser = device_name)]
    device: Option<String>,
    /// On the reference device, run threads of a GPU's kernels side by side, in an order that this seed decides where nothing else
    /// does [default: in the order of the text]
    #[arg(long, value_name = "SEED")]
    interleave: Option<u64>,
    /// Keep parameters as they are: fold and pack nothing when the model is loaded
    #[arg(long)]
    no_freeze: bool,
    /// Neither read nor write compiled code of other runs
    #[arg(long)]
    no_cache: bool,
    /// What to verify of the texts between stages [default: what each stage gives; without `=`: passes]
    #[arg(long, value_enum, value_name = "WHAT", require_equals = true, num_args = 0..=1)]
    #[arg(default_missing_value = "passes")]
    verify_ir: Option<VerifyIr>,
    /// What compiling and running may take, such as call_bytes=1000000; see `litz_runtime::Limits`
    #[arg(long, value_name = "NAME=N", value_parser = limit)]
    limit: Vec<(Limit, u64)>,
    /// A threshold of the scheduler or of the rewrites, such as launch_together=8; docs/command-line.md lists them
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Unmapped pages next to every buffer, so that native code that leaves one faults: for tests
    #[arg(long, value_enum, value_name = "SIDE")]
    guard_pages: Option<Side>,
    /// Watch the memory of calls: buffers in use lie apart, and no element is read that no step has written
    #[arg(long)]
    verify_memory: bool,
    /// End a call where a step makes a NaN or an infinite number of numbers that are none, and name the step [default:
    /// LITZ_CHECK_NAN]
    #[arg(long)]
    check_nan: bool,
    /// How much of the user's model is kept in what is compiled: machine code is the same
    #[arg(long, value_enum, value_name = "LEVEL")]
    provenance: Option<Level>,
    /// Write the text of every stage to this folder
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,
    /// Print what each stage took
    #[arg(long)]
    pub time: bool,
}

/// What [`Provenance`] is called.
#[derive(Clone, Copy, ValueEnum)]
enum Level {
    /// Source lines, for messages
    Lines,
    /// Also paths of modules, names before passes, and what each launch computes
    Basic,
    /// Also all lines of the stack
    Full,
}

#[derive(Clone, Copy, ValueEnum)]
enum Side {
    /// Behind the last byte
    Ends,
    /// Before the first byte
    Starts,
}

#[derive(Clone, Copy, ValueEnum)]
enum VerifyIr {
    /// Nothing
    Nothing,
    /// What each stage gives
    Stages,
    /// What each pass gives; all of them run, whatever the cache has
    Passes,
}

impl Common {
    /// The environment's options, changed by the flags.
    pub fn options(&self) -> Options {
        let mut options = Options::from_env();
        options.threads = self.threads.map_or(options.threads, NonZeroUsize::get);
        options.bind &= !self.no_bind;
        if let Some(target) = self.target {
            options.set_target(target);
        }
        if let Some(device) = &self.device {
            options.set_device(device).expect("invariant: the flag was read by setting it");
        }
        options.reference_options.seed = self.interleave;
        options.freeze &= !self.no_freeze;
        options.verify = match self.verify_ir {
            None => options.verify,
            Some(VerifyIr::Nothing) => Verify::Nothing,
            Some(VerifyIr::Stages) => Verify::Stages,
            Some(VerifyIr::Passes) => Verify::Passes,
        };
        self.limit.iter().for_each(|&(limit, allowed)| options.limits.set(limit, allowed));
        for (name, value) in &self.set {
            options.set(name, value).expect("invariant: the flag was read by setting it");
        }
        options.guard_pages = match self.guard_pages {
            None => options.guard_pages,
            Some(Side::Ends) => GuardPages::AtEnds,
            Some(Side::Starts) => GuardPages::AtStarts,
        };
        options.verify_memory |= self.verify_memory;
        options.check_nan |= self.check_nan;
        options.provenance = match self.provenance {
            None => options.provenance,
            Some(Level::Lines) => Provenance::Lines,
            Some(Level::Basic) => Provenance::Basic,
            Some(Level::Full) => Provenance::Full,
        };
        if self.no_cache {
            options.cache = None;
        }
        if let Some(dir) = &self.dump {
            options.dump = Some(dir.clone());
        }
        options
    }

    /// Prints what each stage took, if asked to, where it does not mix with results.
    pub fn print_timings(&self, timings: &[Timing]) {
        if self.time {
            output::note(timing_table(timings));
        }
    }
}

/// Flags of the commands that take a model to kernels.
#[derive(clap::Args)]
pub struct Compiling {
    #[command(flatten)]
    common: Common,
    /// Run the model by this schedule instead of the scheduler's: what `litz compile MODEL --to schedule` wrote, edited. It
    /// is proved to compute the same, or refused
    #[arg(long, value_name = "FILE", value_parser = read_schedule)]
    schedule: Option<GivenSchedule>,
    /// Run the model by the schedule that `litz tune` found for it on this target, here or where the cache was exported, if there is one
    #[arg(long, conflicts_with = "schedule")]
    tuned: bool,
}

impl Compiling {
    /// As [`Common::options`].
    pub fn options(&self) -> Options {
        Options { schedule: self.schedule.clone(), tuned: self.tuned, ..self.common.options() }
    }

    /// As [`Common::print_timings`].
    pub fn print_timings(&self, timings: &[Timing]) {
        self.common.print_timings(timings);
    }
}

/// The text of that file.
fn read_schedule(path: &str) -> Result<GivenSchedule, String> {
    GivenSchedule::read(Path::new(path)).map_err(|error| error.to_string())
}

/// `cuda:1`.
fn device_name(text: &str) -> Result<String, String> {
    Options::default().set_device(text)?;
    Ok(text.to_owned())
}

/// `call_bytes=1000000`.
fn limit(text: &str) -> Result<(Limit, u64), String> {
    let (name, allowed) = text.split_once('=').ok_or("expected NAME=N")?;
    let names = || Limit::ALL.map(Limit::name).join(", ");
    let limit = Limit::ALL.into_iter().find(|limit| limit.name() == name);
    let limit = limit.ok_or_else(|| format!("expected one of {}, found {name}", names()))?;
    Ok((limit, allowed.parse().map_err(|_| format!("expected a number, found {allowed}"))?))
}

/// `launch_together=8`.
fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Options::default().set(name, value).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// What each stage took, and all of them.
pub fn timing_table(timings: &[Timing]) -> Table {
    let mut table = Table::new(&["stage", ">ms"]);
    for timing in timings {
        table.row([timing.name.clone(), format!("{:.2}", 1e3 * timing.time.as_secs_f64())]);
    }
    let total: f64 = timings.iter().map(|timing| timing.time.as_secs_f64()).sum();
    table.row(["total".to_owned(), format!("{:.2}", 1e3 * total)]);
    table
}
