//! Removes each act by which threads of a GPU's kernel wait for each other or for copies, one at a time: nothing that is missing goes unnoticed.

use crate::file::TestFile;
use crate::run::{call_all, compiled, orders, seeded};
use crate::settings::Settings;
use crate::stages::{given_schedule, prepared_loops, realized_for};
use litz::Options;
use litz_codegen::Realized;
use litz_ir::kernel::{Act, Kernel, KernelLoopKind, Loop, Stmt, Sync, visit};
use litz_ir::verify;
use litz_runtime::program::RunOptions;
use litz_sym::Expr;
use litz_testing::filetest::{Call, data};

/// Tries the kernels of the schedule for a GPU that the scheduler makes, and of one that is given, without each of these acts.
pub fn removed(file: &TestFile) -> Result<(), String> {
    let settings = Settings::of(file)?;
    // A call that fails may do so ahead of everything else.
    if settings.fails.is_some() {
        return Ok(());
    }
    let (weights, calls) = data(file)?;
    let calls: Vec<&Call> = calls.iter().collect();
    // Whether a run is as it is to be.
    let succeeds = |realized: &Realized, seed: u64| {
        let run = seeded(realized, seed).and_then(|device| {
            call_all(&settings, realized, device, &weights, &calls, &RunOptions::default())
        });
        run.is_ok()
    };
    let gpu = litz::backend(&Options::for_target(settings.gpu)).map_err(|e| e.to_string())?;
    let mut unnoticed = removed_of("automatic schedule", &compiled(file, &settings, &*gpu)?, &succeeds);
    if file.texts.len() > 1 {
        let loops = prepared_loops(file, &settings)?;
        let schedule = given_schedule(file, &loops)?.ok_or("expected a schedule")?;
        // As an emitter gets them: products of warpgroups are waited for there.
        let gpu = litz::backend(&Options::for_target(schedule.target)).map_err(|e| e.to_string())?;
        let whole = realized_for(&loops, &schedule, &*gpu)?;
        unnoticed.extend(removed_of("given schedule", &whole, &succeeds));
    }
    if unnoticed.is_empty() { Ok(()) } else { Err(unnoticed.join("\n")) }
}

/// The acts of kernels that nothing notices to be missing.
fn removed_of(what: &str, whole: &Realized, succeeds: &dyn Fn(&Realized, u64) -> bool) -> Vec<String> {
    let mut unnoticed = Vec::new();
    for (at, kernel) in whole.kernels.iter().enumerate() {
        for (number, act) in acts(kernel).into_iter().enumerate() {
            // A kernel that waits nowhere waits before all it does.
            if act == Sync::Kernels {
                continue;
            }
            let mut changed = whole.clone();
            remove(&mut changed.kernels[at].body, number);
            let is_refused = !verify::kernel::verify(&changed.kernels[at]).is_empty();
            if is_refused || !orders(3).all(|seed| succeeds(&changed, seed)) {
                continue;
            }
            // Of a loop that runs once in all calls they do not say what its iterations wait for.
            let mut once = whole.clone();
            let is_in_loop = runs_once(&mut once.kernels[at].body, number);
            if !is_in_loop || !succeeds(&once, 1) {
                unnoticed.push(format!("{what}: @{} without act {number}, `{act}`", kernel.name));
            }
        }
    }
    unnoticed
}

/// The acts of a kernel by which threads wait, in order.
fn acts(kernel: &Kernel) -> Vec<Sync> {
    let mut acts = Vec::new();
    visit(&kernel.body, &mut |stmt| {
        if let Stmt::Act(Act::Sync(sync)) = stmt {
            acts.push(*sync);
        }
    });
    acts
}

/// Removes the act of that number.
fn remove(body: &mut Vec<Stmt>, number: usize) {
    fn remove(body: &mut Vec<Stmt>, left: &mut usize) {
        body.retain_mut(|stmt| {
            if let Stmt::Act(Act::Sync(_)) = stmt {
                *left = left.wrapping_sub(1);
                return *left != usize::MAX;
            }
            stmt.blocks_mut().into_iter().for_each(|block| remove(block, left));
            true
        });
    }
    let mut left = number;
    remove(body, &mut left);
}

/// Lets the innermost loop around the act of that number whose iterations sizes decide run once at most. False where there is none.
fn runs_once(body: &mut [Stmt], number: usize) -> bool {
    fn find(body: &mut [Stmt], left: &mut usize) -> Option<bool> {
        for stmt in body {
            if let Stmt::Act(Act::Sync(_)) = stmt {
                if *left == 0 {
                    return Some(false);
                }
                *left -= 1;
            }
            let found = stmt.blocks_mut().into_iter().find_map(|block| find(block, left));
            match (found, stmt) {
                (Some(false), Stmt::Loop(Loop { kind: KernelLoopKind::For, extent, .. }))
                    if extent.as_int().is_none() =>
                {
                    *extent = (*extent).min(Expr::one());
                    return Some(true);
                }
                (Some(found), _) => return Some(found),
                (None, _) => {}
            }
        }
        None
    }
    find(body, &mut { number }).unwrap_or(false)
}
