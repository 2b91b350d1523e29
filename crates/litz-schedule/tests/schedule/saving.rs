//! What refused and accepted fusions save: figures that can be derived from the programs.

use crate::outcome;
use litz_schedule::NoFuse;

/// Bytes of the only note about that consumer and that verdict.
#[track_caller]
fn saved(body: &str, consumer: &str, verdict: Result<(), NoFuse>) -> i64 {
    let outcome = outcome(body);
    let about = outcome.notes.iter().filter(|note| note.consumer == consumer && note.verdict == verdict);
    match about.collect::<Vec<_>>()[..] {
        [note] => note.bytes,
        _ => panic!("expected one note on {consumer}, {verdict:?}, found {:#?}", outcome.notes),
    }
}

/// A column sum of a product: 64 x 64 elements of 4 bytes are stored, and loaded once.
#[test]
fn what_only_the_consumer_reads_is_neither_stored_nor_loaded() {
    let body = "buf x: f32[64, 64] = input
         buf w: f32[64, 64] = const \"w\"
         buf h: f32[64, 64]
         buf y: f32[64]
         nest p from %h [i in 64, j in 64 | k in 64] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store h[i, j] = %3 }
         nest c from %y [j in 64 | i in 64] { %0: f32 = load h[i, j] %1: f32 = reduce.sum %0 store y[j] = %1 }
         return y";
    assert_eq!(saved(body, "c", Err(NoFuse::NotAnEpilogue)), 2 * 64 * 64 * 4);
    // What is returned is stored in any case.
    let returned = body.replace("return y", "return y, h");
    assert_eq!(saved(&returned, "c", Err(NoFuse::NotAnEpilogue)), 64 * 64 * 4);
    // Another reader outside needs it, too: here the product of the first consumer's rows.
    let twice = body.replace("return y", "nest d from %z [j in 64 | i in 64] { %0: f32 = load h[i, j] %1: f32 = reduce.max %0 store z[j] = %1 } return y, z");
    let twice = twice.replace("buf y: f32[64]", "buf y: f32[64] buf z: f32[64]");
    assert_eq!(saved(&twice, "c", Err(NoFuse::NotAnEpilogue)), 64 * 64 * 4);
}

/// The consumer reads half of the rows, 32 x 64 elements; all 64 x 64 would not be stored.
#[test]
fn only_what_the_consumer_loads_counts_as_loaded() {
    let body = "buf x: f32[64, 64] = input
         buf w: f32[64, 64] = const \"w\"
         buf h: f32[64, 64]
         buf y: f32[64]
         nest p from %h [i in 64, j in 64 | k in 64] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store h[i, j] = %3 }
         nest c from %y [j in 64 | i in 32] { %0: f32 = load h[2*i, j] %1: f32 = reduce.sum %0 store y[j] = %1 }
         return y";
    assert_eq!(saved(body, "c", Err(NoFuse::NotAnEpilogue)), 32 * 64 * 4 + 64 * 64 * 4);
}

/// The product loads its operand 64 times over from a cache, but once from memory: 64 x 64 elements of 2 bytes, stored and
/// loaded.
#[test]
fn an_element_counts_once_however_often_it_is_read() {
    let body = "buf x: bf16[64, 64] = input
         buf w: bf16[64, 64] = const \"w\"
         buf h: bf16[64, 64]
         buf y: f32[64, 64]
         nest p from %h [i in 64, j in 64] { %0: bf16 = load x[i, j] %1: f32 = cast %0 %2: f32 = neg %1 %3: bf16 = cast %2 store h[i, j] = %3 }
         nest c from %y [i in 64, j in 64 | k in 64] { %0: bf16 = load h[i, k] %1: f32 = cast %0 %2: bf16 = load w[k, j] %3: f32 = cast %2 %4: f32 = mul %1, %3 %5: f32 = reduce.sum %4 store y[i, j] = %5 }
         return y";
    assert_eq!(saved(body, "c", Err(NoFuse::ProductConsumer)), 2 * 64 * 64 * 2);
}

/// Both read x; the second reads 32 rows of 64 elements of 4 bytes.
#[test]
fn statements_side_by_side_share_what_both_load() {
    let body = "buf x: f32[64, 64] = input
         buf a: f32[64, 64]
         buf b: f32[32, 64]
         nest p from %a [i in 64, j in 64] { %0: f32 = load x[i, j] %1: f32 = neg %0 store a[i, j] = %1 }
         nest c from %b [i in 32, j in 64] { %0: f32 = load x[i, j] %1: f32 = exp %0 store b[i, j] = %1 }
         return a, b";
    assert_eq!(saved(body, "c", Err(NoFuse::OtherSize)), 32 * 64 * 4);
}

/// A routine stores and the consumer loads 64 elements of 4 bytes; the positions that it finds are needed by nobody.
#[test]
fn routines_pass_whole_buffers() {
    let body = "buf x: f32[64] = input
         buf s: f32[64]
         buf i: i64[64]
         buf y: f32[64]
         extern p from %s = sort(x) -> (s, i) ints(1, 64, 1, 0, 1)
         nest c from %y [i in 64] { %0: f32 = load s[i] %1: f32 = neg %0 store y[i] = %1 }
         return y";
    assert_eq!(saved(body, "c", Err(NoFuse::Extern)), 2 * 64 * 4);
}

/// 8 of 1024 rows are looked up: 8 x 4 elements of 4 bytes would be loaded, all 1024 x 4 stored.
#[test]
fn rows_that_data_chooses_count_as_often_as_they_are_read() {
    let body = "buf x: f32[1024, 4] = input
         buf t: i64[8] = input
         buf h: f32[1024, 4]
         buf y: f32[8, 4]
         nest p from %h [i in 1024, j in 4] { %0: f32 = load x[i, j] %1: f32 = exp %0 store h[i, j] = %1 }
         nest c from %y [i in 8, j in 4] { %0: i64 = load t[i] bind t0 = %0 in 1024 %2: f32 = load h[t0, j] store y[i, j] = %2 }
         return y";
    assert_eq!(saved(body, "c", Ok(())), 8 * 4 * 4 + 1024 * 4 * 4);
}

/// What is packed when the model is loaded costs a call nothing.
#[test]
fn a_call_saves_nothing_of_what_happens_at_load() {
    let body = "buf w: f32[64] = const \"w\"
         buf x: f32[64] = input
         buf h: f32[64]
         buf y: f32[64]
         nest p from %h [i in 64] { %0: f32 = load w[i] %1: f32 = neg %0 store h[i] = %1 }
         nest c from %y [i in 64] { %0: f32 = load h[i] %1: f32 = load x[i] %2: f32 = add %0, %1 store y[i] = %2 }
         return y";
    assert_eq!(saved(body, "c", Err(NoFuse::LoadTime)), 0);
}

/// Of a symbolic size its hint counts: 10 x 16 elements of 4 bytes, stored and loaded, and here they are not.
#[test]
fn accepted_fusions_say_what_they_save() {
    let body = "sym s0 in [1, 100] hint 10
         buf x: f32[s0, 16] = input
         buf h: f32[s0, 16]
         buf y: f32[s0, 16]
         nest p from %h [i in s0, j in 16] { %0: f32 = load x[i, j] %1: f32 = exp %0 store h[i, j] = %1 }
         nest c from %y [i in s0, j in 16] { %0: f32 = load h[i, j] %1: f32 = neg %0 store y[i, j] = %1 }
         return y";
    assert_eq!(saved(body, "c", Ok(())), 2 * 10 * 16 * 4);
}
