//! Assembles LLVM IR text to object code for one CPU target, through LLVM's C API.
//!
//! No IR pass pipeline runs: the text already holds explicit vectors, so instruction selection and
//! register allocation are all that is wanted of LLVM. Each call owns its context, so that any
//! number of threads may compile at once.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::ptr;
use std::sync::Once;

use llvm_sys::core::*;
use llvm_sys::ir_reader::LLVMParseIRInContext2;
use llvm_sys::prelude::*;
use llvm_sys::support::LLVMParseCommandLineOptions;
use llvm_sys::target::*;
use llvm_sys::target_machine::*;
use llvm_sys::{LLVMDiagnosticSeverity, LLVMModule};

use crate::processor::Processor;

/// Why text did not become an object: LLVM's own words, with line and column where it gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlvmError {
    /// What was being done: `parse`, `verify`, `target` or `generate code`.
    pub stage: &'static str,
    /// LLVM's message.
    pub message: String,
}

impl fmt::Display for LlvmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "llvm could not {}: {}", self.stage, self.message)
    }
}

impl std::error::Error for LlvmError {}

/// The name and the features of the CPU that this process runs on.
pub(crate) fn host() -> (String, String) {
    initialise();
    // SAFETY: both calls return a malloc'ed C string that we own.
    unsafe { (take_message(LLVMGetHostCPUName()), take_message(LLVMGetHostCPUFeatures())) }
}

/// What LLVM's verifier says of IR text.
///
/// # Errors
/// What it rejects.
pub fn verify(ir: &str, target: &Processor) -> Result<(), LlvmError> {
    initialise();
    let context = Context::new();
    let machine = Machine::new(target)?;
    let module = context.parse(ir)?;
    module.set_target(&machine, target)?;
    module.verify()
}

/// Compiles IR text to the bytes of a relocatable ELF object.
///
/// The text needs no triple or data layout: those of the target are set.
pub fn compile(ir: &str, target: &Processor) -> Result<Vec<u8>, LlvmError> {
    generate(ir, target, LLVMCodeGenFileType::LLVMObjectFile)
}

/// Compiles IR text to assembler text, for tests and for people to read.
pub fn assembly(ir: &str, target: &Processor) -> Result<String, LlvmError> {
    let bytes = generate(ir, target, LLVMCodeGenFileType::LLVMAssemblyFile)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn generate(ir: &str, target: &Processor, kind: LLVMCodeGenFileType) -> Result<Vec<u8>, LlvmError> {
    initialise();
    let context = Context::new();
    let target = &*target.with_instructions_of(ir);
    let machine = Machine::new(target)?;
    let module = context.parse(ir)?;
    module.set_target(&machine, target)?;
    if cfg!(debug_assertions) {
        module.verify()?;
    }
    let result = machine.emit(&module, kind);
    let diagnostics = context.take_errors();
    if !diagnostics.is_empty() {
        return Err(LlvmError { stage: GENERATE, message: diagnostics.join("\n") });
    }
    result
}

const GENERATE: &str = "generate code";

/// Registers the targets and sets LLVM's process-wide options, once.
fn initialise() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Loop strength reduction costs a third of the compile time and gains nothing on our loops
        // (5.0 against 3.5 ms for a gelu kernel); the machine scheduler hoists loads in unrolled
        // matrix kernels until they spill (72 against 117 GF/s). What a loop does not change is hoisted in the text
        // already; LLVM's own hoisting takes the constants of an epilogue out of the product's loop before it, which
        // then spills (a 384-term product with gelu: 3.0 against 0.95 ms), where they cost nothing as memory operands.
        let options =
            [c"litz", c"-disable-lsr", c"-enable-misched=false", c"-disable-machine-licm"].map(CStr::as_ptr);
        // SAFETY: called once, before any other use of LLVM; the strings live for the whole program.
        unsafe {
            LLVMInitializeX86TargetInfo();
            LLVMInitializeX86Target();
            LLVMInitializeX86TargetMC();
            LLVMInitializeX86AsmPrinter();
            LLVMInitializeX86AsmParser();
            LLVMInitializeAArch64TargetInfo();
            LLVMInitializeAArch64Target();
            LLVMInitializeAArch64TargetMC();
            LLVMInitializeAArch64AsmPrinter();
            LLVMInitializeNVPTXTargetInfo();
            LLVMInitializeNVPTXTarget();
            LLVMInitializeNVPTXTargetMC();
            LLVMInitializeNVPTXAsmPrinter();
            LLVMParseCommandLineOptions(options.len() as i32, options.as_ptr(), ptr::null());
        }
    });
}

/// An LLVM context and the errors reported to it.
struct Context {
    raw: LLVMContextRef,
    errors: *mut Vec<String>,
}

impl Context {
    fn new() -> Context {
        let errors: *mut Vec<String> = Box::into_raw(Box::default());
        // SAFETY: the handler gets `errors`, which lives until the context is disposed of.
        let raw = unsafe {
            let raw = LLVMContextCreate();
            LLVMContextSetDiagnosticHandler(raw, Some(collect_error), errors.cast());
            raw
        };
        Context { raw, errors }
    }

