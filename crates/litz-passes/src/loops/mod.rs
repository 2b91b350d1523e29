//! Runs the rewrites of loops programs in their order.

pub mod accumulate;
pub mod bytes;
mod cost;
pub mod cse;
pub mod dead;
pub mod digits;
mod edits;
pub mod fold;
pub mod group_rows;
pub mod in_place;
pub mod inline;
pub mod join;
pub mod merge_dims;
pub mod merge_rows;
mod names;
pub mod narrow;
pub mod online;
mod overwrites;
pub mod pack;
pub mod pad;
pub mod pad_rows;
pub mod patches;
pub mod pitch;
mod positions;
pub mod powers;
mod prologue;
mod put_off;
mod ranges;
pub mod renaming;
pub mod repeat_rows;
pub mod rounding;
pub mod split_reduce;
pub mod split_scan;
pub mod split_scatter;
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
    /// Whether instructions may take operands of float32 products as tf32.
    pub tf32: bool,
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

/// A rewrite of loops programs.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Name: of the file, the flag and the test folder.
    pub name: &'static str,
    /// Whether it is for a target.
    pub wants: fn(&Target) -> bool,
    run: fn(&mut Loops, &Cx<'_>) -> usize,
}

impl Pass {
    /// One for all targets.
    pub const fn new(name: &'static str, run: fn(&mut Loops, &Cx<'_>) -> usize) -> Pass {
        Pass { name, wants: |_| true, run }
    }

    /// Rewrites a program, if the pass is for its target; says how many things it changed.
    pub fn apply(&self, loops: &mut Loops, cx: &Cx<'_>) -> usize {
        if (self.wants)(cx.target) { (self.run)(loops, cx) } else { 0 }
    }
}

/// Every rewrite, in the order they run.
pub const PASSES: &[Pass] = &[
    Pass::new("in_place", in_place::run),
    Pass::new("accumulate", accumulate::run),
    Pass { name: "rounding", wants: rounding::wants, run: rounding::run },
    Pass { name: "bytes", wants: bytes::wants, run: bytes::run },
    Pass::new("windows", windows::run),
    Pass { name: "group_rows", wants: group_rows::wants, run: group_rows::run },
    Pass::new("inline", inline::run),
    Pass::new("unite", unite::run),
    Pass { name: "merge_rows", wants: merge_rows::wants, run: merge_rows::run },
    Pass { name: "merge_dims", wants: merge_dims::wants, run: merge_dims::run },
    Pass { name: "patches", wants: patches::wants, run: patches::run },
    Pass { name: "words", wants: words::wants, run: words::run },
    Pass::new("digits", digits::run),
    Pass::new("widen", widen::run),
    Pass::new("fold", fold::run),
    Pass::new("join", join::run),
    Pass::new("pad", pad::run),
    Pass::new("narrow", narrow::run),
    Pass { name: "pack", wants: pack::wants, run: pack::run },
    Pass::new("transpose", transpose::run),
    Pass { name: "pad_rows", wants: pad_rows::wants, run: pad_rows::run },
    Pass::new("online", online::run),
    Pass { name: "powers", wants: powers::wants, run: powers::run },
    Pass { name: "pitch", wants: pitch::wants, run: pitch::run },
    Pass { name: "split_scatter", wants: split_scatter::wants, run: split_scatter::run },
    Pass::new("split_reduce", split_reduce::run),
    Pass { name: "repeat_rows", wants: repeat_rows::wants, run: repeat_rows::run },
    Pass { name: "split_scan", wants: split_scan::wants, run: split_scan::run },
    Pass::new("updates", updates::run),
    Pass::new("dead", dead::run),
];
