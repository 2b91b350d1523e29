//! Writes compiled programs as C: source, machine code of the kernels, weights, and what builds them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;

use litz_backend::Backend;
use litz_c::{HEADER_BYTES, Layout, SUPPORT, Unsupported};
use litz_codegen::Realized;
use litz_ir::Diag;
use litz_ir::program as ir;
use litz_ir::target::Isa;
use litz_runtime::RunError;
use litz_runtime::artifact::ArtifactError;
use litz_runtime::weights::{Weights, in_layout};
use litz_sym::Expr;

use crate::backends::{backend, compile_kernels};
use crate::error::Error;
use crate::model::Model;
use crate::options::Options;

pub use litz_c::identifier;

/// What a program takes and gives is called.
#[derive(Clone, Default, Debug)]
pub struct Names {
    /// Inputs, in order; those that have none are called as in the program.
    pub inputs: Vec<String>,
    /// Outputs, in order.
    pub outputs: Vec<String>,
}

impl Names {
    /// Those of a model.
    pub fn of(model: &Model) -> Names {
        Names {
            inputs: model.inputs().into_iter().map(|(name, _)| name.to_owned()).collect(),
            outputs: model.imported.outputs.iter().map(|output| output.name.clone()).collect(),
        }
    }
}

/// A compiled program to be written.
#[derive(Clone, Copy)]
pub struct Program<'a> {
    /// What it is called: a name of C (see [`identifier`]).
    pub name: &'a str,
    /// Its kernels and steps.
    pub realized: &'a Realized,
    /// What it takes and gives is called.
    pub names: &'a Names,
    /// Its constants.
    pub weights: &'a dyn Weights,
}

/// Writes a program to `folder`, which is made where it is missing: `NAME.c` and `NAME.h`, objects of the kernels, `NAME.weights`, the
/// support code and a makefile.
///
/// # Errors
/// What C does not do; weights that are missing; files that cannot be written.
pub fn write(folder: &Path, program: &Program<'_>, options: &Options) -> Result<(), Error> {
    let backend = backend(options)?;
    let Some(cpu) = backend.target().cpu() else {
        let message = format!("C is for programs of a CPU, and {} is none", backend.target());
        return Err(unsupported(Unsupported(message)));
    };
    let objects = write_model(folder, program, &*backend, options)?;
    write_support(folder)?;
    let is_native = (cpu.isa == Isa::Neon) == cfg!(target_arch = "aarch64");
    let compiler = match cpu.isa {
        Isa::Neon if !is_native => "aarch64-linux-gnu-gcc",
        Isa::Sse2 | Isa::Avx2 | Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Avx512Amx
            if !is_native =>
        {
            "x86_64-linux-gnu-gcc"
        }
        Isa::Sse2
        | Isa::Avx2
        | Isa::Avx512
        | Isa::Avx512Vnni
        | Isa::Avx512Bf16
        | Isa::Avx512Amx
        | Isa::Neon => "cc",
    };
    put(&folder.join("Makefile"), litz_c::makefile(program.name, &objects, compiler).as_bytes())
}

/// Writes the code that models have in common.
///
/// # Errors
/// Files that cannot be written.
pub fn write_support(folder: &Path) -> Result<(), Error> {
    SUPPORT.iter().try_for_each(|(file, text)| put(&folder.join(file), text.as_bytes()))
}

/// Names of the files that [`write_support`] writes.
pub fn support_files() -> impl Iterator<Item = &'static str> {
    SUPPORT.iter().map(|(name, _)| *name)
}

