//! Opens models for C, and says what they take, return and hold.

use std::ffi::{CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use litz_ir::Dtype;
use litz_ir::graph::TensorType;
use litz_ir::ids::Id;
use litz_ir::program::{Output, Program};
use litz_ir::scalar::Scalar;
use litz_runtime::Host;
use litz_runtime::host::ScalarType;

use crate::engine::{Engine, Source};
use crate::error::{Failure, Status, expect_place, guard, of, put, quietly, row, text};
use crate::host::{CHost, Functions};
use crate::options::Options;
use crate::tensor::{CType, Kind};

/// `litz_model` of the header.
pub struct Model {
    pub(crate) engine: Arc<Engine>,
    options: Arc<Options>,
    about: Arc<About>,
}

/// What holds for a model and those that share its constants.
struct About {
    inputs: Vec<Described>,
    outputs: Vec<Described>,
    constants: Vec<Described>,
}

/// An input, a result or a constant in words of C.
pub struct Described {
    name: CString,
    kind: Kind,
    dtype: ScalarType,
    sizes: Vec<i64>,
    size_texts: Vec<CString>,
    /// Where each text begins.
    starts: Vec<*const c_char>,
    is_state: bool,
}

// SAFETY: the addresses are those of the texts, which nobody changes.
unsafe impl Send for Described {}
// SAFETY: as above.
unsafe impl Sync for Described {}

impl Described {
    fn new(name: &str, kind: Kind, dtype: Dtype, sizes: Vec<(i64, String)>) -> Described {
        let (sizes, texts): (Vec<i64>, Vec<String>) = sizes.into_iter().unzip();
        let size_texts: Vec<CString> = texts.iter().map(|text| c_string(text)).collect();
        Described {
            name: c_string(name),
            kind,
            dtype: ScalarType::of(dtype),
            sizes,
            starts: size_texts.iter().map(|text| text.as_ptr()).collect(),
            size_texts,
            is_state: false,
        }
    }

    fn tensor(name: &str, ty: &TensorType) -> Described {
        let sizes = ty.sizes.iter().map(|size| {
            let number = size.as_int().filter(|&number| number >= 0);
            (number.unwrap_or(-1), size.to_string())
        });
        Described::new(name, Kind::Tensor, ty.dtype, sizes.collect())
    }

    fn c_type(&self) -> CType {
        CType {
            name: self.name.as_ptr(),
            kind: self.kind,
            dtype: self.dtype.0,
            rank: self.size_texts.len(),
            sizes: self.sizes.as_ptr(),
            size_texts: self.starts.as_ptr(),
            is_state: self.is_state,
        }
    }
}

/// Names come from models, which may have zeros in them.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

impl About {
    fn of(engine: &Engine) -> About {
        let program = engine.program();
        let (inputs, outputs) = engine.names();
        let input = |at: usize| -> &str {
            let slot = program.params[at].slot;
            inputs.get(at).map_or(&*program.slots[slot].name, String::as_str)
        };
        let params = program.params.iter().enumerate();
        let constants = engine.executable().constants().into_iter().map(|constant| {
            let sizes = constant.sizes.iter().map(|&size| (size as i64, size.to_string())).collect();
            let is_state = constant.is_state;
            Described { is_state, ..Described::new(constant.name, Kind::Tensor, constant.dtype, sizes) }
        });
        About {
            inputs: params.map(|(at, param)| Described::tensor(input(at), &param.ty)).collect(),
            outputs: described_outputs(program, outputs, &input),
            constants: constants.collect(),
        }
    }
}

/// What a call returns: the program's outputs, then the new contents of inputs that it updates, under their names.
fn described_outputs<'n>(
    program: &Program,
    names: &'n [String],
    input: &dyn Fn(usize) -> &'n str,
) -> Vec<Described> {
    let number = |name: &str, dtype: Dtype| {
        let kind = match dtype {
            Dtype::Bool => Kind::Bool,
            _ if dtype.is_float() => Kind::Float,
            _ => Kind::Int,
        };
        Described::new(name, kind, dtype, Vec::new())
    };
    let output = |(at, output): (usize, &Output)| {
        let name = names.get(at).map_or("", String::as_str);
        match output {
            Output::View { ty, .. } => Described::tensor(name, ty),
            Output::Number(slot) => number(name, program.slots[*slot].dtype),
            Output::Int(_) | Output::Literal(Scalar::Int(_)) => number(name, Dtype::I64),
            Output::Literal(Scalar::Float(_)) => number(name, Dtype::F64),
            Output::Literal(Scalar::Bool(_)) => number(name, Dtype::Bool),
            Output::Text(_) => Described::new(name, Kind::Text, Dtype::U8, Vec::new()),
            Output::Nothing => Described::new(name, Kind::None, Dtype::U8, Vec::new()),
        }
    };
    let updated = program.updates.iter().filter_map(|(to, _)| {
        let at = program.params.iter().position(|param| param.slot.index() == to.index())?;
        Some(Described::tensor(input(at), &program.params[at].ty))
    });
    program.outputs.iter().enumerate().map(output).chain(updated).collect()
}

