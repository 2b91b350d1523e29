//! Calls functions of `litz.h` in any order, with pointers that are right or null and all else arbitrary: each call succeeds or says why not, and the
//! models stay sound.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use litz::Tensor;
use litz_capi::{
    CTensor, CType, CValue, Kind, Memory, Model, Outputs, Status, Update, litz_last_error, litz_model_close,
    litz_model_constant, litz_model_constant_count, litz_model_input, litz_model_input_count,
    litz_model_open_bytes, litz_model_output, litz_model_output_count, litz_model_read_constant,
    litz_model_run, litz_model_run_into, litz_model_share, litz_outputs_count, litz_outputs_dlpack,
    litz_outputs_dlpack_versioned, litz_outputs_free, litz_outputs_get, litz_tensor_of_dlpack,
    litz_tensor_of_dlpack_versioned, litz_update_fold, litz_update_free, litz_update_new, litz_update_set,
    litz_update_swap,
};
use litz_ir::text::graph::parse;
use litz_runtime::dlpack::{Managed, ManagedVersioned};

use crate::choices::Choices;
use crate::fuzz::saved;

/// Products by two constants that can be updated, and their difference.
const PAIR: &str = "graph @pair on cpu {
  sym s0 in [0, 64]
  %x: f32[s0, 32] = input
  %a: f32[32, 32] = const \"a\"
  %b: f32[32, 32] = const \"b\"
  %p: f32[s0, 32] = aten.mm.default(%x, %a)
  %q: f32[s0, 32] = aten.mm.default(%x, %b)
  %d: f32[s0, 32] = aten.sub.Tensor(%p, %q, 1)
  return %p, %d
}";

/// A result of each kind, one of a size that data decides.
const KINDS: &str = "graph @kinds on cpu {
  sym u0 in [0, 4]
  sym u1 in [0, 100]
  %x: i64[4] = input
  %p: i64[u0, 1]{1, u0} = aten.nonzero.default(%x)
  %m: i64[] = aten.max.default(%x)
  %n: int(u1) = aten.item.default(%m)
  return %p, %n, \"a text\", 2.5, true, none
}";

/// Adds to a state, and updates its input.
const COUNTER: &str = "graph @counter on cpu {
  %x: f32[4] = input
  %w: f32[4] = const \"w\"
  %total: f32[4] = const \"total\"
  %y: f32[4] = aten.add.Tensor(%x, %w, 1)
  %next: f32[4] = aten.add.Tensor(%total, %w, 1)
  update %x = %y
  update %total = %next
  return %next
}";

/// Saved programs of these.
fn files() -> &'static [Vec<u8>; 3] {
    static MADE: OnceLock<[Vec<u8>; 3]> = OnceLock::new();
    MADE.get_or_init(|| {
        [PAIR, KINDS, COUNTER].map(|text| {
            let graph = parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]));
            let half = |sizes: &[usize]| {
                Tensor::from_slice(sizes, &vec![0.5f32; sizes.iter().product()]).expect("lengths match")
            };
            let weights = [("a", &[32, 32][..]), ("b", &[32, 32]), ("w", &[4]), ("total", &[4])]
                .map(|(name, sizes)| (name.to_owned(), half(sizes)));
            let model =
                litz::Model::from_graph(graph, weights.into()).unwrap_or_else(|error| panic!("{error}"));
            saved::saved(&model)
        })
    })
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Run,
    RunInto,
    Get,
    Set,
    Swap,
    Fold,
    Read,
    Describe,
    Open,
    Share,
    Close,
    Begin,
    EndUpdate,
    EndOutputs,
    Export,
    EndExport,
}

const ACTS: [Act; 16] = [
    Act::Run,
    Act::RunInto,
    Act::Get,
    Act::Set,
    Act::Swap,
    Act::Fold,
    Act::Read,
    Act::Describe,
    Act::Open,
    Act::Share,
    Act::Close,
    Act::Begin,
    Act::EndUpdate,
    Act::EndOutputs,
    Act::Export,
    Act::EndExport,
];

