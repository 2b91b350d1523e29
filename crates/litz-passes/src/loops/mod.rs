//! Runs the rewrites of loops programs in their order.

pub mod accumulate;
mod cost;
pub mod cse;
pub mod dead;
pub mod digits;
mod edits;
pub mod fold;
pub mod in_place;
pub mod inline;
pub mod join;
mod names;
pub mod online;
mod overwrites;
pub mod pack;
pub mod pad;
pub mod pad_rows;
mod positions;
mod prologue;
mod put_off;
mod ranges;
pub mod renaming;
pub mod split_reduce;
pub mod split_scan;
mod swept;
pub mod transpose;
pub mod unite;
pub mod updates;
pub mod widen;
pub mod windows;
pub mod words;

use edits::Edits;
use litz_ir::loops::Loops;
use litz_ir::target::Target;
use names::Names;

/// What rewrites of loops go by.
#[derive(Clone, Copy)]
pub struct Cx<'a> {
    /// The machine that the program is compiled for.
    pub target: &'a Target,
    /// Which producers are taken in.
    pub inlining: &'a Inlining,
}

/// Which producers are taken in.
#[derive(Clone, PartialEq, Debug)]
pub struct Inlining {
    /// Cost of a body (see `cost::cost`) that is recomputed rather than stored when it has several readers.
    pub cheap: u32,
    /// Instructions a nest may have after taking in its producers.
    pub max_body: usize,
    /// Loads a nest may have after taking in its producers.
    pub max_loads: usize,
}

impl Default for Inlining {
    fn default() -> Self {
        Inlining { cheap: 4, max_body: 100, max_loads: 12 }
    }
}

/// A rewrite of loops programs; says how many things it changed.
pub struct Pass {
    /// Name: of the file, the flag and the test folder.
    pub name: &'static str,
    /// The rewrite.
    pub run: fn(&mut Loops, &Cx<'_>) -> usize,
}

/// Every rewrite, in the order they run.
pub const PASSES: &[Pass] = &[
    Pass { name: "in_place", run: in_place::run },
    Pass { name: "accumulate", run: accumulate::run },
    Pass { name: "windows", run: windows::run },
    Pass { name: "inline", run: inline::run },
    Pass { name: "unite", run: unite::run },
    Pass { name: "words", run: words::run },
    Pass { name: "digits", run: digits::run },
    Pass { name: "widen", run: widen::run },
    Pass { name: "fold", run: fold::run },
    Pass { name: "join", run: join::run },
    Pass { name: "pad", run: pad::run },
    Pass { name: "pack", run: pack::run },
    Pass { name: "transpose", run: transpose::run },
    Pass { name: "pad_rows", run: pad_rows::run },
    Pass { name: "online", run: online::run },
    Pass { name: "split_reduce", run: split_reduce::run },
    Pass { name: "split_scan", run: split_scan::run },
    Pass { name: "updates", run: updates::run },
    Pass { name: "dead", run: dead::run },
];
