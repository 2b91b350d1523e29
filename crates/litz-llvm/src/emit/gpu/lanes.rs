//! Combines what the lanes of a warp have, in the order that a kernel prescribes.

use super::super::block::Value;
use super::super::ty::{Prim, Ty};
use super::super::{EmitError, Emitter};
use super::levels::Thread;

impl Emitter<'_> {
    /// What the lane has whose number differs in these bits, of a value in registers.
    fn of_other_lane(&mut self, value: &Value, bits: u32, mask: &Value) -> Value {
        let (prim, int) = (value.ty.prim, Prim::I32);
        match prim.bits() {
            64 => {
                let whole = self.b.convert("bitcast", value, Prim::I64);
                let halves = self.b.reinterpret(&whole, Ty { prim: int, lanes: 2 });
                let [low, high] = [0, 1].map(|at| {
                    let half = self.b.extract(&halves, at);
                    self.exchanged(&half, bits, mask)
                });
                let both = self.b.poison(Ty { prim: int, lanes: 2 });
                let both = self.b.insert(&both, 0, &low);
                let both = self.b.insert(&both, 1, &high);
                let whole = self.b.reinterpret(&both, Ty::I64);
                self.b.convert("bitcast", &whole, prim)
            }
            32 => {
                let word = self.b.convert("bitcast", value, int);
                let word = self.exchanged(&word, bits, mask);
                self.b.convert("bitcast", &word, prim)
            }
            _ => {
                let word = self.b.convert("zext", value, int);
                let word = self.exchanged(&word, bits, mask);
                self.b.convert("trunc", &word, prim)
            }
        }
    }

    fn exchanged(&mut self, word: &Value, bits: u32, mask: &Value) -> Value {
        let text = format!(
            "call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 {}, i32 {}, i32 {bits}, i32 31)",
            mask.text, word.text
        );
        self.b.impure(word.ty, &[mask, word], &text)
    }

    /// The lanes that exchange what they have, a bit each: so many neighbours where others may be elsewhere.
    fn group_mask(&mut self, lanes: u32) -> Value {
        if lanes >= 32 || self.thread.as_ref().is_some_and(Thread::has_all_lanes) {
            return self.b.int(Prim::I32, -1);
        }
        let lane = self.lane();
        let first = self.b.int(Prim::I32, -i64::from(lanes));
        let first = self.b.binary("and", &lane, &first);
        let all = self.b.int(Prim::I32, (1 << lanes) - 1);
        self.b.binary("shl", &all, &first)
    }

    /// Combines halves of so many neighbouring lanes until each has the result. Of values with positions the lower half is the first operand,
    /// so that all of them compute the same.
    pub(in super::super) fn across_threads<const N: usize>(
        &mut self,
        lanes: u32,
        mut own: [Value; N],
        combine: &mut dyn FnMut(&mut Self, &[Value; N], &[Value; N]) -> Result<[Value; N], EmitError>,
    ) -> Result<[Value; N], EmitError> {
        let mask = self.group_mask(lanes);
        let mut half = lanes / 2;
        while half > 0 {
            let other = own.clone().map(|value| self.of_other_lane(&value, half, &mask));
            // One value is combined with another in either order.
            if N == 1 {
                own = combine(self, &own, &other)?;
                half /= 2;
                continue;
            }
            let lane = self.lane();
            let bit = self.b.int(Prim::I32, i64::from(half));
            let bit = self.b.binary("and", &lane, &bit);
            let zero = self.b.int(Prim::I32, 0);
            let is_high = self.b.compare("icmp ne", &bit, &zero);
            let mut low = own.clone();
            let mut high = other.clone();
            for at in 0..N {
                low[at] = self.b.select(&is_high, &other[at], &own[at]);
                high[at] = self.b.select(&is_high, &own[at], &other[at]);
            }
            own = combine(self, &low, &high)?;
            half /= 2;
        }
        Ok(own)
    }
}
