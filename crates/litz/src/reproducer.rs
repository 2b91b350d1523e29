//! Writes a file that shows an internal compiler error, and the command that replays it.
//!
//! Compilation has one place where mistakes are caught: [`catch`]. What a stage rejects of the one before, and a panic
//! anywhere between, end there as [`Error::Bug`].

use crate::backends;
use crate::error::{Error, Reproducer};
use crate::options::Options;
use crate::settings::SETTINGS;
use litz_ir::graph::Graph;
use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// Compiles `graph`; where that shows a mistake of Litz, writes the graph to the system's folder of temporary files.
///
/// # Errors
/// Those of `compile`; [`Error::Bug`] where it panics.
pub(crate) fn catch<T>(
    graph: &Graph,
    options: &Options,
    compile: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let result = catch_unwind(AssertUnwindSafe(compile))
        .unwrap_or_else(|panic| Err(Error::bug("compile", message(panic.as_ref()))));
    match result {
        Err(Error::Bug { stage, message, reproducer: None }) => {
            Err(Error::Bug { stage, message, reproducer: write(graph, options).ok() })
        }
        other => other,
    }
}

fn write(graph: &Graph, options: &Options) -> std::io::Result<Reproducer> {
    let path = write_text(&graph.to_string())?;
    let mut flags = flags(options);
    if let Some(given) = &options.schedule {
        flags += &format!(" --schedule {}", write_text(&given.text)?.display());
    }
    Ok(Reproducer { path, flags })
}

/// The flags that choose the same code: in full, so that it can be replayed on any machine.
pub(crate) fn flags(options: &Options) -> String {
    let target = backends::backend(options).map(|backend| format!(" --target '{}'", backend.target()));
    let mut flags = target.unwrap_or_default();
    if options.reference {
        flags += " --device reference";
    }
    if !options.freeze {
        flags += " --no-freeze";
    }
    let defaults = Options::default();
    for setting in SETTINGS {
        let value = setting.value(options);
        if value != setting.value(&defaults) {
            flags += &format!(" --set {}={value}", setting.name);
        }
    }
    flags
}

/// Writes a text to a file of its own.
fn write_text(text: &str) -> std::io::Result<PathBuf> {
    let mut file = tempfile::Builder::new().prefix("litz-bug-").suffix(".litz").tempfile()?;
    file.write_all(text.as_bytes())?;
    Ok(file.keep()?.1)
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let said = panic.downcast_ref::<&str>().copied();
    said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Text;

    fn graph() -> Graph {
        let text =
            "graph @g on cpu {\n  %x: f32[4] = input\n  %y: f32[4] = aten.exp.default(%x)\n  return %y\n}\n";
        match Text::parse(text) {
            Ok(Text::Graph(graph)) => graph,
            other => panic!("expected a graph, found {other:?}"),
        }
    }

    /// What a compilation that ends so reports.
    fn caught(compile: impl FnOnce() -> Result<(), Error>) -> (&'static str, String, Reproducer) {
        let target = "cpu(isa=avx2, threads=3)".parse().expect("a target");
        let options = Options { freeze: false, ..Options::for_target(target) };
        match catch(&graph(), &options, compile) {
            Err(Error::Bug { stage, message, reproducer: Some(reproducer) }) => (stage, message, reproducer),
            other => panic!("expected a bug with a reproducer, found {other:?}"),
        }
    }

    #[test]
    fn what_a_stage_rejects_is_written_down() {
        let (stage, message, reproducer) = caught(|| Err(Error::bug("schedule", "loops overlap")));
        assert_eq!((stage, message.as_str()), ("schedule", "loops overlap"));
        let written = std::fs::read_to_string(&reproducer.path).expect("written");
        std::fs::remove_file(&reproducer.path).expect("ours");
        assert_eq!(written, graph().to_string());
        let command = reproducer.to_string();
        assert!(command.starts_with(&format!("litz compile {}", reproducer.path.display())), "{command}");
        assert!(command.ends_with("--target 'cpu(isa=avx2, threads=3)' --no-freeze"), "{command}");
    }

    #[test]
    fn settings_that_are_not_the_defaults_are_flags() {
        let mut options = Options::for_target("cpu(isa=avx2, threads=3)".parse().expect("a target"));
        assert_eq!(flags(&options), " --target 'cpu(isa=avx2, threads=3)'");
        options.set("launch_together", "8").expect("it is a setting");
        options.reference = true;
        let expected = " --target 'cpu(isa=avx2, threads=3)' --device reference --set launch_together=8";
        assert_eq!(flags(&options), expected);
    }

    #[test]
    fn a_given_schedule_is_written_down_too() {
        let text = "schedule @g of @g for cpu {\n}\n".to_owned();
        let given = crate::GivenSchedule { name: "edited.litz".to_owned(), text: text.clone() };
        let options = Options { schedule: Some(given), ..Options::default() };
        let error = catch::<()>(&graph(), &options, || Err(Error::bug("emit", "no such instruction")));
        let Err(Error::Bug { reproducer: Some(reproducer), .. }) = error else { panic!("expected a bug") };
        let (_, written) = reproducer.flags.split_once(" --schedule ").expect("the flag is there");
        assert_eq!(std::fs::read_to_string(written).expect("written"), text);
        for path in [&reproducer.path, &PathBuf::from(written)] {
            std::fs::remove_file(path).expect("ours");
        }
    }

    #[test]
    fn a_panic_is_an_error_that_keeps_its_message() {
        let index = graph().values.len() + 5;
        let (stage, message, reproducer) = caught(|| panic!("no value {index}"));
        std::fs::remove_file(&reproducer.path).expect("ours");
        assert_eq!((stage, message), ("compile", format!("no value {index}")));
    }

    #[test]
    fn errors_of_the_model_write_nothing() {
        let error = catch::<()>(&graph(), &Options::default(), || Err(Error::Unsupported(Vec::new())));
        assert!(matches!(error, Err(Error::Unsupported(_))));
    }
}
