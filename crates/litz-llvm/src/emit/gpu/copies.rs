//! Prints copies to shared memory that go on in the background.

use litz_ir::kernel::{Element, position};

use super::super::block::Value;
use super::super::index::Condition;
use super::super::ty::Prim;
use super::super::{EmitError, Emitter};

impl Emitter<'_> {
    /// An address in shared memory, as instructions take it that know no other.
    pub(super) fn shared(&mut self, address: &Value) -> Value {
        self.b.pure(address.ty, &[address], format!("addrspacecast ptr {} to ptr addrspace(3)", address.text))
    }

    fn global(&mut self, address: &Value) -> Value {
        self.b.pure(address.ty, &[address], format!("addrspacecast ptr {} to ptr addrspace(1)", address.text))
    }

    /// Begins a copy of so many adjacent elements. Where the guards of what is read fail, zeros are stored.
    pub(in super::super) fn copy_in_background(
        &mut self,
        count: u32,
        from: &Element,
        to: &Element,
    ) -> Result<(), EmitError> {
        self.here()?;
        let bytes = self.mems[from.mem].dtype.size() as i64 * i64::from(count);
        if !matches!(bytes, 4 | 8 | 16) {
            // There is no instruction for so few. Done at once it is done in time, too.
            return self.copy_of_thread(count, from, to);
        }
        let stores = match self.condition(&to.guard)? {
            Condition::Never => return Ok(()),
            Condition::Always => None,
            Condition::When(condition) => Some(condition),
        };
        let stores = self.storing_where(to.mem, stores);
        let count = i64::from(count);
        let [source, target] = [from, to].map(|element| self.resolve(position(&element.index) * count));
        let mut source = self.address(from.mem, source)?;
        let target = self.address(to.mem, target)?;
        let whole = self.b.int(Prim::I32, bytes);
        let size = match self.condition(&from.guard)? {
            Condition::Always => whole,
            Condition::Never => self.b.int(Prim::I32, 0),
            Condition::When(condition) => {
                let start = self.mems[from.mem].base.clone();
                source = self.b.select(&condition, &source, &start);
                let none = self.b.int(Prim::I32, 0);
                self.b.select(&condition, &whole, &none)
            }
        };
        // Copies of 16 bytes may leave out the cache of the unit, which keeps it for what is read again.
        let cache = if bytes == 16 { "cg" } else { "ca" };
        let (from, to) = (self.global(&source), self.shared(&target));
        let text = format!(
            "call void @llvm.nvvm.cp.async.{cache}.shared.global.{bytes}.s(ptr addrspace(3) {}, ptr addrspace(1) {}, i32 {})",
            to.text, from.text, size.text
        );
        self.when(stores, &mut |cx| {
            cx.b.effect(&[&to, &from, &size], &text);
            Ok(())
        })
    }
}
