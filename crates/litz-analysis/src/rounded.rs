//! Finds what is rounded to half types in the end: such buffers, and those between of wider floats that only nests read which store to such.
//!
//! ```text
//! most: f32 = max of x: bf16      read by total                 =>      rounded
//! total: f32 = sum of exp(x - most)      read by y              =>      rounded
//! y: bf16 = exp(x - most) / total      returned                 =>      rounded
//! ```
//!
//! What is computed for them need be no more exact than what is stored in the end, by however many kernels.

use litz_ir::Dtype;
use litz_ir::ids::Id;
use litz_ir::loops::{Buf, BufKind, Inst, InstOp, Loops, Nest, Stmt};
use std::collections::{HashMap, HashSet};

/// What is rounded so in a program.
pub struct Rounded<'a> {
    loops: &'a Loops,
    nests: HashMap<&'a str, &'a Nest>,
    bufs: HashSet<Buf>,
}

impl<'a> Rounded<'a> {
    /// That of a program.
    pub fn of(loops: &'a Loops) -> Rounded<'a> {
        let mut seen: HashSet<Buf> = loops.results().collect();
        let externs = loops.stmts.iter().filter(|stmt| matches!(stmt, Stmt::Extern(_)));
        seen.extend(externs.flat_map(Stmt::reads));
        let nests = loops.stmts.iter().flat_map(Stmt::nests);
        let read: HashSet<Buf> = nests.clone().flat_map(Nest::reads).collect();
        let is_between = |buf: &Buf| {
            let data = &loops.bufs[*buf];
            data.dtype.is_float() && data.kind == BufKind::Temp && !seen.contains(buf) && read.contains(buf)
        };
        let bufs =
            loops.bufs.ids().filter(|buf| is_half(loops.bufs[*buf].dtype) || is_between(buf)).collect();
        let mut rounded = Rounded { loops, nests: nests.map(|nest| (&*nest.name, nest)).collect(), bufs };
        // What is carried around a region is read by what stores it: all are, until a reader says otherwise.
        while rounded.forget() {}
        rounded
    }

    /// Forgets what nests read that are exact; whether there was anything.
    fn forget(&mut self) -> bool {
        let exact = self.nests.values().filter(|nest| self.is_exact(nest));
        let exact: Vec<Buf> = exact.flat_map(|nest| nest.reads()).collect();
        let before = self.bufs.len();
        let loops = self.loops;
        self.bufs.retain(|buf| is_half(loops.bufs[*buf].dtype) || !exact.contains(buf));
        self.bufs.len() < before
    }

    /// Whether all floats that nests of these names store are rounded, and there are some. Names of other things are left out.
    pub fn are_all(&self, names: &[&str]) -> bool {
        let nests = names.iter().filter_map(|name| self.nests.get(name));
        let is_float = |buf: &Buf| self.loops.bufs[*buf].dtype.is_float();
        let mut floats = nests.flat_map(|nest| nest.writes()).filter(is_float).peekable();
        floats.peek().is_some() && floats.all(|buf| self.bufs.contains(&buf))
    }

    /// Whether a nest stores what is not rounded, or makes an integer of a float, which could become the next one.
    fn is_exact(&self, nest: &Nest) -> bool {
        let makes_integer = |inst: &Inst| {
            inst.ty.is_int()
                && matches!(inst.op, InstOp::Cast(value) if nest.body[value.index()].ty.is_float())
        };
        !self.are_all(&[&nest.name]) || nest.body.iter().any(makes_integer)
    }
}

/// Whether numbers of a type are computed with as those of a wider one.
fn is_half(dtype: Dtype) -> bool {
    dtype.is_float() && dtype.compute() != dtype
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of what is rounded in a program.
    fn names(text: &str) -> Vec<String> {
        let loops = litz_ir::text::loops::parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]));
        let rounded = Rounded::of(&loops);
        let names = loops.bufs.iter().filter(|(buf, _)| rounded.bufs.contains(buf));
        names.map(|(_, data)| data.name.clone()).collect()
    }

    #[test]
    fn what_is_rounded_in_the_end_is_so_wherever_it_is_kept() {
        let text = "loops @f on cpu { buf x: bf16[4, 8] = input buf m: f32[4] buf s: f32[4] buf y: bf16[4]
            nest m [i in 4 | j in 8] { %0: bf16 = load x[i, j] %1: f32 = cast %0 %2: f32 = reduce.max %1 store m[i] = %2 }
            nest s [i in 4 | j in 8] { %0: bf16 = load x[i, j] %1: f32 = cast %0 %2: f32 = load m[i]
              %3: f32 = sub %1, %2 %4: f32 = exp %3 %5: f32 = reduce.sum %4 store s[i] = %5 }
            nest y [i in 4] { %0: f32 = load s[i] %1: f32 = log %0 %2: bf16 = cast %1 store y[i] = %2 }
            return y }";
        assert_eq!(names(text), ["x", "m", "s", "y"]);
        assert_eq!(names(&text.replace("return y", "return y, s")), ["x", "y"]);
    }

    #[test]
    fn what_decides_and_what_wider_floats_are_made_of_is_not() {
        let text = "loops @f on cpu { buf x: bf16[4] = input buf t: f32[4] buf n: i64[4] buf y: bf16[4]
            nest t [i in 4] { %0: bf16 = load x[i] %1: f32 = cast %0 %2: f32 = exp %1 store t[i] = %2 }
            nest y [i in 4] { %0: f32 = load t[i] %1: i64 = cast %0 store n[i] = %1 %2: bf16 = cast %0 store y[i] = %2 }
            return y, n }";
        assert_eq!(names(text), ["x", "y"]);
        let text = "loops @f on cpu { buf x: bf16[4] = input buf t: f32[4] buf u: f32[4] buf y: f32[4]
            nest t [i in 4] { %0: bf16 = load x[i] %1: f32 = cast %0 %2: f32 = exp %1 store t[i] = %2 }
            nest u [i in 4] { %0: f32 = load t[i] store u[i] = %0 }
            nest y [i in 4] { %0: f32 = load u[i] store y[i] = %0 }
            return y }";
        assert_eq!(names(text), ["x"]);
    }
}
