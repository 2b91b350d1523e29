//! Runs a test file up to one stage and gives its text.

use crate::file::TestFile;
use crate::settings::Settings;
use litz::{Backend, Text};
use litz_analysis::legality;
use litz_codegen::Realized;
use litz_codegen::passes::{self, Pass};
use litz_ir::graph::Graph;
use litz_ir::loops::Loops;
use litz_ir::schedule::Schedule;
use litz_ir::target::Target;
use litz_ir::{Diags, kernel::Kernel, verify};
use litz_passes::{graph, loops};

/// Canonical texts print as they are, and read back equal.
pub fn text(file: &TestFile) -> Result<(), String> {
    for source in &file.texts {
        let is_text = |line: &&str| !line.is_empty() && !line.starts_with("//");
        let canonical: String = source.lines().filter(is_text).map(|line| format!("{line}\n")).collect();
        let printed = parse(source)?.to_string();
        if printed != canonical {
            return Err(format!("prints as\n{printed}"));
        }
        parse(&printed)?;
    }
    Ok(())
}

/// The verifier finds what `// error: slug` comments say, at the lines they are on where it knows lines.
pub fn verify(file: &TestFile) -> Result<(), String> {
    let mut loops = None;
    for source in &file.texts {
        let mut expected: Vec<(&str, usize)> = Vec::new();
        for (number, line) in source.lines().enumerate() {
            let slugs = line.split_once("// error: ").map_or("", |(_, slugs)| slugs);
            expected.extend(slugs.split(", ").filter(|slug| !slug.is_empty()).map(|slug| (slug, number + 1)));
        }
        let found = match Text::parse(source) {
            Ok(text) => {
                let found = text.verify(loops.as_ref());
                if let Text::Loops(text) = text {
                    loops = Some(text);
                }
                found
            }
            Err(litz::Error::Invalid(found)) => found,
            Err(error) => return Err(error.to_string()),
        };
        let mut slugs: Vec<&str> = found.iter().map(|diag| diag.slug).collect();
        slugs.sort_unstable();
        expected.sort_unstable();
        if !slugs.iter().copied().eq(expected.iter().map(|e| e.0)) {
            return Err(format!("expected {expected:?}, found\n{}", list(&found)));
        }
        for diag in &found {
            if let Some((line, _)) = diag.at
                && !expected.contains(&(diag.slug, line as usize))
            {
                return Err(format!("expected at another line: {diag}"));
            }
        }
    }
    Ok(())
}

/// What one graph pass makes of a graph.
pub fn graph_pass(file: &TestFile, pass: &str) -> Result<String, String> {
    let settings = Settings::of(file)?;
    let mut graph = only_graph(file)?;
    for pass in settings.passes.iter().map(String::as_str).chain([pass]) {
        apply_graph_pass(&mut graph, pass)?;
    }
    Ok(graph.to_string())
}

/// What one loops pass makes of loops.
pub fn loops_pass(file: &TestFile, pass: &str) -> Result<String, String> {
    let settings = Settings::of(file)?;
    let mut loops = only_loops(file)?;
    for pass in settings.passes.iter().map(String::as_str).chain([pass]) {
        apply_loops_pass(&mut loops, pass, &settings)?;
    }
    Ok(loops.to_string())
}

/// What one kernel pass makes of kernels; what it gives stays as it is when the pass runs again. A pass that fails says why.
pub fn kernel_pass(file: &TestFile, pass: &str) -> Result<String, String> {
    let settings = Settings::of(file)?;
    let [source] = &file.texts[..] else { return Err("expected one text".into()) };
    // What a pass is given need not verify yet: registers have run-time indices before `demote`.
    let Text::Kernels(mut kernels) = parse(source)? else { return Err("expected kernels".into()) };
    for pass in &settings.passes {
        apply_kernel_passes(&mut kernels, &[kernel_pass_of(pass)?], &settings.info)?;
    }
    let pass = [kernel_pass_of(pass)?];
    if let Err(diag) = kernels.iter_mut().try_for_each(|kernel| (pass[0].run)(kernel, &settings.info)) {
        return Ok(format!("{diag}\n"));
    }
    let once = Text::Kernels(kernels.clone()).to_string();
    apply_kernel_passes(&mut kernels, &pass, &settings.info)?;
    let twice = Text::Kernels(kernels).to_string();
    if once == twice { Ok(once) } else { Err(format!("the pass gives\n{once}and, run again,\n{twice}")) }
}

