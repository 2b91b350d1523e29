//! Loads the kernels of a text, to be launched one by one by whoever does a program's other steps.

use crate::backends;
use crate::error::Error;
use crate::options::Options;
use crate::text::Text;
use litz_ir::Diag;
use litz_ir::kernel::Kernel;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::Launcher;
use litz_runtime::reference::ReferenceDevice;
use std::sync::Arc;

/// Makes code of kernels for the target of `options`, or has the reference device interpret them.
///
/// # Errors
/// When the text is none of kernels, or breaks their rules; when this machine cannot run the target's code, or the target is no CPU.
pub fn load_kernels(text: &str, options: &Options) -> Result<Launcher, Error> {
    let kernels = read(text)?;
    if options.reference {
        return Ok(Launcher::new(&kernels, Arc::new(ReferenceDevice::new(&kernels)?))?);
    }
    let backend = backends::backend(options)?;
    backend.check_machine().map_err(Error::unsupported)?;
    let cache = options.cache()?;
    let objects = backends::compile_kernels(&*backend, &kernels, options, cache.as_ref())?;
    let pool = if options.bind { ThreadPool::new } else { ThreadPool::unbound };
    let threads = || {
        options.pool.as_ref().map_or_else(|| Arc::new(pool(options.threads)), |shared| Arc::clone(&shared.0))
    };
    Ok(Launcher::new(&kernels, backend.load(&kernels, &objects, &threads)?)?)
}

/// The kernels of a text; a program without kernels has an empty one.
fn read(text: &str) -> Result<Vec<Kernel>, Error> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let text = Text::parse(text)?;
    let diags = text.verify(None);
    match text {
        Text::Kernels(kernels) if diags.is_empty() => Ok(kernels),
        Text::Kernels(_) => Err(Error::Invalid(diags)),
        Text::Graph(_) | Text::Loops(_) | Text::Schedule(..) | Text::Program(_) => {
            let message = format!("expected kernels, found {}", text.stage().name());
            Err(Error::Invalid(vec![Diag::new("syntax", message)]))
        }
    }
}
