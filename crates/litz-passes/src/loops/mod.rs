//! Runs the rewrites of loops programs in their order.

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
pub mod pack;
pub mod pad;
mod positions;
mod prologue;
mod ranges;
pub mod split_reduce;
mod swept;
pub mod transpose;
pub mod unite;
pub mod updates;
pub mod widen;
pub mod windows;
pub mod words;

use edits::Edits;
use litz_ir::Dtype;
use litz_ir::loops::Loops;
use names::Names;

/// Numbers of the target and thresholds that rewrites of loops go by.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Columns of a product's register tile: operands are packed to this width.
    pub tile_columns: u32,
    /// Element types whose products are summed several at a time, with how many neighbouring reduced elements a matrix
    /// instruction takes from each column: operands of those types are packed in such groups.
    pub groups: Vec<(Dtype, u32)>,
    /// Element types of which instructions take several rows of the left operand at once: operands that hold rounded numbers are
    /// stored in those types.
    pub matrices: Vec<Dtype>,
    /// Entries of a table of f32 that an instruction looks up in the lanes of a vector, and lanes; 0 where there is none.
    pub table: i64,
    /// Cost of a body (see [`inline::cost`]) that is recomputed rather than stored when it has several readers.
    pub cheap: u32,
    /// Instructions a nest may have after taking in its producers.
    pub max_body: usize,
    /// Loads a nest may have after taking in its producers.
    pub max_loads: usize,
    /// Bytes of the cache of one core.
    pub cache_bytes: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            tile_columns: 32,
            groups: Vec::new(),
            matrices: Vec::new(),
            table: 0,
            cheap: 4,
            max_body: 100,
            max_loads: 12,
            cache_bytes: 1 << 20,
        }
    }
}

/// A rewrite of loops programs; says how many things it changed.
pub struct Pass {
    /// Name: of the file, the flag and the test folder.
    pub name: &'static str,
    /// The rewrite.
    pub run: fn(&mut Loops, &Settings) -> usize,
}

/// Every rewrite, in the order they run.
pub const PASSES: &[Pass] = &[
    Pass { name: "in_place", run: in_place::run },
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
    Pass { name: "online", run: online::run },
    Pass { name: "split_reduce", run: split_reduce::run },
    Pass { name: "updates", run: updates::run },
    Pass { name: "dead", run: dead::run },
];