    fn parse(&self, ir: &str) -> Result<Module<'_>, LlvmError> {
        let mut raw = ptr::null_mut();
        let mut message = ptr::null_mut();
        // SAFETY: the buffer is a copy with a terminating zero; the module keeps nothing of it.
        let failed = unsafe {
            let text =
                LLVMCreateMemoryBufferWithMemoryRangeCopy(ir.as_ptr().cast(), ir.len(), c"ir".as_ptr());
            let failed = LLVMParseIRInContext2(self.raw, text, &mut raw, &mut message);
            LLVMDisposeMemoryBuffer(text);
            failed
        };
        if failed == 0 {
            return Ok(Module { raw, context: std::marker::PhantomData });
        }
        // SAFETY: on failure the message is ours.
        Err(LlvmError { stage: "parse", message: unsafe { take_message(message) } })
    }

    fn take_errors(&self) -> Vec<String> {
        // SAFETY: only this thread uses the context, and the handler is not running.
        unsafe { std::mem::take(&mut *self.errors) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: modules borrow the context, so none is left; `errors` came from a box.
        unsafe {
            LLVMContextDispose(self.raw);
            drop(Box::from_raw(self.errors));
        }
    }
}

/// Keeps errors; warnings and remarks say nothing to our callers.
extern "C" fn collect_error(info: LLVMDiagnosticInfoRef, errors: *mut c_void) {
    // SAFETY: LLVM passes the pointer registered by `Context::new`, on the thread that uses the context.
    unsafe {
        if LLVMGetDiagInfoSeverity(info) == LLVMDiagnosticSeverity::LLVMDSError {
            let errors = &mut *errors.cast::<Vec<String>>();
            errors.push(take_message(LLVMGetDiagInfoDescription(info)));
        }
    }
}

struct Module<'c> {
    raw: *mut LLVMModule,
    context: std::marker::PhantomData<&'c Context>,
}

impl Module<'_> {
    fn set_target(&self, machine: &Machine, target: &Processor) -> Result<(), LlvmError> {
        let triple = c_string(&target.triple)?;
        // SAFETY: module and machine are alive; the layout is copied into the module.
        unsafe {
            LLVMSetTarget(self.raw, triple.as_ptr());
            let layout = LLVMCreateTargetDataLayout(machine.raw);
            LLVMSetModuleDataLayout(self.raw, layout);
            LLVMDisposeTargetData(layout);
        }
        Ok(())
    }

    fn verify(&self) -> Result<(), LlvmError> {
        use llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyModule};
        let mut message = ptr::null_mut();
        let action = LLVMVerifierFailureAction::LLVMReturnStatusAction;
        // SAFETY: the module is alive; the message is ours whatever the result.
        let (broken, message) = unsafe {
            let broken = LLVMVerifyModule(self.raw, action, &mut message);
            (broken != 0, take_message(message))
        };
        if broken { Err(LlvmError { stage: "verify", message }) } else { Ok(()) }
    }
}

impl Drop for Module<'_> {
    fn drop(&mut self) {
        // SAFETY: we own the module, and its context is still alive.
        unsafe { LLVMDisposeModule(self.raw) }
    }
}

struct Machine {
    raw: LLVMTargetMachineRef,
}

impl Machine {
    fn new(target: &Processor) -> Result<Machine, LlvmError> {
        let error = |message| LlvmError { stage: "target", message };
        let (triple, cpu) = (c_string(&target.triple)?, c_string(&target.cpu)?);
        let features = c_string(&target.features)?;
        let mut found = ptr::null_mut();
        let mut message = ptr::null_mut();
        // SAFETY: the strings outlive the calls; on failure the message is ours.
        let raw = unsafe {
            if LLVMGetTargetFromTriple(triple.as_ptr(), &mut found, &mut message) != 0 {
                return Err(error(take_message(message)));
            }
            LLVMCreateTargetMachine(
                found,
                triple.as_ptr(),
                cpu.as_ptr(),
                features.as_ptr(),
                LLVMCodeGenOptLevel::LLVMCodeGenLevelDefault,
                // The loader maps code and constants side by side: everything is near.
                LLVMRelocMode::LLVMRelocPIC,
                LLVMCodeModel::LLVMCodeModelSmall,
            )
        };
        if raw.is_null() {
            return Err(error(format!("no target machine for {} {}", target.triple, target.cpu)));
        }
        Ok(Machine { raw })
    }

    fn emit(&self, module: &Module<'_>, kind: LLVMCodeGenFileType) -> Result<Vec<u8>, LlvmError> {
        let mut buffer = ptr::null_mut();
        let mut message = ptr::null_mut();
        // SAFETY: machine and module are alive; the buffer is ours on success, the message on failure.
        unsafe {
            if LLVMTargetMachineEmitToMemoryBuffer(self.raw, module.raw, kind, &mut message, &mut buffer) != 0
            {
                return Err(LlvmError { stage: GENERATE, message: take_message(message) });
            }
            let start = LLVMGetBufferStart(buffer).cast::<u8>();
            let bytes = std::slice::from_raw_parts(start, LLVMGetBufferSize(buffer)).to_vec();
            LLVMDisposeMemoryBuffer(buffer);
            Ok(bytes)
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: we own the machine.
        unsafe { LLVMDisposeTargetMachine(self.raw) }
    }
}

fn c_string(text: &str) -> Result<CString, LlvmError> {
    CString::new(text)
        .map_err(|_| LlvmError { stage: "target", message: format!("{text:?} contains a zero byte") })
}

/// Copies and frees a message of LLVM's.
///
/// # Safety
/// `message` is null, or a C string from LLVM that the caller owns.
unsafe fn take_message(message: *mut c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: by the function's contract.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().trim().to_string();
        LLVMDisposeMessage(message);
        text
    }
}