/// Bytes that any tensor may reach.
const BYTES: usize = 1 << 17;

/// Alive at a time, of each kind of handle.
const MOST: usize = 3;

#[repr(align(64))]
struct Room([u8; BYTES]);

/// Sizes and strides of one tensor, for as many dimensions as are looked at.
struct Dims {
    sizes: [i64; 64],
    strides: [i64; 64],
}

/// A tensor of DLPack's that has to be ended.
enum Exported {
    Plain(*mut Managed),
    Versioned(*mut ManagedVersioned),
}

/// All that was opened and not yet released.
struct Session {
    /// With the place of its file.
    models: Vec<(*mut Model, usize)>,
    updates: Vec<*mut Update>,
    outputs: Vec<*mut Outputs>,
    exported: Vec<Exported>,
    rooms: Box<[Room; 2]>,
}

/// The bytes decide what is called, and with what.
pub fn any_calls(bytes: &[u8]) {
    succeeded(bytes);
}

/// As [`any_calls`]: how often each act succeeded.
fn succeeded(bytes: &[u8]) -> [u32; ACTS.len()] {
    let mut choices = Choices::new(bytes);
    let mut counts = [0; ACTS.len()];
    let mut session = Session {
        models: Vec::new(),
        updates: Vec::new(),
        outputs: Vec::new(),
        exported: Vec::new(),
        rooms: Box::new([Room([0; BYTES]), Room([0; BYTES])]),
    };
    session.open(&mut choices);
    while !choices.is_exhausted() {
        let at = choices.below(ACTS.len());
        // 0.75 or so: what calls left there would grow without end.
        session.rooms[0].0.fill(0x3f);
        counts[at] += u32::from(session.step(&mut choices, ACTS[at]));
    }
    session.models.iter().filter(|(_, file)| *file == 0).for_each(|&(model, _)| expect_zeros(model));
    counts
}

/// The first of them in four of five cases.
fn mostly<T: Copy>(choices: &mut Choices<'_>, all: &[T]) -> T {
    if choices.once_in(5) { choices.pick(all) } else { all[0] }
}

/// Whether it succeeded; where not, it says why.
#[track_caller]
fn is_ok(status: Status) -> bool {
    // SAFETY: the message stays until this thread's next error.
    let message = unsafe { CStr::from_ptr(litz_last_error()) };
    assert_ne!(status, Status::Bug, "{message:?}");
    assert!(status == Status::Ok || !message.is_empty());
    status == Status::Ok
}

/// One of several handles, or null.
fn one<T>(choices: &mut Choices<'_>, all: &[*mut T]) -> *mut T {
    if all.is_empty() || choices.once_in(16) { ptr::null_mut() } else { choices.pick(all) }
}

impl Session {
    fn model(&self, choices: &mut Choices<'_>) -> *mut Model {
        let models: Vec<*mut Model> = self.models.iter().map(|(model, _)| *model).collect();
        one(choices, &models)
    }

    fn step(&mut self, choices: &mut Choices<'_>, act: Act) -> bool {
        match act {
            Act::Open => self.open(choices),
            Act::Share => self.share(choices),
            Act::Close => self.close(choices),
            Act::Run | Act::RunInto => self.run(choices, act),
            Act::Get => self.get(choices),
            Act::EndOutputs => {
                let outputs = self.outputs.pop();
                // SAFETY: null, or results that nothing else refers to.
                unsafe { litz_outputs_free(outputs.unwrap_or(ptr::null_mut())) };
                outputs.is_some()
            }
            Act::Begin => self.begin(choices),
            Act::Set => self.set(choices),
            Act::Swap | Act::Fold => {
                let update = one(choices, &self.updates);
                // SAFETY: null, or an update.
                is_ok(unsafe {
                    if act == Act::Swap { litz_update_swap(update) } else { litz_update_fold(update) }
                })
            }
            Act::EndUpdate => {
                let update = self.updates.pop();
                // SAFETY: null, or an update that nothing else refers to.
                unsafe { litz_update_free(update.unwrap_or(ptr::null_mut())) };
                update.is_some()
            }
            Act::Read => self.read(choices),
            Act::Describe => self.describe(choices),
            Act::Export => self.export(choices),
            Act::EndExport => self.exported.pop().is_some_and(|exported| {
                end(exported);
                true
            }),
        }
    }

