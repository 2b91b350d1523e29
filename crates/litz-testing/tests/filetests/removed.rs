//! Removes each act by which threads of a GPU's kernel wait for each other or for copies, one at a time: nothing that is missing goes unnoticed.

use crate::file::TestFile;
use crate::run::{Call, call_all, data, orders, seeded};
use crate::settings::Settings;
use crate::stages::{given_schedule, prepared_loops, realized_for};
use litz::Options;
use litz_codegen::Realized;
use litz_ir::kernel::{Act, Stmt, Sync, visit};
use litz_ir::verify;
use litz_runtime::program::RunOptions;

/// Tries the kernels of the given schedule without each of these acts.
pub fn removed(file: &TestFile) -> Result<(), String> {
    let settings = Settings::of(file)?;
    let (weights, calls) = data(file)?;
    let calls: Vec<&Call> = calls.iter().collect();
    let loops = prepared_loops(file, &settings)?;
    let schedule = given_schedule(file, &loops)?.ok_or("expected a schedule")?;
    // As an emitter gets them: products of warpgroups are waited for there.
    let gpu = litz::backend(&Options::for_target(schedule.target)).map_err(|e| e.to_string())?;
    let whole = realized_for(&loops, &schedule, &*gpu)?;
    let mut unnoticed = Vec::new();
    for at in 0..whole.kernels.len() {
        for number in 0..acts(&whole, at).len() {
            let mut changed = whole.clone();
            remove(&mut changed.kernels[at].body, number);
            let is_refused = !verify::kernel::verify(&changed.kernels[at]).is_empty();
            let fails = |seed: u64| {
                let run = seeded(&changed, seed).and_then(|device| {
                    call_all(&settings, &changed, device, &weights, &calls, &RunOptions::default())
                });
                run.is_err()
            };
            if !is_refused && !orders().any(fails) {
                let kernel = &whole.kernels[at].name;
                unnoticed.push(format!("@{kernel} without act {number}, `{}`", acts(&whole, at)[number]));
            }
        }
    }
    if unnoticed.is_empty() { Ok(()) } else { Err(unnoticed.join("\n")) }
}

/// The acts of a kernel by which threads wait, in order.
fn acts(realized: &Realized, kernel: usize) -> Vec<Sync> {
    let mut acts = Vec::new();
    visit(&realized.kernels[kernel].body, &mut |stmt| {
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
