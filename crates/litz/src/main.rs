//! The `litz` command: model files and texts to results, reports and code.

#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is `cli::output`'s, which readers may leave"
)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