    fn open(&mut self, choices: &mut Choices<'_>) -> bool {
        if self.models.len() == MOST {
            return false;
        }
        let file = choices.below(3);
        let mut bytes = files()[file].clone();
        match mostly(choices, &[0, 1, 2, 3]) {
            1 => bytes.truncate(choices.below(256) * 16),
            // A text or a checksum: what is behind them is code, which is trusted.
            2 => bytes[choices.below(256)] ^= 1 << choices.below(8),
            3 => bytes = (0..choices.below(64)).map(|_| choices.below(256) as u8).collect(),
            _ => {}
        }
        let mut options = String::from("threads=2\nbind=false\n");
        if choices.once_in(4) {
            options += choices.pick(&[
                "threads=1",
                "threads=3",
                "threads=0",
                "threads=99999999999999999999",
                "bind=maybe",
                "call_bytes=100",
                "iterations=-1",
                "launch_together=8",
                "memory_pool=none",
                "target=cpu(",
                "model=",
                "=",
                "a",
                "verify = true",
            ]);
        }
        let options = CString::new(options).expect("options have no zeros");
        let mut model = ptr::null_mut();
        let (place, text): (*mut *mut Model, *const c_char) = (&mut model, options.as_ptr());
        let place = mostly(choices, &[place, place, place, ptr::null_mut()]);
        let text = mostly(choices, &[text, text, ptr::null()]);
        // SAFETY: there are so many bytes, and texts end with a zero.
        let status =
            unsafe { litz_model_open_bytes(bytes.as_ptr().cast(), bytes.len(), text, ptr::null(), place) };
        let is_open = is_ok(status);
        if is_open {
            self.models.push((model, file));
        }
        is_open
    }

    fn share(&mut self, choices: &mut Choices<'_>) -> bool {
        if self.models.len() == MOST {
            return false;
        }
        let at = choices.below(self.models.len().max(1));
        let (model, file) = self.models.get(at).copied().unwrap_or((ptr::null_mut(), 0));
        let threads = choices.pick(&[2, 0, 1, 3, usize::MAX]);
        let mut shared = ptr::null_mut();
        // SAFETY: null, or a model.
        let is_shared = is_ok(unsafe { litz_model_share(model, threads, &mut shared) });
        if is_shared {
            self.models.push((shared, file));
        }
        is_shared
    }

    fn close(&mut self, choices: &mut Choices<'_>) -> bool {
        if self.models.is_empty() {
            return false;
        }
        let (model, _) = self.models.swap_remove(choices.below(self.models.len()));
        // SAFETY: nobody uses it; its updates may outlive it.
        unsafe { litz_model_close(model) };
        true
    }

    fn begin(&mut self, choices: &mut Choices<'_>) -> bool {
        if self.updates.len() == MOST {
            return false;
        }
        let (model, mut update) = (self.model(choices), ptr::null_mut());
        // SAFETY: null, or a model.
        let is_begun = is_ok(unsafe { litz_update_new(model, &mut update) });
        if is_begun {
            self.updates.push(update);
        }
        is_begun
    }