/// The loops of a graph.
pub fn lower(file: &TestFile) -> Result<String, String> {
    let settings = Settings::of(file)?;
    let mut graph = only_graph(file)?;
    for pass in &settings.passes {
        apply_graph_pass(&mut graph, pass)?;
    }
    let loops = litz_ops::lower(&graph).map_err(|diags| list(&diags))?;
    sound(&loops, verify::loops::verify(&loops))?;
    Ok(loops.to_string())
}

/// The schedule of loops.
pub fn schedule(file: &TestFile) -> Result<String, String> {
    let settings = Settings::of(file)?;
    let loops = prepared_loops(file, &settings)?;
    Ok(automatic(&loops, &settings)?.to_string())
}

/// The kernels and the program of loops, by the schedule given or the automatic one.
pub fn realize(file: &TestFile) -> Result<String, String> {
    let settings = Settings::of(file)?;
    let loops = prepared_loops(file, &settings)?;
    let schedule = match given_schedule(file, &loops)? {
        Some(schedule) => schedule,
        None => automatic(&loops, &settings)?,
    };
    let realized = realized(&loops, &schedule)?;
    Ok(format!("{}{}", Text::Kernels(realized.kernels), realized.program))
}

/// The LLVM IR of kernels, after the target's passes, has what `// check:` comments say, in that order, and between two of them nothing that
/// `// check-not:` says; LLVM accepts it.
pub fn emit(file: &TestFile) -> Result<(), String> {
    let settings = Settings::of(file)?;
    let [source] = &file.texts[..] else { return Err("expected one text".into()) };
    let mut kernels = kernels(source)?;
    apply_kernel_passes(&mut kernels, settings.backend.passes(), &settings.info)?;
    let emitted = settings.backend.emit(&kernels).map_err(|e| e.message)?;
    settings.backend.assemble(&emitted).map_err(|e| format!("{e}\n{emitted}"))?;
    let mut at = 0;
    let mut absent = Vec::new();
    let mut checks = 0;
    for line in source.lines() {
        if let Some(what) = line.strip_prefix("// check-not: ") {
            absent.push(what);
            checks += 1;
        } else if let Some(what) = line.strip_prefix("// check: ") {
            let found = emitted[at..].find(what).map(|found| at + found);
            let found = found.ok_or_else(|| format!("expected `{what}` in\n{}", &emitted[at..]))?;
            check_absent(&emitted[at..found], &absent)?;
            absent.clear();
            at = found + what.len();
            checks += 1;
        }
    }
    check_absent(&emitted[at..], &absent)?;
    if checks == 0 { Err("expected `// check:` comments".into()) } else { Ok(()) }
}

fn check_absent(text: &str, absent: &[&str]) -> Result<(), String> {
    match absent.iter().find(|what| text.contains(**what)) {
        Some(what) => Err(format!("expected no `{what}` in\n{text}")),
        None => Ok(()),
    }
}

/// The first text as loops, after the passes that the settings name.
pub fn prepared_loops(file: &TestFile, settings: &Settings) -> Result<Loops, String> {
    let mut loops = loops(&file.texts[0])?;
    for pass in &settings.passes {
        apply_loops_pass(&mut loops, pass, settings)?;
    }
    Ok(loops)
}

/// The second text as a schedule, if there is one.
pub fn given_schedule(file: &TestFile, loops: &Loops) -> Result<Option<Schedule>, String> {
    let Some(source) = file.texts.get(1) else { return Ok(None) };
    let Text::Schedule(schedule, _) = parse(source)? else { return Err("expected a schedule".into()) };
    sound(&schedule, legality::verify(&schedule, loops))?;
    Ok(Some(schedule))
}

/// As [`realized`], with the kernels in the form that a backend's code is printed from.
pub fn realized_for(loops: &Loops, schedule: &Schedule, backend: &dyn Backend) -> Result<Realized, String> {
    let mut realized = realized(loops, schedule)?;
    apply_kernel_passes(&mut realized.kernels, backend.passes(), backend.target())?;
    Ok(realized)
}

