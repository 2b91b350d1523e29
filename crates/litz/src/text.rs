//! Parses a text of any of the five kinds.

use crate::error::Error;
use crate::runner::Stage;
use litz_analysis::legality;
use litz_ir::graph::Graph;
use litz_ir::kernel::Kernel;
use litz_ir::loops::Loops;
use litz_ir::program::Program;
use litz_ir::schedule::Schedule;
use litz_ir::text::schedule::Positions;
use litz_ir::{Diag, Diags, text, verify};
use std::fmt;

/// What a text says.
#[derive(Clone, Debug)]
pub enum Text {
    /// One graph.
    Graph(Graph),
    /// One loops program.
    Loops(Loops),
    /// One schedule, and where its parts are in the text.
    Schedule(Schedule, Positions),
    /// Kernels, one after another.
    Kernels(Vec<Kernel>),
    /// One program.
    Program(Program),
}

impl Text {
    /// Reads a text; its first word says of which kind it is.
    ///
    /// # Errors
    /// [`Error::Invalid`] with everything that is wrong with it.
    pub fn parse(source: &str) -> Result<Text, Error> {
        let is_comment = |line: &&str| line.is_empty() || line.starts_with("//");
        let first = source.lines().map(str::trim).find(|line| !is_comment(line)).unwrap_or("");
        let word = first.split_whitespace().next().unwrap_or("");
        let Some(stage) = Stage::from_name(word) else {
            let expected = Stage::ALL.map(Stage::name).join(", ");
            let message = format!("expected one of {expected} as the first word, found `{word}`");
            return Err(Error::Invalid(vec![Diag::new("syntax", message)]));
        };
        let text = match stage {
            Stage::Graph => text::graph::parse(source).map(Text::Graph),
            Stage::Loops => text::loops::parse(source).map(Text::Loops),
            Stage::Schedule => {
                let read = text::schedule::parse_with_positions(source);
                read.map(|(schedule, positions)| Text::Schedule(schedule, positions))
            }
            Stage::Kernel => parse_kernels(source).map(Text::Kernels),
            Stage::Program => text::program::parse(source).map(Text::Program),
        };
        text.map_err(Error::Invalid)
    }

    /// Of which kind it is.
    pub fn stage(&self) -> Stage {
        match self {
            Text::Graph(_) => Stage::Graph,
            Text::Loops(_) => Stage::Loops,
            Text::Schedule(..) => Stage::Schedule,
            Text::Kernels(_) => Stage::Kernel,
            Text::Program(_) => Stage::Program,
        }
    }

    /// What is wrong with it. A schedule is checked against the loops it belongs to, where they are given.
    pub fn verify(&self, loops: Option<&Loops>) -> Diags {
        match self {
            Text::Graph(graph) => {
                let mut diags = verify::graph::verify(graph);
                diags.extend(litz_ops::check_devices(graph));
                diags
            }
            Text::Loops(loops) => verify::loops::verify(loops),
            Text::Schedule(schedule, positions) => {
                loops.map_or(Vec::new(), |loops| legality::verify_text(schedule, positions, loops))
            }
            Text::Kernels(kernels) => kernels.iter().flat_map(verify::kernel::verify).collect(),
            Text::Program(program) => verify::program::verify(program),
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Text::Graph(graph) => graph.fmt(f),
            Text::Loops(loops) => loops.fmt(f),
            Text::Schedule(schedule, _) => schedule.fmt(f),
            Text::Kernels(kernels) => kernels.iter().try_for_each(|kernel| kernel.fmt(f)),
            Text::Program(program) => program.fmt(f),
        }
    }
}

/// Kernels begin where a line begins with their keyword.
fn parse_kernels(source: &str) -> Result<Vec<Kernel>, Diags> {
    let mut starts: Vec<usize> = source.match_indices("\nkernel ").map(|(at, _)| at + 1).collect();
    if source.starts_with("kernel ") {
        starts.insert(0, 0);
    }
    // What precedes the first kernel can only be comments.
    if let Some(first) = starts.first_mut() {
        *first = 0;
    }
    let ends = starts.iter().skip(1).copied().chain([source.len()]);
    let mut kernels = Vec::new();
    for (&start, end) in starts.iter().zip(ends) {
        let line = source[..start].matches('\n').count() as u32;
        let shift = |mut diag: Diag| {
            diag.at = diag.at.map(|(at, column)| (at + line, column));
            diag
        };
        let kernel = text::kernel::parse(&source[start..end]);
        kernels.push(kernel.map_err(|diags| diags.into_iter().map(shift).collect::<Diags>())?);
    }
    Ok(kernels)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "kernel @a {\n  write y: f32[1]\n  %0: f32 = const 1.0\n  y[0] = %0\n}\n";

    #[test]
    fn kernels_come_one_after_another() {
        let two = format!("// two\n{KERNEL}{}", KERNEL.replace("@a", "@b"));
        let Ok(Text::Kernels(kernels)) = Text::parse(&two) else { panic!("expected kernels") };
        assert_eq!(kernels.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(Text::Kernels(kernels).verify(None).is_empty());
    }

    #[test]
    fn positions_count_from_the_start_of_the_file() {
        let broken = format!("{KERNEL}{}", KERNEL.replace("const", "konst"));
        let Err(Error::Invalid(diags)) = Text::parse(&broken) else { panic!("expected an error") };
        assert_eq!(diags[0].at.map(|at| at.0), Some(8), "{}", diags[0]);
    }

    #[test]
    fn other_words_are_no_text() {
        assert!(matches!(Text::parse("// nothing\n"), Err(Error::Invalid(_))));
        assert!(matches!(Text::parse("module {}"), Err(Error::Invalid(_))));
    }
}