    fn run(&mut self, choices: &mut Choices<'_>, act: Act) -> bool {
        let model = self.model(choices);
        let mut dims = Dims { sizes: [0; 64], strides: [0; 64] };
        let like = described(litz_model_input, model, 0);
        let [first, second] = &mut *self.rooms;
        let input = tensor(choices, first, &mut dims, like.as_ref());
        let count = mostly(choices, &[1, 0, 2, usize::MAX]);
        let mut outputs =
            if choices.once_in(2) { self.outputs.pop() } else { None }.unwrap_or(ptr::null_mut());
        let place: *mut *mut Outputs = &mut outputs;
        let place = mostly(choices, &[place, place, place, ptr::null_mut()]);
        // SAFETY: the input reaches no further than its memory; a count that is none of the model's is refused before anything is read.
        let status = unsafe {
            if act == Act::Run {
                litz_model_run(model, &input, count, place)
            } else {
                let mut memory = || {
                    // In the memory of the input, too, and within each other.
                    let room = if choices.once_in(4) { &mut *first } else { &mut *second };
                    let (offset, bytes) =
                        (choices.pick(&[0, 64, 4, 8192]), choices.pick(&[8192, 0, 384, 383]));
                    let data: *mut c_void = room.0[offset..].as_mut_ptr().cast();
                    Memory { data: mostly(choices, &[data, ptr::null_mut()]), bytes }
                };
                let memories: [Memory; 8] = std::array::from_fn(|_| memory());
                let wanted = litz_model_output_count(model);
                let count = mostly(choices, &[wanted, 0, 1, usize::MAX]);
                litz_model_run_into(model, &input, 1, memories.as_ptr(), count, place)
            }
        };
        if !outputs.is_null() {
            self.outputs.push(outputs);
        }
        while self.outputs.len() > MOST {
            // SAFETY: nothing else refers to them.
            unsafe { litz_outputs_free(self.outputs.remove(0)) };
        }
        is_ok(status)
    }

    fn get(&self, choices: &mut Choices<'_>) -> bool {
        let outputs = one(choices, &self.outputs);
        let index = mostly(choices, &[choices_of(outputs), 0, 1, 2, 5, usize::MAX]);
        let mut value = MaybeUninit::<CValue>::uninit();
        // SAFETY: null, or results.
        let (status, count) =
            unsafe { (litz_outputs_get(outputs, index, value.as_mut_ptr()), litz_outputs_count(outputs)) };
        if !is_ok(status) {
            return false;
        }
        assert!(index < count);
        // SAFETY: it was written, and what it points to is there; results in memory of ours stay there, as `rooms` does.
        unsafe {
            let value = value.assume_init();
            match value.kind {
                Kind::Tensor => assert!((0..=64).contains(&value.of.tensor.rank)),
                Kind::Text => assert!(!CStr::from_ptr(value.of.text).is_empty()),
                Kind::Int | Kind::Float | Kind::Bool | Kind::None => {}
            }
        }
        true
    }

    fn set(&mut self, choices: &mut Choices<'_>) -> bool {
        let update = one(choices, &self.updates);
        let mut dims = Dims { sizes: [0; 64], strides: [0; 64] };
        let models: Vec<*mut Model> = self.models.iter().map(|(model, _)| *model).collect();
        let like = described(litz_model_constant, one(choices, &models), choices.below(2));
        let contents = tensor(choices, &mut self.rooms[0], &mut dims, like.as_ref());
        // SAFETY: null or an update, text that ends with a zero, a tensor that reaches no further than its memory.
        is_ok(unsafe { litz_update_set(update, name(choices, like.as_ref()), &contents) })
    }

    fn read(&mut self, choices: &mut Choices<'_>) -> bool {
        let model = self.model(choices);
        let like = described(litz_model_constant, model, choices.below(2));
        let bytes = choices.pick(&[4096, 16, 0, 4095, usize::MAX]);
        let data: *mut c_void = self.rooms[1].0.as_mut_ptr().cast();
        // SAFETY: no constant is larger than the memory, and other numbers of bytes are refused.
        is_ok(unsafe { litz_model_read_constant(model, name(choices, like.as_ref()), data, bytes) })
    }

