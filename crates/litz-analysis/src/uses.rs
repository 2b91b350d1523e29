//! Records which statements read and write each buffer, and keeps the record up to date while a pass rewrites statements.

use litz_ir::ids::Id;
use litz_ir::loops::{Buf, Loops, Stmt};

/// For each buffer the statements that read and write it, by their positions in ascending order.
pub struct Uses {
    readers: Vec<Vec<usize>>,
    writers: Vec<Vec<usize>>,
    /// What each statement reads and writes.
    of: Vec<(Vec<Buf>, Vec<Buf>)>,
}

impl Uses {
    /// Records the uses of all buffers of a program.
    pub fn of(loops: &Loops) -> Uses {
        let none = || vec![Vec::new(); loops.bufs.len()];
        let of = vec![Default::default(); loops.stmts.len()];
        let mut uses = Uses { readers: none(), writers: none(), of };
        loops.stmts.iter().enumerate().for_each(|(at, stmt)| uses.update(at, Some(stmt)));
        uses
    }

    /// Statements that read the buffer.
    pub fn readers(&self, buf: Buf) -> &[usize] {
        self.readers.get(buf.index()).map_or(&[], Vec::as_slice)
    }

    /// Statements that write the buffer.
    pub fn writers(&self, buf: Buf) -> &[usize] {
        self.writers.get(buf.index()).map_or(&[], Vec::as_slice)
    }

    /// Buffers that the statement at a position reads.
    pub fn reads_of(&self, at: usize) -> &[Buf] {
        &self.of[at].0
    }

    /// Buffers that the statement at a position writes.
    pub fn writes_of(&self, at: usize) -> &[Buf] {
        &self.of[at].1
    }

    /// Notes that the statement at a position has become another, or nothing.
    pub fn update(&mut self, at: usize, stmt: Option<&Stmt>) {
        let now = stmt.map_or_else(Default::default, |stmt| (stmt.reads(), stmt.writes()));
        let before = std::mem::replace(&mut self.of[at], now);
        let now = &self.of[at];
        for (lists, before, now) in
            [(&mut self.readers, &before.0, &now.0), (&mut self.writers, &before.1, &now.1)]
        {
            before.iter().for_each(|buf| lists[buf.index()].retain(|&user| user != at));
            for buf in now {
                lists.resize_with(lists.len().max(buf.index() + 1), Vec::new);
                let list = &mut lists[buf.index()];
                list.insert(list.partition_point(|&user| user < at), at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Loops {
        let text = "
            loops @f on cpu {
              buf x: f32[4] = input
              buf a: f32[4]
              buf b: f32[4]
              nest n0 [i in 4] { %0: f32 = load x[i] store a[i] = %0 }
              nest n1 [i in 4] { %0: f32 = load a[i] store b[i] = %0 }
              nest n2 [i in 4] { %0: f32 = load a[i] %1: f32 = load b[i] %2: f32 = add %0, %1 store b[i] = %2 }
              return b
            }";
        litz_ir::text::loops::parse(text).expect("valid")
    }

    fn buf(loops: &Loops, name: &str) -> Buf {
        loops.bufs.iter().find(|(_, data)| data.name == name).expect("there").0
    }

    #[test]
    fn statements_are_listed_in_order() {
        let loops = program();
        let uses = Uses::of(&loops);
        let [x, a, b] = ["x", "a", "b"].map(|name| buf(&loops, name));
        assert_eq!((uses.readers(x), uses.writers(x)), (&[0][..], &[][..]));
        assert_eq!((uses.readers(a), uses.writers(a)), (&[1, 2][..], &[0][..]));
        assert_eq!((uses.readers(b), uses.writers(b)), (&[2][..], &[1, 2][..]));
        assert_eq!((uses.reads_of(2), uses.writes_of(2)), (&[a, b][..], &[b][..]));
    }

    #[test]
    fn a_changed_statement_is_listed_under_what_it_uses_now() {
        let loops = program();
        let mut uses = Uses::of(&loops);
        let [x, a, b] = ["x", "a", "b"].map(|name| buf(&loops, name));
        uses.update(1, Some(&loops.stmts[0]));
        assert_eq!((uses.readers(x), uses.readers(a)), (&[0, 1][..], &[2][..]));
        assert_eq!((uses.writers(a), uses.writers(b)), (&[0, 1][..], &[2][..]));
        uses.update(2, None);
        assert!(uses.readers(a).is_empty() && uses.writers(b).is_empty() && uses.reads_of(2).is_empty());
    }

    #[test]
    fn later_buffers_are_taken_in() {
        let mut loops = program();
        let mut uses = Uses::of(&loops);
        let late = loops.bufs.push(loops.bufs[buf(&loops, "a")].clone());
        assert!(uses.readers(late).is_empty());
        let Stmt::Nest(mut nest) = loops.stmts[0].clone() else { unreachable!("n0 is a nest") };
        nest.body[1].op = litz_ir::loops::InstOp::Store {
            buf: late,
            index: vec![litz_sym::Expr::zero()],
            value: litz_ir::loops::Val(0),
            combine: None,
        };
        uses.update(0, Some(&Stmt::Nest(nest)));
        assert_eq!(uses.writers(late), [0]);
    }
}