impl Model {
    fn open(source: Source<'_>, options: Options) -> Result<Model, Failure> {
        let engine = Arc::new(Engine::open(source, &options)?);
        let about = Arc::new(About::of(&engine));
        Ok(Model { engine, options: Arc::new(options), about })
    }

    pub(crate) fn input_count(&self) -> usize {
        self.about.inputs.len()
    }

    pub(crate) fn output_count(&self) -> usize {
        self.about.outputs.len()
    }

    pub(crate) fn constants(&self) -> &[Described] {
        &self.about.constants
    }
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn litz_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Opens the file at a path.
///
/// # Safety
/// Texts are null or end with a zero; `host` is null or a host; `model` is null or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_open(
    path: *const c_char,
    options: *const c_char,
    host: *const CHost,
    model: *mut *mut Model,
) -> Status {
    guard(|| {
        expect_place(model, "model")?;
        if path.is_null() {
            return Err(Failure::argument("path", "it is null"));
        }
        // SAFETY: the caller's promise. Paths are bytes.
        let path = Path::new(OsStr::from_bytes(unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes()));
        // SAFETY: the caller's promise.
        unsafe { open(Source::Path(path), options, host, model) }
    })
}

/// Opens a file that is in memory.
///
/// # Safety
/// As [`litz_model_open`]; `bytes` is null or so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_open_bytes(
    bytes: *const c_void,
    size: usize,
    options: *const c_char,
    host: *const CHost,
    model: *mut *mut Model,
) -> Status {
    guard(|| {
        expect_place(model, "model")?;
        if isize::try_from(size).is_err() {
            return Err(Failure::argument("size", format!("{size} is more than memory has")));
        }
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = row(bytes.cast::<u8>(), size, "bytes")?;
            open(Source::Bytes(bytes), options, host, model)
        }
    })
}

/// # Safety
/// As [`litz_model_open`].
unsafe fn open(
    source: Source<'_>,
    options: *const c_char,
    host: *const CHost,
    model: *mut *mut Model,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let (options, host) = unsafe {
        let options = if options.is_null() { "" } else { text(options, "options")? };
        (options, host.as_ref().map(|&host| Functions::new(host)).transpose()?)
    };
    let host = host.map(|host| Arc::new(host) as Arc<dyn Host>);
    let opened = Model::open(source, Options::read(options, host)?)?;
    // SAFETY: the caller's promise.
    unsafe { put(model, "model", Box::into_raw(Box::new(opened))) }
}

/// The same model on threads of its own.
///
/// # Safety
/// `model` is null or a model, `shared` null or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_share(
    model: *const Model,
    threads: usize,
    shared: *mut *mut Model,
) -> Status {
    guard(|| {
        expect_place(shared, "shared")?;
        // SAFETY: the caller's promise.
        let model = unsafe { of(model, "model")? };
        let threads = match threads {
            0 => model.options.threads,
            given => crate::options::expect_threads("threads", given)?,
        };
        let engine = Arc::new(model.engine.share(&model.options, threads)?);
        let (options, about) = (Arc::clone(&model.options), Arc::clone(&model.about));
        // SAFETY: the caller's promise.
        unsafe { put(shared, "shared", Box::into_raw(Box::new(Model { engine, options, about }))) }
    })
}

/// Releases a model.
///
/// # Safety
/// It is null, or a model that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_close(model: *mut Model) {
    // SAFETY: the caller's promise; it was boxed when it was opened.
    unsafe { release(model) }
}

/// How many inputs a call takes.
///
/// # Safety
/// `model` is null or a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_input_count(model: *const Model) -> usize {
    // SAFETY: the caller's promise.
    quietly(|| unsafe { model.as_ref() }.map_or(0, Model::input_count))
}

/// How many results a call gives.
///
/// # Safety
/// `model` is null or a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_output_count(model: *const Model) -> usize {
    // SAFETY: the caller's promise.
    quietly(|| unsafe { model.as_ref() }.map_or(0, Model::output_count))
}

/// Name and type of an input.
///
/// # Safety
/// `model` is null or a model, `input` null or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_input(model: *const Model, index: usize, input: *mut CType) -> Status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { describe(&of(model, "model")?.about.inputs, index, (input, "input")) })
}

/// Name and type of a result.
///
/// # Safety
/// `model` is null or a model, `output` null or to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn litz_model_output(model: *const Model, index: usize, output: *mut CType) -> Status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { describe(&of(model, "model")?.about.outputs, index, (output, "output")) })
}

/// Writes one of several descriptions.
///
/// # Safety
/// The place is null or to be written.
pub(crate) unsafe fn describe(
    all: &[Described],
    index: usize,
    (to, name): (*mut CType, &str),
) -> Result<(), Failure> {
    let missing = || Failure::argument("index", format!("expected less than {}, found {index}", all.len()));
    let described = all.get(index).ok_or_else(missing)?;
    // SAFETY: the caller's promise.
    unsafe { put(to, name, described.c_type()) }
}

/// Releases a handle, if there is one.
///
/// # Safety
/// It is null, or was boxed and is used by nobody any more.
pub(crate) unsafe fn release<T>(handle: *mut T) {
    quietly(|| {
        if !handle.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(handle) });
        }
    });
}