    fn describe(&self, choices: &mut Choices<'_>) -> bool {
        let model = self.model(choices);
        let index = mostly(choices, &[0, 1, 2, 7, usize::MAX]);
        type Count = unsafe extern "C" fn(*const Model) -> usize;
        let (count, describe): (Count, Describe) = choices.pick(&[
            (litz_model_input_count as Count, litz_model_input as Describe),
            (litz_model_output_count, litz_model_output),
            (litz_model_constant_count, litz_model_constant),
        ]);
        // SAFETY: null, or a model.
        let count = unsafe { count(model) };
        let found = described(describe, model, index);
        assert_eq!(found.is_some(), index < count);
        let Some(found) = found else { return false };
        // SAFETY: a description has a name, and as many sizes and texts as dimensions, for as long as the model is open.
        unsafe {
            let _ = CStr::from_ptr(found.name).to_bytes();
            for at in 0..found.rank {
                assert!(*found.sizes.add(at) >= -1);
                assert!(!CStr::from_ptr(*found.size_texts.add(at)).is_empty());
            }
        }
        true
    }

    fn export(&mut self, choices: &mut Choices<'_>) -> bool {
        if self.exported.len() == MOST {
            return false;
        }
        let outputs = one(choices, &self.outputs);
        let index = mostly(choices, &[0, 1, 2, usize::MAX]);
        let mut tensor = MaybeUninit::<CTensor>::uninit();
        if choices.once_in(2) {
            let mut managed = ptr::null_mut();
            // SAFETY: null, or results.
            let is_given = is_ok(unsafe { litz_outputs_dlpack(outputs, index, &mut managed) });
            if is_given {
                // SAFETY: it was just given.
                assert!(is_ok(unsafe { litz_tensor_of_dlpack(managed, tensor.as_mut_ptr()) }));
                self.exported.push(Exported::Plain(managed));
            }
            return is_given;
        }
        let mut managed = ptr::null_mut();
        // SAFETY: null, or results.
        let is_given = is_ok(unsafe { litz_outputs_dlpack_versioned(outputs, index, &mut managed) });
        if is_given {
            // SAFETY: it was just given.
            assert!(is_ok(unsafe { litz_tensor_of_dlpack_versioned(managed, tensor.as_mut_ptr()) }));
            self.exported.push(Exported::Versioned(managed));
        }
        is_given
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.exported.drain(..).for_each(end);
        // SAFETY: nothing else refers to them.
        unsafe {
            self.models.drain(..).for_each(|(model, _)| litz_model_close(model));
            self.updates.drain(..).for_each(|update| litz_update_free(update));
            self.outputs.drain(..).for_each(|outputs| litz_outputs_free(outputs));
        }
    }
}

/// Calls the deleter of a tensor.
fn end(exported: Exported) {
    // SAFETY: the library gave it, with a deleter that is called once.
    unsafe {
        match exported {
            Exported::Plain(managed) => ((*managed).deleter.expect("it has one"))(managed),
            Exported::Versioned(managed) => ((*managed).deleter.expect("it has one"))(managed),
        }
    }
}

/// The last of so many results; of none, 0.
fn choices_of(outputs: *mut Outputs) -> usize {
    // SAFETY: null, or results.
    unsafe { litz_outputs_count(outputs) }.saturating_sub(1)
}

/// A function that describes an input, a result or a constant.
type Describe = unsafe extern "C" fn(*const Model, usize, *mut CType) -> Status;

fn described(describe: Describe, model: *const Model, index: usize) -> Option<CType> {
    let mut found = MaybeUninit::<CType>::uninit();
    // SAFETY: null, or a model; what succeeds has written the description.
    unsafe { is_ok(describe(model, index, found.as_mut_ptr())).then(|| found.assume_init()) }
}

/// Mostly the name of the constant that is described, else that of some, or of none, or null.
fn name(choices: &mut Choices<'_>, like: Option<&CType>) -> *const c_char {
    let own = like.map_or(c"a".as_ptr(), |like| like.name);
    let others = [
        own,
        c"a".as_ptr(),
        c"b".as_ptr(),
        c"w".as_ptr(),
        c"total".as_ptr(),
        c"\xff".as_ptr(),
        c"".as_ptr(),
        ptr::null(),
    ];
    mostly(choices, &others)
}