/// As [`write()`], without what models have in common. Returns the names of the objects, by `backend`.
///
/// # Errors
/// As [`write()`].
pub fn write_model(
    folder: &Path,
    program: &Program<'_>,
    backend: &dyn Backend,
    options: &Options,
) -> Result<Vec<String>, Error> {
    fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
    let Program { name, realized, names, weights } = *program;
    let layout = litz_c::layout(&realized.program).map_err(unsupported)?;
    let model = |weights_id| litz_c::Model {
        name,
        program: &realized.program,
        kernels: &realized.kernels,
        inputs: &names.inputs,
        outputs: &names.outputs,
        layout: &layout,
        weights_id,
    };
    // What is refused is before anything is written.
    litz_c::write(&model(0)).map_err(unsupported)?;
    let id = match realized.program.consts.is_empty() {
        true => 0,
        false => write_weights(&folder.join(format!("{name}.weights")), &realized.program, &layout, weights)?,
    };
    let source = litz_c::write(&model(id)).map_err(unsupported)?;
    put(&folder.join(format!("{name}.h")), source.header.as_bytes())?;
    put(&folder.join(format!("{name}.c")), source.source.as_bytes())?;
    let mut kernels = realized.kernels.clone();
    kernels.iter_mut().for_each(|kernel| kernel.name = format!("{name}_{}", kernel.name));
    let objects = compile_kernels(backend, &kernels, options, None)?;
    let files = objects.iter().enumerate().map(|(at, object)| {
        let file = format!("{name}_{at}.o");
        put(&folder.join(&file), object).map(|()| file)
    });
    files.collect()
}

/// Writes the constants, one after another, in the layout that kernels expect. The number of the file's contents.
fn write_weights(
    path: &Path,
    program: &ir::Program,
    layout: &Layout,
    weights: &dyn Weights,
) -> Result<u64, Error> {
    let io = |source| failed(path, source);
    let mut file = BufWriter::new(File::create(path).map_err(io)?);
    let mut id = Number::default();
    let mut at = HEADER_BYTES;
    file.write_all(&[0; HEADER_BYTES as usize]).map_err(io)?;
    for (constant, place) in program.consts.iter().zip(&layout.constants) {
        let numbers = |exprs: &[Expr]| -> Vec<usize> {
            exprs.iter().filter_map(|expr| usize::try_from(expr.as_int()?).ok()).collect()
        };
        let name = constant.name.as_str();
        let tensor = weights.get(name).ok_or_else(|| RunError::MissingWeight { name: name.to_owned() })?;
        let (sizes, strides) = (numbers(&constant.ty.sizes), numbers(&constant.ty.strides));
        if tensor.dtype() != constant.ty.dtype || tensor.sizes() != sizes {
            let expected = format!("{}{sizes:?}", constant.ty.dtype);
            let found = format!("{}{:?}", tensor.dtype(), tensor.sizes());
            return Err(RunError::WrongWeight { name: name.to_owned(), expected, found }.into());
        }
        let tensor = in_layout(&tensor, &strides);
        let tensor = tensor.map_err(|error| Error::bug("weights", format!("\"{name}\": {error}")))?;
        let bytes = tensor.bytes().get(..usize::try_from(place.bytes).unwrap_or(usize::MAX));
        let bytes =
            bytes.ok_or_else(|| Error::bug("weights", format!("\"{name}\" is shorter than its layout")))?;
        pad(&mut file, place.offset - at).map_err(io)?;
        file.write_all(bytes).map_err(io)?;
        id.add(name.as_bytes());
        id.add(bytes);
        at = place.offset + place.bytes;
        weights.release(name);
    }
    pad(&mut file, layout.bytes - at).map_err(io)?;
    let id = id.0;
    file.rewind().map_err(io)?;
    file.write_all(&litz_c::header(id, layout.bytes)).map_err(io)?;
    file.flush().map_err(io)?;
    Ok(id)
}

fn pad(file: &mut impl Write, bytes: u64) -> io::Result<()> {
    file.write_all(&[0; 64][..usize::try_from(bytes).unwrap_or(64).min(64)])
}

/// A number that tells contents apart by accident alone: FNV-1a over words.
struct Number(u64);

impl Default for Number {
    fn default() -> Number {
        Number(0xcbf2_9ce4_8422_2325)
    }
}

impl Number {
    fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let rest = rest.iter().map(|&byte| u64::from(byte));
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        for word in words.chain(rest).chain([bytes.len() as u64]) {
            self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
    }
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    fs::write(path, bytes).map_err(|source| failed(path, source))
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Artifact(ArtifactError::Io { path: path.to_owned(), source })
}

fn unsupported(Unsupported(message): Unsupported) -> Error {
    Error::unsupported(
        Diag::new("unsupported-in-c", message)
            .help("`litz compile -o FILE.litzc` writes a program for `litz run`"),
    )
}
