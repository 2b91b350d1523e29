//! Runs what threads do with memory that each has of its own, and the instructions of warps on it.

use litz_ir::Dtype;
use litz_ir::target::{Gpu, Side};

use super::code::Lanes;
use super::elements::Side as ElementSide;
use super::fragments::{LoadOfFragment, OperandRows, OwnFragment, ProductOfFragments, ProductOperand};
use super::races::Touch;
use super::run::{Fault, Machine};
use super::threads::{BLOCK, ThreadRange};
use crate::number::{Bits, cast};

impl Machine<'_, '_> {
    /// Where the memory of a thread begins, counted in memories.
    fn slot(&self, thread: u32) -> usize {
        let [thread, own] = [thread, self.state.here.own.first].map(|at| at as usize);
        let (at, block) = (thread - own, BLOCK as usize);
        at / block * self.state.threads + at % block
    }

    /// The threads that run what is next, of those that there are.
    fn present(&self) -> Vec<u32> {
        let (here, threads) = (self.state.here.current(), self.state.threads as u32);
        let mut present = Vec::new();
        for block in here.blocks(self.state.blocks) {
            let all = ThreadRange::of_block(block);
            let range = here.meet(ThreadRange { first: all.first, end: all.first + threads });
            present.extend(range.first..range.end);
        }
        present
    }

    fn own_place(&self, mem: usize, index: i64, thread: u32) -> Result<(usize, usize), Fault> {
        let extent = self.state.extents[mem];
        let size = self.code.mems[mem].dtype.size();
        match usize::try_from(index) {
            Ok(at) if at < extent => Ok(((self.slot(thread) * extent + at) * size, size)),
            _ => Err(Fault::OutOfRange { mem, index, extent }),
        }
    }

    fn load_of(&self, mem: usize, index: i64, thread: u32) -> Result<Bits, Fault> {
        let (at, size) = self.own_place(mem, index, thread)?;
        Ok(self.read_at(mem, at, size))
    }

    fn store_of(&mut self, mem: usize, index: i64, thread: u32, bits: Bits) -> Result<(), Fault> {
        let (at, size) = self.own_place(mem, index, thread)?;
        self.write_at(mem, at, size, bits);
        Ok(())
    }

    /// What the threads around have at an index, each its own.
    ///
    /// # Errors
    /// Where they have different elements: it is not one value.
    pub(super) fn load_own(&self, mem: usize, index: i64) -> Result<Bits, Fault> {
        self.is_done(mem)?;
        let mut all = self.present().into_iter().map(|thread| self.load_of(mem, index, thread));
        let first = all.next().unwrap_or(Err(Fault::NoValue))?;
        for other in all {
            if other? != first {
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                return Err(Fault::Threads { mem, index, accesses: Box::new([None, None]) });
            }
        }
        Ok(first)
    }

    /// Each of the threads around stores to its own element.
    pub(super) fn store_own(&mut self, mem: usize, index: i64, bits: Bits) -> Result<(), Fault> {
        self.is_done(mem)?;
        self.present().into_iter().try_for_each(|thread| self.store_of(mem, index, thread, bits))
    }

    /// The threads that run an instruction together, so many.
    fn team(&self, threads: usize) -> Result<Vec<u32>, Fault> {
        let range = self.state.here.current();
        if (range.end - range.first) as usize == threads {
            Ok((range.first..range.end).collect())
        } else {
            Err(Fault::NoValue)
        }
    }

    pub(super) fn load_fragment(&mut self, load: &LoadOfFragment) -> Result<(), Fault> {
        let LoadOfFragment { into, rows } = load;
        let to = self.index(&into.first)?;
        let warp = self.team(into.pieces.len())?;
        for (thread, pieces) in warp.into_iter().zip(&into.pieces) {
            for &(at, place) in pieces {
                let (index, [own_row, beside]) = self.element_of(rows, at)?;
                // Rows of 16 bytes are served eight at a time.
                let at = if rows.side == Side::Left { [own_row, 0, beside] } else { [0, own_row, beside] };
                let bits = self.load_for(rows.mem, index, at)?;
                self.store_of(into.mem, to + place, thread, bits)?;
            }
        }
        Ok(())
    }

