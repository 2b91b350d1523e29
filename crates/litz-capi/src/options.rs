//! Reads options, which are lines of text such as `threads=4`.

use std::sync::Arc;

use litz_runtime::limits::Limit;
use litz_runtime::pool::ThreadPool;
use litz_runtime::{Host, Limits};

use crate::error::Failure;

/// Options of the compiler's, beside its settings.
#[cfg(feature = "compiler")]
const OF_COMPILER: [&str; 9] =
    ["model", "freeze", "cache", "cache_read_only", "shared_cache", "dump", "verify", "target", "device"];

/// How a model is compiled and run.
pub(crate) struct Options {
    /// Threads that run kernels, the caller's among them.
    pub(crate) threads: usize,
    /// Whether threads are bound to cores.
    pub(crate) bind: bool,
    pub(crate) limits: Limits,
    pub(crate) host: Option<Arc<dyn Host>>,
    /// How models are compiled, but for what the fields above say.
    #[cfg(feature = "compiler")]
    pub(crate) compiler: litz::Options,
}

impl Options {
    /// The defaults, changed by lines of text. The environment has no say.
    ///
    /// # Errors
    /// Where a line names no option, or a value that the option does not take.
    pub(crate) fn read(text: &str, host: Option<Arc<dyn Host>>) -> Result<Options, Failure> {
        let mut options = Options {
            threads: std::thread::available_parallelism().map_or(1, |threads| threads.get()),
            bind: true,
            limits: Limits::default(),
            host,
            #[cfg(feature = "compiler")]
            compiler: litz::Options { fallback: litz::Fallback::Quiet, ..litz::Options::default() },
        };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, value) =
                line.split_once('=').ok_or_else(|| wrong(format!("expected name=value, found {line}")))?;
            options.set(name.trim(), value.trim())?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        if let Some(limit) = Limit::ALL.into_iter().find(|limit| limit.name() == name) {
            self.limits.set(limit, number(name, value)?);
            return Ok(());
        }
        match name {
            "threads" => {
                let threads = usize::try_from(number(name, value)?).unwrap_or(usize::MAX);
                self.threads = expect_threads("options: threads", threads)?;
            }
            "bind" => self.bind = truth(name, value)?,
            _ => self.set_compiler(name, value)?,
        }
        Ok(())
    }

    #[cfg(feature = "compiler")]
    fn set_compiler(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        use litz::Verify;
        use litz::settings::SettingError;
        let options = &mut self.compiler;
        match name {
            "model" => options.model = Some(value.to_owned()),
            "freeze" => options.freeze = truth(name, value)?,
            "cache" => options.cache = (!value.is_empty()).then(|| value.into()),
            "cache_read_only" => options.cache_read_only = truth(name, value)?,
            "shared_cache" => options.shared_cache = (!value.is_empty()).then(|| value.into()),
            "dump" => options.dump = (!value.is_empty()).then(|| value.into()),
            "verify" => options.verify = if truth(name, value)? { Verify::Passes } else { Verify::Stages },
            "target" => {
                options.set_target(value.parse().map_err(|error| wrong(format!("target: {error}")))?);
                self.threads = options.threads;
            }
            "device" => {
                options.set_device(value).map_err(|message| wrong(format!("device: {message}")))?;
            }
            _ => options.set(name, value).map_err(|error| match error {
                SettingError::Unknown { .. } => {
                    unknown(name, OF_COMPILER.into_iter().chain(litz::settings::names()))
                }
                SettingError::Value { .. } => wrong(error.to_string()),
            })?,
        }
        Ok(())
    }

    #[cfg(not(feature = "compiler"))]
    fn set_compiler(&mut self, name: &str, _: &str) -> Result<(), Failure> {
        Err(unknown(name, std::iter::empty()))
    }

    /// The number of the GPU that runs a program for GPUs.
    pub(crate) fn device_number(&self) -> u32 {
        #[cfg(feature = "compiler")]
        return self.compiler.device_number;
        #[cfg(not(feature = "compiler"))]
        0
    }

    /// Threads for one model.
    pub(crate) fn pool(&self, threads: usize) -> Arc<ThreadPool> {
        Arc::new(if self.bind { ThreadPool::new(threads) } else { ThreadPool::unbound(threads) })
    }
}

/// More than any machine has, and few enough that a system can start them.
const MOST_THREADS: usize = 4096;

/// # Errors
/// Where these are none, or too many to be meant.
pub(crate) fn expect_threads(name: &str, threads: usize) -> Result<usize, Failure> {
    if (1..=MOST_THREADS).contains(&threads) {
        return Ok(threads);
    }
    Err(Failure::argument(name, format!("expected 1 to {MOST_THREADS}, found {threads}")))
}

fn wrong(message: String) -> Failure {
    Failure::argument("options", message)
}

fn unknown<'n>(name: &str, others: impl Iterator<Item = &'n str>) -> Failure {
    let own = ["threads", "bind"].into_iter().chain(Limit::ALL.map(Limit::name));
    let names: Vec<&str> = own.chain(others).collect();
    wrong(format!("no such option: {name}; there are {}", names.join(", ")))
}

fn number(name: &str, value: &str) -> Result<u64, Failure> {
    value.parse().map_err(|_| wrong(format!("{name}: expected a number, found {value}")))
}

fn truth(name: &str, value: &str) -> Result<bool, Failure> {
    value.parse().map_err(|_| wrong(format!("{name}: expected true or false, found {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Options::read(text, None).err().expect("it is refused").message
    }

    #[test]
    fn lines_are_read_in_order() {
        let options = Options::read(" threads = 3 \n\nbind=false\nthreads=2\ncall_bytes=100\n", None);
        let options = options.unwrap_or_else(|failure| panic!("{}", failure.message));
        assert_eq!((options.threads, options.bind, options.limits.call_bytes), (2, false, 100));
        assert!(Options::read("", None).is_ok());
    }

    #[test]
    fn what_is_unknown_is_refused_with_what_there_is() {
        assert_eq!(refused("threads"), "options: expected name=value, found threads");
        assert_eq!(refused("threads=0"), "options: threads: expected 1 to 4096, found 0");
        assert_eq!(refused("threads=many"), "options: threads: expected a number, found many");
        assert_eq!(refused("bind=1"), "options: bind: expected true or false, found 1");
        let unknown = refused("colour=red");
        assert!(
            unknown.starts_with("options: no such option: colour; there are threads, bind, call_bytes, ")
        );
    }

    #[cfg(feature = "compiler")]
    #[test]
    fn the_compilers_options_are_there() {
        let text = "device=reference\nlaunch_together=8\ncache=/nowhere\ncache_read_only=true\nshared_cache=/there\nfreeze=false\nmodel=a";
        let options = Options::read(text, None).unwrap_or_else(|failure| panic!("{}", failure.message));
        let compiler = options.compiler;
        assert!(compiler.reference && !compiler.freeze && compiler.heuristics.launch_together == 8);
        assert_eq!((compiler.model.as_deref(), compiler.cache), (Some("a"), Some("/nowhere".into())));
        assert!(compiler.cache_read_only && compiler.shared_cache == Some("/there".into()));
        assert!(refused("device=tpu").contains("expected one of cpu, "));
        assert!(
            refused("colour=red").contains("device") && refused("colour=red").contains("launch_together")
        );
        assert!(refused("launch_together=1025").contains("expected a number from 0 to 1024"));
    }
}
