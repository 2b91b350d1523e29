//! Times first starts of a model from an imported cache, as another user and elsewhere, against warm starts where the cache was made.
//!
//! What is timed is `litz run` from start to end. The two take turns, in an order that alternates, and what counts is the median of the turns'
//! ratios. Each first start has a folder of its own that was just imported, is read only, and belongs to the other user, as do the copy of
//! the model and the command. Where this process may not act for other users, one user does both.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::bench::median;
use crate::command::{build_litz, command, output, root};
use crate::corpus::OWN_FOLDER;
use crate::table;

/// What a first start may take of a warm start's time.
const MOST_RATIO: f64 = 1.2;

/// A user that is nobody's.
const STRANGER: u32 = 54_321;

/// What to time.
#[derive(clap::Args)]
pub struct Args {
    /// Archives that torch.export.save wrote [default: BERT-base of `cargo xtask corpus`]
    models: Vec<PathBuf>,
    /// Turns of each
    #[arg(long, value_name = "N", default_value_t = 11)]
    rounds: usize,
}

/// Times the models, prints a table; exit status 1 where first starts take too long.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.rounds > 0, "expected at least one turn");
    let litz = build_litz()?;
    let default = [root().join(OWN_FOLDER).join("bert_base.pt2")];
    let models = if args.models.is_empty() { &default[..] } else { &args.models };
    let (mut rows, mut most) = (Vec::new(), 0f64);
    for model in models {
        let model = model.canonicalize();
        let model =
            model.context("no such model; `cargo xtask corpus --only bert_base` exports BERT-base")?;
        let times = measure(&litz, &model, args.rounds)?;
        most = most.max(times.ratio);
        let name = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let ms = [times.compiled, times.import, times.cold, times.warm].map(|ms| format!("{ms:.0}"));
        rows.push([name].into_iter().chain(ms).chain([format!("{:.3}", times.ratio)]).collect());
    }
    let header = ["model", "no cache ms", "import ms", "first start ms", "warm start ms", "ratio"];
    print!("{}", table::format(&header, &rows));
    println!(
        "\ncold-start: {} models, first starts take at most {most:.3} times as long as warm ones",
        rows.len()
    );
    Ok(if most <= MOST_RATIO { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Milliseconds, medians but for the first.
struct Times {
    /// A start without a cache.
    compiled: f64,
    import: f64,
    cold: f64,
    warm: f64,
    /// Of a first start to the warm one beside it.
    ratio: f64,
}

/// A folder that goes away, and who may act in it.
struct Place {
    folder: PathBuf,
    /// A user other than this one, where it may be.
    other: Option<u32>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Place {
    fn new() -> anyhow::Result<Place> {
        let folder = std::env::temp_dir().join(format!("litz-cold-start-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let is_root = output(command("id").arg("-u"))?.trim() == "0";
        let other = (is_root && output(command("setpriv").arg("--version")).is_ok()).then_some(STRANGER);
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        Ok(Place { folder, other })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A copy of a file, or an empty folder, of the other user's.
    fn give(&self, name: &str, from: Option<&Path>) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        match from {
            Some(from) => drop(fs::copy(from, &path)?),
            None => fs::create_dir(&path)?,
        }
        if let Some(other) = self.other {
            chown(&path, Some(other), None)?;
        }
        Ok(path)
    }

    /// The command for a user of this machine, with a cache.
    fn litz(&self, user: Option<u32>, cache: &Path) -> Command {
        let program = self.path("litz");
        // Both users' start by the same program, which takes its time as well.
        let mut command = match self.other {
            Some(_) => {
                let mut command = Command::new("setpriv");
                let user = format!("--reuid={}", user.unwrap_or(0));
                command.args([&user, "--clear-groups", "--"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.current_dir(&self.folder).env("LITZ_CACHE_DIR", cache);
        command.env_remove("LITZ_SHARED_CACHE_DIR").env_remove("LITZ_CACHE_READ_ONLY");
        command
    }
}

fn measure(litz: &Path, model: &Path, rounds: usize) -> anyhow::Result<Times> {
    let place = Place::new()?;
    fs::copy(litz, place.path("litz"))?;
    let (first, exported) = (place.path("first"), place.path("exported"));
    let (compiled, expected) = timed(place.litz(None, &first).arg("run").arg(model))?;
    output(place.litz(None, &first).args(["cache", "export"]).arg(model).arg("-o").arg(&exported))?;
    let (theirs, copy) = (place.give("theirs", Some(&exported))?, place.give("copy.pt2", Some(model))?);
    let (mut imports, mut colds, mut warms) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let second = place.give("second", None)?;
        imports.push(timed(place.litz(place.other, &second).args(["cache", "import"]).arg(&theirs))?.0);
        fs::set_permissions(&second, Permissions::from_mode(0o555))?;
        for turn in 0..2 {
            let is_cold = (round + turn) % 2 == 0;
            let (user, cache, model) =
                if is_cold { (place.other, &second, &*copy) } else { (None, &first, model) };
            let (ms, found) = timed(place.litz(user, cache).arg("run").arg(model))?;
            ensure!(found == expected, "expected `{expected}`, found `{found}`");
            if is_cold { colds.push(ms) } else { warms.push(ms) }
        }
        fs::set_permissions(&second, Permissions::from_mode(0o755))?;
        fs::remove_dir_all(&second)?;
    }
    let ratios: Vec<f64> = colds.iter().zip(&warms).map(|(cold, warm)| cold / warm).collect();
    let [import, cold, warm, ratio] = [&imports, &colds, &warms, &ratios].map(|values| median(values));
    Ok(Times { compiled, import, cold, warm, ratio })
}

/// Milliseconds from start to end, and what was printed.
fn timed(command: &mut Command) -> anyhow::Result<(f64, String)> {
    let start = Instant::now();
    let said = output(command)?;
    Ok((1e3 * start.elapsed().as_secs_f64(), said))
}
