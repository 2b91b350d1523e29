//! The `litz` command: model files and texts to results, reports and code.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
