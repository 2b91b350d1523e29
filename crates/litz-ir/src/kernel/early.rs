//! Says what a kernel does before the kernels in front of it have ended.

use super::{Act, Kernel, MemorySpace, Stmt, Sync, visit};

impl Kernel {
    /// Whether it waits for the kernels in front of it behind some of its statements, and not before all of them.
    pub fn waits_late(&self) -> bool {
        let mut waits = false;
        visit(&self.body, &mut |stmt| waits |= matches!(stmt, Stmt::Act(Act::Sync(Sync::Kernels))));
        waits
    }

    /// What a statement touches that kernels in front may be storing to, or that others count in, in words: nothing where it may run ahead of
    /// `wait kernels`.
    pub fn touched_early(&self, stmt: &Stmt) -> Option<String> {
        let mut accesses = stmt.accesses();
        let is_of_others = |space| match space {
            MemorySpace::Read | MemorySpace::Write | MemorySpace::Update | MemorySpace::Global => true,
            MemorySpace::Constant
            | MemorySpace::Number
            | MemorySpace::Register
            | MemorySpace::Scratch
            | MemorySpace::Own
            | MemorySpace::Shared
            | MemorySpace::Cluster => false,
        };
        if let Some((mem, _)) = accesses.find(|(mem, _)| is_of_others(self.mems[*mem].space)) {
            return Some(format!("`{}` is touched", self.mems[mem].name));
        }
        match stmt {
            Stmt::Act(Act::Bind { sym, .. }) => Some(format!("`{sym}` is checked")),
            Stmt::Act(Act::Sync(sync @ (Sync::Cluster | Sync::Elect | Sync::Await | Sync::Pass))) => {
                Some(format!("`{sync}` is"))
            }
            Stmt::Act(_) | Stmt::Loop(_) | Stmt::If { .. } => None,
        }
    }

    /// What a kernel that waits late does too early, in words, if anything: touches what others may be storing to before it has waited, or waits on some
    /// ways alone.
    pub fn accesses_early(&self) -> Option<String> {
        if !self.waits_late() {
            return None;
        }
        let mut has_waited = false;
        let early = self.early_in(&self.body, &mut has_waited);
        early.or_else(|| (!has_waited).then(|| "the end of the kernel is".to_owned()))
    }

    /// The first access of statements ahead of a wait, and whether all ways through them have waited.
    fn early_in(&self, stmts: &[Stmt], has_waited: &mut bool) -> Option<String> {
        for stmt in stmts {
            if *has_waited {
                return None;
            }
            match stmt {
                Stmt::If { then, other, .. } => {
                    let mut waited = [false; 2];
                    let early = self.early_in(then, &mut waited[0]);
                    let early = early.or_else(|| self.early_in(other, &mut waited[1]));
                    if early.is_some() {
                        return early;
                    }
                    *has_waited = waited == [true; 2];
                }
                // What waits is in no loop.
                Stmt::Loop(inner) => {
                    let mut early = None;
                    visit(&inner.body, &mut |stmt| {
                        early = early.take().or_else(|| self.touched_early(stmt));
                    });
                    if early.is_some() {
                        return early;
                    }
                }
                Stmt::Act(Act::Sync(Sync::Kernels)) => *has_waited = true,
                Stmt::Act(_) => {
                    let early = self.touched_early(stmt);
                    if early.is_some() {
                        return early;
                    }
                }
            }
        }
        None
    }
}
