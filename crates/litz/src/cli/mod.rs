//! Parses the command line, runs the command, and turns what came of it into an exit status.

mod bench;
mod bisect;
mod cache;
mod check;
mod compile;
mod constants;
mod counts;
mod explain;
mod failure;
mod format;
mod generate;
mod inputs;
mod inspect;
mod load;
mod minify;
mod opt;
mod options;
mod output;
mod repeat;
mod report;
mod run;
mod sass;
mod trying;
mod tune;
mod verify;

use clap::{Parser, Subcommand};
use failure::{Exit, Failure};
use std::process::ExitCode;

/// A tensor compiler: runs torch.export archives fast, with nothing else installed
#[derive(Parser)]
#[command(name = "litz", version, after_help = "Exit status: 0 ok, 1 failed, 2 unsupported, 3 invalid input")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a model and print what it returns
    Run(run::Args),
    /// Take a model, or a text, to a later stage
    Compile(compile::Args),
    /// Compile a model for many targets, everything verified, and write nothing
    Check(check::Args),
    /// Go on with a text, token by token
    Generate(generate::Args),
    /// Compare a model's results with PyTorch's
    Verify(verify::Args),
    /// Time a model
    Bench(bench::Args),
    /// Show what a model takes, returns and is made of
    Inspect(inspect::Args),
    /// Show what became one kernel, what did not and why, and where memory goes
    Explain(explain::Args),
    /// Write a page about a model: what its lines became, what that costs, and why
    Report(report::Args),
    /// Look for a faster schedule of a model
    Tune(tune::Args),
    /// Make a model that fails a few nodes that fail alike
    Minify(minify::Args),
    /// Find the pass or kernel that makes the results of a model wrong
    Bisect(bisect::Args),
    /// Move what was compiled, packed and tuned to other machines, and look at it
    Cache(cache::Args),
    /// Run one pass on a text and print the result
    Opt(opt::Args),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help that cannot be printed has no reader.
            let _ = error.print();
            return if error.use_stderr() { Exit::Invalid.into() } else { Exit::Ok.into() };
        }
    };
    match execute(&cli.command) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::note(format_args!("{failure}\n"));
            failure.exit.into()
        }
    }
}

fn execute(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::execute(args),
        Command::Compile(args) => compile::execute(args),
        Command::Check(args) => check::execute(args),
        Command::Generate(args) => generate::execute(args),
        Command::Verify(args) => verify::execute(args),
        Command::Bench(args) => bench::execute(args),
        Command::Inspect(args) => inspect::execute(args),
        Command::Explain(args) => explain::execute(args),
        Command::Report(args) => report::execute(args),
        Command::Tune(args) => tune::execute(args),
        Command::Minify(args) => minify::execute(args),
        Command::Bisect(args) => bisect::execute(args),
        Command::Cache(args) => cache::execute(args),
        Command::Opt(args) => opt::execute(args),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }
}
