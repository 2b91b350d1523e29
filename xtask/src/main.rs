//! Runs `cargo xtask TASK`: the commands, checks and measurements of the project.

mod aarch64;
mod bar;
mod bars;
mod bench;
mod bench_kernels;
mod bench_models;
mod bits;
mod bless;
mod c_library;
mod cold_start;
mod command;
mod corpus;
mod demo;
mod faults;
mod fuzz;
mod gate;
mod gpu_bundle;
mod hostile;
mod machine;
mod opinfo;
mod pair;
mod py_test;
mod races;
mod random;
mod replay;
mod setup;
mod table;
mod targets;
mod test;
mod tidy;
mod venv;
mod verify;
mod wheel;

use std::process::ExitCode;

use clap::Parser;

/// Tasks of the Litz repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Install the LLVM packages that the CPU backend links, where they are missing
    Setup,
    /// Read handwritten digits with a model of `examples/`
    Demo,
    /// Run every check that needs neither PyTorch nor a GPU
    Test,
    /// Check crate directions, file sizes, file headers, names of operators, links, and titles of commits and records
    Tidy,
    /// Rewrite the expected blocks of the file tests
    Bless(bless::Args),
    /// Make the Python environment with PyTorch, in `target/venv`
    Venv,
    /// Export models with PyTorch and check Litz's numbers on each
    Corpus(corpus::Args),
    /// Run file tests and exported models as programs of C for AArch64, under QEMU
    Aarch64(aarch64::Args),
    /// Compile every exported model for many targets, everything verified
    Targets(targets::Args),
    /// Call models many times and compare the bits of their results
    Bits(bits::Args),
    /// Try calls that contradict themselves: each is refused, or runs inside its buffers
    Hostile(hostile::Args),
    /// Export samples of PyTorch's operator tests and check Litz's numbers on each
    Opinfo(opinfo::Args),
    /// Try random models against the interpreter of loops
    Random(random::Args),
    /// Time whole models against PyTorch and ONNX Runtime
    BenchModels(bench::Args),
    /// Time single kernels against PyTorch and ONNX Runtime
    BenchKernels(bench::Args),
    /// Put faults into the compiler and see whether `litz minify` and `litz bisect` find them
    Faults(faults::Args),
    /// Look for inputs that break a promise
    Fuzz(fuzz::Args),
    /// Time two builds of Litz against each other
    Pair(pair::Args),
    /// Time first starts from an imported cache, as another user, against warm ones
    ColdStart(cold_start::Args),
    /// Build the Python package, as `target/wheels/litz-*.whl`
    Wheel,
    /// Build the C library, as `target/c` and without the compiler as `target/c-runtime`
    CLibrary(c_library::Args),
    /// Pack what a machine with a GPU and no Rust needs to check Litz, as `target/carry/bundle.tar.xz`
    GpuBundle(gpu_bundle::Args),
    /// Install the Python package beside PyTorch and run its tests
    PyTest(py_test::Args),
    /// Compare the kernels that two builds of Litz make
    Replay(replay::Args),
    /// Check every promise of the project, and record what was found
    Gate(gate::Args),
}

fn main() -> ExitCode {
    match run(Task::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<ExitCode> {
    match task {
        Task::Setup => setup::run()?,
        Task::Demo => demo::run()?,
        Task::Test => test::run()?,
        Task::Tidy => tidy::run()?,
        Task::Bless(args) => bless::run(&args)?,
        Task::Venv => venv::run()?,
        Task::Corpus(args) => return corpus::run(&args),
        Task::Aarch64(args) => return aarch64::run(&args),
        Task::Targets(args) => return targets::run(&args),
        Task::Bits(args) => return bits::run(&args),
        Task::Hostile(args) => return hostile::run(&args),
        Task::Opinfo(args) => return opinfo::run(&args),
        Task::Random(args) => return random::run(&args),
        Task::BenchModels(args) => bench_models::run(&args)?,
        Task::BenchKernels(args) => bench_kernels::run(&args)?,
        Task::Faults(args) => return faults::run(&args),
        Task::Fuzz(args) => return fuzz::run(&args),
        Task::Pair(args) => return pair::run(&args),
        Task::ColdStart(args) => return cold_start::run(&args),
        Task::Wheel => drop(wheel::build()?),
        Task::CLibrary(args) => c_library::run(&args)?,
        Task::GpuBundle(args) => gpu_bundle::run(&args)?,
        Task::PyTest(args) => py_test::run(&args)?,
        Task::Replay(args) => return replay::run(&args),
        Task::Gate(args) => return gate::run(&args),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        <super::Task as clap::CommandFactory>::command().debug_assert();
    }
}
