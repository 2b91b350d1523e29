//! Calls the library's functions with arguments that make sense by chance alone: each call succeeds or says why not, and the model stays sound.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use litz_capi::{
    CTensor, CValue, Memory, Model, Outputs, Status, Update, litz_last_error, litz_model_close,
    litz_model_open, litz_model_read_constant, litz_model_run, litz_model_run_into, litz_outputs_count,
    litz_outputs_free, litz_outputs_get, litz_update_fold, litz_update_free, litz_update_new,
    litz_update_set, litz_update_swap,
};

use super::folder::Folder;

/// Numbers that follow from a seed (xorshift).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.next() % all.len()]
    }

    /// The first of them in four of five cases.
    fn mostly<T: Copy>(&mut self, all: &[T]) -> T {
        if self.next().is_multiple_of(5) { self.of(all) } else { all[0] }
    }
}

/// More than any tensor reaches whose sizes the model takes.
const BYTES: usize = 1 << 16;

#[repr(align(64))]
struct Room([u8; BYTES]);

/// Sizes and strides of one tensor, for as many dimensions as are looked at.
struct Dims {
    sizes: [i64; 64],
    strides: [i64; 64],
}

fn tensor(chance: &mut Chance, room: &mut Room, dims: &mut Dims, rows: &[i64]) -> CTensor {
    dims.sizes = std::array::from_fn(|_| chance.mostly(&[32, -1, 0, 1, 64, 65, i64::MAX, i64::MIN]));
    dims.sizes[0] = chance.mostly(rows);
    dims.strides = std::array::from_fn(|_| chance.mostly(&[1, 0, 2, 32, 64, -1, i64::MAX, i64::MIN]));
    dims.strides[0] = chance.of(&[32, 33, 64, 0]);
    let offset = chance.mostly(&[0, 64, 4, 1]);
    let data: *mut c_void = room.0[offset..].as_mut_ptr().cast();
    CTensor {
        data: chance.mostly(&[data, data, data, ptr::null_mut()]),
        dtype: chance.mostly(&[6, 7, 0, 12, 9, 11, u32::MAX]),
        rank: chance.mostly(&[2, 0, 1, 3, 64, 65, -1, i32::MAX, i32::MIN]),
        sizes: chance.mostly(&[dims.sizes.as_ptr(), dims.sizes.as_ptr(), ptr::null()]),
        strides: chance.of(&[dims.strides.as_ptr(), ptr::null()]),
    }
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

#[test]
fn arguments_that_make_no_sense_are_refused_and_leave_no_trace() {
    let folder = Folder::new();
    let path = CString::new(folder.path("pair.litzc").as_os_str().as_bytes()).expect("a path");
    let (mut model, mut update): (*mut Model, *mut Update) = (ptr::null_mut(), ptr::null_mut());
    let mut chance = Chance(0x5eed);
    let mut rooms = Box::new([Room([0; BYTES]), Room([0; BYTES])]);
    let mut dims = Dims { sizes: [0; 64], strides: [0; 64] };
    let mut outputs: *mut Outputs = ptr::null_mut();
    let mut succeeded = [0u32; 6];
    // SAFETY: every pointer is null or points to what the header says: sizes and strides to as many numbers as any rank that is not refused
    // before they are read, data to as many bytes as any sizes and strides reach that are not refused, and handles are alive.
    unsafe {
        assert!(is_ok(litz_model_open(
            path.as_ptr(),
            c"threads=2\nbind=false".as_ptr(),
            ptr::null(),
            &mut model
        )));
        assert!(is_ok(litz_update_new(model, &mut update)));
        for turn in 0..20_000u32 {
            let what = chance.next() % succeeded.len();
            let [first, second] = &mut *rooms;
            // 0.75 or so: what calls left there would grow without end.
            first.0.fill(0x3f);
            let outcome = match what {
                0 => {
                    let input = tensor(&mut chance, first, &mut dims, &[3, 0, 1, 64, 65, -1, i64::MAX]);
                    let count = chance.mostly(&[1, 0, 2, usize::MAX]);
                    let place: *mut *mut Outputs = &mut outputs;
                    litz_model_run(model, &input, count, chance.mostly(&[place, place, ptr::null_mut()]))
                }
                1 => {
                    let input = tensor(&mut chance, first, &mut dims, &[3, 0, 1, 64, 65, -1, i64::MAX]);
                    let mut memory = || {
                        // In the memory of the input, too, and within each other.
                        let room = if chance.next().is_multiple_of(4) { &mut *first } else { &mut *second };
                        let (offset, bytes) = (chance.of(&[0, 64, 4, 8192]), chance.of(&[0, 384, 383, 8192]));
                        Memory {
                            data: chance.mostly(&[room.0[offset..].as_mut_ptr().cast(), ptr::null_mut()]),
                            bytes,
                        }
                    };
                    let memories = [memory(), memory()];
                    let count = chance.mostly(&[2, 0, 1, usize::MAX]);
                    let place: *mut *mut Outputs = &mut outputs;
                    let place = chance.mostly(&[place, place, ptr::null_mut()]);
                    litz_model_run_into(model, &input, 1, memories.as_ptr(), count, place)
                }
                2 => {
                    let mut value = std::mem::MaybeUninit::<CValue>::uninit();
                    let index = chance.mostly(&[0, 1, 2, usize::MAX]);
                    let status = litz_outputs_get(outputs, index, value.as_mut_ptr());
                    assert!(status != Status::Ok || index < litz_outputs_count(outputs));
                    status
                }
                3 => {
                    let contents = tensor(&mut chance, first, &mut dims, &[32, 0, 31, -1]);
                    let name = chance.of(&[c"a".as_ptr(), c"b".as_ptr(), c"\xff".as_ptr(), ptr::null()]);
                    litz_update_set(update, name, &contents)
                }
                4 => {
                    let bytes = chance.of(&[4096, 0, 4095, usize::MAX]);
                    let name = chance.of(&[c"a".as_ptr(), c"b".as_ptr(), c"".as_ptr(), ptr::null()]);
                    litz_model_read_constant(model, name, second.0.as_mut_ptr().cast(), bytes)
                }
                _ => {
                    let change = chance.of(&[litz_update_fold, litz_update_swap]);
                    change(update)
                }
            };
            succeeded[what] += u32::from(is_ok(outcome));
            if turn % 1000 == 0 {
                litz_outputs_free(std::mem::replace(&mut outputs, ptr::null_mut()));
                expect_zeros(model);
            }
        }
        litz_outputs_free(outputs);
        litz_update_free(update);
        litz_model_close(model);
    }
    assert!(succeeded.iter().all(|&count| count > 100), "{succeeded:?}");
}

/// Whatever the constants hold, as long as it is finite, products of zeros are zero.
///
/// # Safety
/// The model is one.
unsafe fn expect_zeros(model: *const Model) {
    let (zeros, sizes) = (vec![0f32; 64], [2i64, 32]);
    let data = zeros.as_ptr().cast_mut().cast();
    let input = CTensor { data, dtype: 6, rank: 2, sizes: sizes.as_ptr(), strides: ptr::null() };
    let mut outputs: *mut Outputs = ptr::null_mut();
    let mut value = std::mem::MaybeUninit::<CValue>::uninit();
    // SAFETY: as for all calls here; a result that was got is a tensor of so many elements.
    unsafe {
        assert!(is_ok(litz_model_run(model, &input, 1, &mut outputs)));
        assert!(is_ok(litz_outputs_get(outputs, 0, value.as_mut_ptr())));
        let found = value.assume_init().of.tensor;
        let found = std::slice::from_raw_parts(found.data.cast::<f32>(), 64);
        assert!(found.iter().all(|&value| value == 0.0), "{found:?}");
        litz_outputs_free(outputs);
    }
}
