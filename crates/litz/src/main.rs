//! Runs the `litz` command: it turns model files and texts into results, reports and code.

#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is `cli::output`'s, which readers may leave"
)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