/// A tensor in the memory of a room, more or less like what is described. Where its elements would reach further than the room, and no further than
/// memory may, it has one element.
fn tensor(choices: &mut Choices<'_>, room: &mut Room, dims: &mut Dims, like: Option<&CType>) -> CTensor {
    // SAFETY: a description has as many sizes as dimensions, for as long as the model is open.
    let known = like.map_or(&[][..], |like| unsafe { std::slice::from_raw_parts(like.sizes, like.rank) });
    let rank = mostly(choices, &[known.len() as i32, 0, 1, 2, 3, 64, 65, -1, i32::MAX, i32::MIN]);
    for at in 0..64 {
        let size = match known.get(at) {
            Some(-1) => choices.pick(&[3, 0, 1, 64, 65]),
            Some(&size) => size,
            None => 1,
        };
        let others = [size, -1, 0, 1, 2, 33, 65, 1 << 20, i64::MAX, i64::MIN];
        dims.sizes[at] = if at <= known.len() { mostly(choices, &others) } else { size };
    }
    dims.strides = [1; 64];
    let own = rank.clamp(0, 64) as usize;
    for at in (1..own).rev() {
        dims.strides[at - 1] = dims.strides[at].saturating_mul(dims.sizes[at].max(1));
    }
    if choices.once_in(4) {
        let at = choices.below(own.max(1));
        dims.strides[at] = choices.pick(&[0, 1, 2, 32, 64, 200, -1, i64::MAX, i64::MIN]);
    }
    let reach = |dims: &Dims| {
        let each = dims.sizes[..own].iter().zip(&dims.strides);
        each.map(|(&size, &stride)| i128::from(size.max(1) - 1) * i128::from(stride)).sum::<i128>()
    };
    if (BYTES as i128 / 32..=i128::from(i64::MAX)).contains(&reach(dims)) {
        dims.sizes = [1; 64];
    }
    let has_strides = choices.once_in(2) || dims.strides[..own].contains(&i64::MAX);
    let offset = mostly(choices, &[0, 64, 4, 1]);
    let data: *mut c_void = room.0[offset..].as_mut_ptr().cast();
    let sizes = dims.sizes.as_ptr();
    CTensor {
        data: mostly(choices, &[data, data, data, ptr::null_mut()]),
        dtype: mostly(choices, &[like.map_or(6, |like| like.dtype), 7, 4, 0, 12, 9, 11, 40, u32::MAX]),
        rank,
        sizes: mostly(choices, &[sizes, sizes, sizes, ptr::null()]),
        strides: if has_strides { dims.strides.as_ptr() } else { ptr::null() },
    }
}

/// Whatever the constants hold, as long as it is finite, products of zeros are zero.
fn expect_zeros(model: *const Model) {
    let (zeros, sizes) = (vec![0f32; 64], [2i64, 32]);
    let data = zeros.as_ptr().cast_mut().cast();
    let input = CTensor { data, dtype: 6, rank: 2, sizes: sizes.as_ptr(), strides: ptr::null() };
    let mut outputs: *mut Outputs = ptr::null_mut();
    let mut value = MaybeUninit::<CValue>::uninit();
    // SAFETY: a result that was got is a tensor of so many elements.
    unsafe {
        if !is_ok(litz_model_run(model, &input, 1, &mut outputs)) {
            // It was opened with a limit that forbids all calls.
            return;
        }
        assert!(is_ok(litz_outputs_get(outputs, 0, value.as_mut_ptr())));
        let found = value.assume_init().of.tensor;
        let found = std::slice::from_raw_parts(found.data.cast::<f32>(), 64);
        assert!(found.iter().all(|&value| value == 0.0), "{found:?}");
        litz_outputs_free(outputs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices;

    #[test]
    fn every_function_succeeds_and_fails() {
        const SEEDS: u64 = 64;
        const BYTES: usize = 2048;
        let mut counts = [0; ACTS.len()];
        for seed in 0..SEEDS {
            for (count, more) in counts.iter_mut().zip(succeeded(&choices::bytes(seed, BYTES))) {
                *count += more;
            }
        }
        for (act, count) in ACTS.iter().zip(counts) {
            assert!(count > 20, "{act:?} succeeded {count} times: {counts:?}");
        }
    }
}