/// The kernels and program that a schedule gives, everything verified.
pub fn realized(loops: &Loops, schedule: &Schedule) -> Result<Realized, String> {
    let realized = litz_codegen::realize(loops, schedule).map_err(|diags| list(&diags))?;
    for kernel in &realized.kernels {
        sound(kernel, verify::kernel::verify(kernel))?;
    }
    sound(&realized.program, verify::program::verify_with(&realized.program, &realized.kernels))?;
    Ok(realized)
}

fn automatic(loops: &Loops, settings: &Settings) -> Result<Schedule, String> {
    let schedule = litz_schedule::schedule(loops, &settings.info, &settings.options.heuristics).schedule;
    sound(&schedule, legality::verify(&schedule, loops))?;
    Ok(schedule)
}

fn apply_graph_pass(graph: &mut Graph, name: &str) -> Result<(), String> {
    let pass = graph::PASSES.iter().find(|pass| pass.name == name);
    let pass = pass.ok_or_else(|| format!("no graph pass `{name}`"))?;
    (pass.run)(graph, &graph::GraphSettings::default()).map_err(|diags| list(&diags))?;
    sound(graph, verify::graph::verify(graph))
}

fn apply_loops_pass(loops: &mut Loops, name: &str, settings: &Settings) -> Result<(), String> {
    let pass = loops::PASSES.iter().find(|pass| pass.name == name);
    let pass = pass.ok_or_else(|| format!("no loops pass `{name}`"))?;
    let cx = loops::Cx {
        target: &settings.info,
        inlining: &settings.options.inlining,
        tf32: settings.options.tf32,
    };
    pass.apply(loops, &cx);
    sound(loops, verify::loops::verify(loops))
}

fn kernel_pass_of(name: &str) -> Result<Pass, String> {
    let pass = passes::PASSES.iter().find(|pass| pass.name == name);
    pass.copied().ok_or_else(|| format!("no kernel pass `{name}`"))
}

fn apply_kernel_passes(kernels: &mut [Kernel], passes: &[Pass], target: &Target) -> Result<(), String> {
    for kernel in kernels {
        passes::run(kernel, passes, target).map_err(|diag| diag.to_string())?;
        sound(kernel, verify::kernel::verify(kernel))?;
    }
    Ok(())
}

fn only_graph(file: &TestFile) -> Result<Graph, String> {
    let [source] = &file.texts[..] else { return Err("expected one text".into()) };
    let Text::Graph(graph) = parse(source)? else { return Err("expected a graph".into()) };
    sound(&graph, verify::graph::verify(&graph))?;
    sound(&graph, litz_ops::check(&graph))?;
    Ok(graph)
}

fn only_loops(file: &TestFile) -> Result<Loops, String> {
    let [source] = &file.texts[..] else { return Err("expected one text".into()) };
    loops(source)
}

fn loops(source: &str) -> Result<Loops, String> {
    let Text::Loops(loops) = parse(source)? else { return Err("expected loops".into()) };
    sound(&loops, verify::loops::verify(&loops))?;
    Ok(loops)
}

fn kernels(source: &str) -> Result<Vec<Kernel>, String> {
    let Text::Kernels(kernels) = parse(source)? else { return Err("expected kernels".into()) };
    kernels.iter().try_for_each(|kernel| sound(kernel, verify::kernel::verify(kernel)))?;
    Ok(kernels)
}

/// A text that reads back equal when it is printed.
pub fn parse(source: &str) -> Result<Text, String> {
    let text = Text::parse(source).map_err(|e| e.to_string())?;
    let printed = text.to_string();
    let again = Text::parse(&printed).map_err(|e| format!("{e}\nin what it prints as\n{printed}"))?;
    if again.to_string() == printed { Ok(text) } else { Err(format!("prints, read back, as\n{again}")) }
}

/// Fails when a verifier found something, and when the text of `item` does not read back equal.
fn sound(item: &impl ToString, diags: Diags) -> Result<(), String> {
    let printed = item.to_string();
    if !diags.is_empty() {
        return Err(format!("{}\nin\n{printed}", list(&diags)));
    }
    parse(&printed).map(drop)
}

fn list(diags: &Diags) -> String {
    diags.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