    /// Where the element of an operand's row or column and reduced point is, and in which of the rows that lie side by side it is at what place.
    fn element_of(
        &mut self,
        rows: &OperandRows,
        [across, point]: [i64; 2],
    ) -> Result<(i64, [i64; 2]), Fault> {
        let [row, beside] = if rows.is_transposed { [point, across] } else { [across, point] };
        self.state.symbols[rows.row] = row;
        let place = rows.panels.map_or(beside, |[columns, step]| beside / columns * step + beside % columns);
        Ok((self.index(&rows.first)? + place, [row, beside]))
    }

    /// An element that an instruction of the warp loads for a row and a reduced point.
    fn load_for(&mut self, mem: usize, index: i64, at: [i64; 3]) -> Result<Bits, Fault> {
        for (side, at) in at.into_iter().enumerate() {
            self.state.here.place(side, Some(at));
        }
        let bits = self.load_as(Touch::Exchange, mem, index);
        (0..3).for_each(|side| self.state.here.place(side, None));
        bits
    }

    pub(super) fn multiply_fragments(&mut self, product: &ProductOfFragments) -> Result<(), Fault> {
        let ProductOfFragments { sum, left, right, shape, multiply, add, is_in_background } = product;
        let [rows, columns, depth] = shape;
        let team = self.team(sum.pieces.len())?;
        let a = self.operand_matrix(left, &team, [*rows, *depth], sum.dtype)?;
        let b = self.operand_matrix(right, &team, [*columns, *depth], sum.dtype)?;
        let mut sums = self.fragment_matrix(sum, &team, [*rows, *columns], sum.dtype)?;
        if *is_in_background {
            self.begin_product(product)?;
        }
        for (at, total) in sums.iter_mut().enumerate() {
            let (row, column) = (at as i64 / columns, at as i64 % columns);
            for k in 0..*depth {
                let term = multiply(a[(row * depth + k) as usize], b[(column * depth + k) as usize], 0);
                *total = add(*total, term, 0);
            }
        }
        let first = self.index(&sum.first)?;
        for (&thread, pieces) in team.iter().zip(&sum.pieces) {
            for &([row, column], place) in pieces {
                self.store_of(sum.mem, first + place, thread, sums[(row * columns + column) as usize])?;
            }
        }
        Ok(())
    }

    /// What the threads of a team have of a matrix of so many rows and columns.
    fn fragment_matrix(
        &self,
        own: &OwnFragment,
        team: &[u32],
        [height, width]: [i64; 2],
        dtype: Dtype,
    ) -> Result<Vec<Bits>, Fault> {
        let mut matrix = vec![0; (height * width) as usize];
        let first = self.index(&own.first)?;
        for (&thread, pieces) in team.iter().zip(&own.pieces) {
            for &([row, column], place) in pieces {
                let bits = self.load_of(own.mem, first + place, thread)?;
                matrix[(row * width + column) as usize] = cast(own.dtype, dtype, bits);
            }
        }
        Ok(matrix)
    }

    fn operand_matrix(
        &mut self,
        operand: &ProductOperand,
        team: &[u32],
        [height, width]: [i64; 2],
        dtype: Dtype,
    ) -> Result<Vec<Bits>, Fault> {
        let rows = match operand {
            ProductOperand::Own(own) => return self.fragment_matrix(own, team, [height, width], dtype),
            ProductOperand::Rows(rows) => rows,
        };
        let mut matrix = Vec::with_capacity((height * width) as usize);
        for at in 0..height * width {
            let (index, _) = self.element_of(rows, [at / width, at % width])?;
            let bits = self.load_as(Touch::Exchange, rows.mem, index)?;
            matrix.push(cast(rows.dtype, dtype, bits));
        }
        Ok(matrix)
    }

    /// A product begins that goes on in the background: its operands are read, and its sums stored, at any time until it is waited for.
    fn begin_product(&mut self, product: &ProductOfFragments) -> Result<(), Fault> {
        let [rows, columns, depth] = product.shape;
        self.state.transfers.products.begin(product.sum.mem);
        for (operand, height) in [(&product.left, rows), (&product.right, columns)] {
            match operand {
                ProductOperand::Own(own) => self.state.transfers.products.begin(own.mem),
                ProductOperand::Rows(rows) => {
                    for at in 0..height * depth {
                        let (index, _) = self.element_of(rows, [at / depth, at % depth])?;
                        self.mark(rows.mem, index, |element| element.begin(ElementSide::From));
                        self.state.transfers.products.read((rows.mem, index));
                    }
                }
            }
        }
        Ok(())
    }

    /// All products that the unit has begun are done, but for so many of the newest groups.
    pub(super) fn end_products(&mut self, newest: u32) {
        for (mem, index) in self.state.transfers.products.wait(newest) {
            self.mark(mem, index, |element| element.end(ElementSide::From));
        }
    }

    /// Checks that no product is under way that touches what threads have of their own.
    fn is_done(&self, mem: usize) -> Result<(), Fault> {
        if self.state.transfers.products.touch(mem) { Err(Fault::Products(Some(mem))) } else { Ok(()) }
    }

    /// Combines what neighbouring lanes have, each in an element of its own, and gives each of them the result; the first one alone stores
    /// to what others see.
    pub(super) fn own_lanes(&mut self, reduction: &Lanes) -> Result<(), Fault> {
        let Lanes { into, from, positions, .. } = reduction;
        let (at, first) = (self.position(into)?, self.position(from)?);
        let is_own = self.code.mems[into.mem].is_own();
        for lanes in self.present().chunks(reduction.lanes) {
            let mut parts = Vec::new();
            for &lane in lanes {
                let position = positions.map(|[_, places]| self.load_of(places, first, lane)).transpose()?;
                parts.push((self.load_of(from.mem, first, lane)?, position.unwrap_or(0) as i64));
            }
            let total = reduction.total(&parts);
            for &lane in lanes {
                let here = if is_own { Some(lane) } else { None };
                self.combine_lane(reduction, at, here, total)?;
                if !is_own {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn combine_lane(
        &mut self,
        reduction: &Lanes,
        index: i64,
        lane: Option<u32>,
        total: (Bits, i64),
    ) -> Result<(), Fault> {
        let Lanes { into, positions, ty, .. } = reduction;
        let at = positions.map(|[at, _]| at);
        let mut load = |mem: usize| match lane {
            Some(lane) => self.load_of(mem, index, lane),
            None => self.load_as(Touch::Fetch, mem, index),
        };
        let old = cast(into.dtype, *ty, load(into.mem)?);
        let old_position = at.map(&mut load).transpose()?.unwrap_or(0) as i64;
        let (value, position) = reduction.combined((old, old_position), total);
        let mut store = |mem: usize, bits: Bits| match lane {
            Some(lane) => self.store_of(mem, index, lane, bits),
            None => self.store(mem, index, bits),
        };
        store(into.mem, cast(*ty, into.dtype, value))?;
        at.map_or(Ok(()), |at| store(at, Bits::from(position as u64)))
    }

    /// Threads and blocks that a point has memory for.
    pub(super) fn make_own(&mut self, threads: u32, blocks: usize) -> Result<(), Fault> {
        let threads = threads.next_multiple_of(Gpu::LANES) as usize;
        (self.state.threads, self.state.blocks) = (threads, blocks.max(1));
        let count = threads.checked_mul(self.state.blocks).ok_or(Fault::NoValue)?;
        for (at, mem) in self.code.mems.iter().enumerate().filter(|(_, mem)| mem.is_own()) {
            let bytes = self.state.extents[at].checked_mul(mem.dtype.size());
            let bytes = bytes.and_then(|bytes| bytes.checked_mul(count)).ok_or(Fault::NoValue)?;
            let local = &mut self.state.locals[at - self.code.params];
            local.clear();
            local.resize(bytes, 0xff);
        }
        Ok(())
    }
}
