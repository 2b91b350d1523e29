/* Sorts, selects and checks: routines on whole buffers. */
#include "litz_routines.h"

#include <string.h>

static bool fits(litz_call *call, litz_buffer buffer, litz_dtype dtype, int64_t elements) {
  return elements >= 0 && buffer.dtype == dtype &&
         litz_fits(&call->bad, buffer.memory, elements, litz_dtype_bytes(dtype)) && !call->bad;
}

bool litz_assert(litz_call *call, litz_memory mask, const char *message) {
  for (int64_t i = 0; i < mask.bytes; i++) {
    if (mask.data[i] == 0) {
      return litz_fail(call, LITZ_ASSERTION_FAILED, "assertion failed: %s", message);
    }
  }
  return true;
}

/* A number in whose order elements are: NaN above all, both zeros equal. */
static uint64_t key_of(litz_dtype dtype, const unsigned char *element) {
  const uint64_t sign = (uint64_t)1 << 63;
  if (dtype == LITZ_BOOL || litz_is_integer(dtype)) {
    const uint64_t bits = (uint64_t)litz_as_integer(dtype, element);
    return dtype >= LITZ_I8 && dtype <= LITZ_I64 ? bits ^ sign : bits;
  }
  const double number = litz_as_double(dtype, element) + 0.0;
  uint64_t bits = 0;
  memcpy(&bits, &number, sizeof bits);
  if (number != number) {
    return UINT64_MAX;
  }
  return bits & sign ? ~bits : bits | sign;
}

static bool has_order(litz_dtype dtype) { return dtype != LITZ_C64 && dtype != LITZ_C128; }

static bool is_less(const uint64_t *keys, int64_t width, int64_t a, int64_t b) {
  for (int64_t i = 0; i < width; i++) {
    const uint64_t one = keys[a * width + i];
    const uint64_t other = keys[b * width + i];
    if (one != other) {
      return one < other;
    }
  }
  return false;
}

/* Puts places in the order of their keys, of `width` numbers each, by merging: equal ones stay in order. */
static void sort_places(int64_t *places, int64_t *spare, int64_t count, const uint64_t *keys, int64_t width) {
  if (count < 2) {
    return;
  }
  const int64_t half = count / 2;
  sort_places(places, spare, half, keys, width);
  sort_places(places + half, spare, count - half, keys, width);
  memcpy(spare, places, (size_t)half * sizeof *spare);
  int64_t left = 0;
  int64_t right = half;
  for (int64_t to = 0; left < half; to++) {
    if (right < count && is_less(keys, width, places[right], spare[left])) {
      places[to] = places[right++];
    } else {
      places[to] = spare[left++];
    }
  }
}

/* The first `kept` of each line of `[outer, length, inner]` in order, with their positions. */
static bool choose(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *shape,
                   int64_t kept, bool is_descending) {
  const int64_t outer = shape[0];
  const int64_t length = shape[1];
  const int64_t inner = shape[2];
  const litz_dtype dtype = reads[0].dtype;
  const int64_t size = litz_dtype_bytes(dtype);
  const int64_t lines = litz_mul(&call->bad, outer, inner);
  const int64_t all = litz_mul(&call->bad, lines, length);
  const int64_t chosen = litz_mul(&call->bad, lines, kept);
  if (outer < 0 || inner < 0 || kept < 0 || kept > length || !has_order(dtype) || !fits(call, reads[0], dtype, all) ||
      !fits(call, writes[0], dtype, chosen) || !fits(call, writes[1], LITZ_I64, chosen)) {
    return litz_bug(call, "a sort has buffers that do not fit");
  }
  const int mark = litz_mark(call);
  uint64_t *keys = litz_scratch(call, length, sizeof *keys);
  int64_t *places = litz_scratch(call, length, sizeof *places);
  int64_t *spare = litz_scratch(call, length, sizeof *spare);
  if (keys == NULL || places == NULL || spare == NULL) {
    return false;
  }
  const unsigned char *from = reads[0].memory.data;
  unsigned char *values = writes[0].memory.data;
  int64_t *positions = (void *)writes[1].memory.data;
  for (int64_t line = 0; line < lines; line++) {
    const int64_t first = line / inner * length * inner + line % inner;
    const int64_t target = line / inner * kept * inner + line % inner;
    for (int64_t i = 0; i < length; i++) {
      const uint64_t key = key_of(dtype, from + (size_t)((first + i * inner) * size));
      keys[i] = is_descending ? ~key : key;
      places[i] = i;
    }
    sort_places(places, spare, length, keys, 1);
    for (int64_t i = 0; i < kept; i++) {
      const size_t to = (size_t)((target + i * inner) * size);
      memcpy(values + to, from + (size_t)((first + places[i] * inner) * size), (size_t)size);
      positions[target + i * inner] = places[i];
    }
  }
  litz_release(call, mark);
  return true;
}

bool litz_sort(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  return choose(call, reads, writes, ints, ints[1], ints[3] != 0);
}

bool litz_topk(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  return choose(call, reads, writes, ints, ints[3], ints[4] != 0);
}

bool litz_sort_rows(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t rows = ints[0];
  const int64_t width = ints[1];
  const litz_dtype dtype = reads[0].dtype;
  const int64_t all = litz_mul(&call->bad, rows, width);
  if (rows < 0 || width < 0 || !has_order(dtype) || !fits(call, reads[0], dtype, all) ||
      !fits(call, writes[0], LITZ_I64, rows)) {
    return litz_bug(call, "a sort of rows has buffers that do not fit");
  }
  const int mark = litz_mark(call);
  uint64_t *keys = litz_scratch(call, all, sizeof *keys);
  int64_t *spare = litz_scratch(call, rows, sizeof *spare);
  if (keys == NULL || spare == NULL) {
    return false;
  }
  int64_t *places = (void *)writes[0].memory.data;
  for (int64_t i = 0; i < all; i++) {
    keys[i] = key_of(dtype, reads[0].memory.data + (size_t)(i * litz_dtype_bytes(dtype)));
  }
  for (int64_t i = 0; i < rows; i++) {
    places[i] = i;
  }
  sort_places(places, spare, rows, keys, width);
  litz_release(call, mark);
  return true;
}

bool litz_nonzero(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t elements = ints[0];
  if (!fits(call, reads[0], LITZ_BOOL, elements) || !fits(call, writes[0], LITZ_I64, elements) ||
      !fits(call, writes[1], LITZ_I64, 1)) {
    return litz_bug(call, "nonzero has buffers that do not fit");
  }
  int64_t *places = (void *)writes[0].memory.data;
  int64_t found = 0;
  for (int64_t i = 0; i < elements; i++) {
    if (reads[0].memory.data[i] != 0) {
      places[found++] = i;
    }
  }
  ((int64_t *)(void *)writes[1].memory.data)[0] = found;
  const int64_t room = writes[0].memory.bytes / 8;
  for (int64_t i = found; i < room; i++) {
    places[i] = 0;
  }
  return true;
}

/* Suppression of boxes, in the type of the boxes and operation by operation as torchvision's kernel for CPUs does it, so that no box
 * is kept here and suppressed there; what is no number suppresses nothing. */
#define SUPPRESS(name, real)                                                                                        \
  static real name##_larger(real a, real b) { return a < b ? b : a; }                                               \
  static real name##_smaller(real a, real b) { return b < a ? b : a; }                                              \
  static bool name##_overlap(const real *a, const real *b, double threshold) {                                      \
    const real width = name##_larger(0, name##_smaller(a[2], b[2]) - name##_larger(a[0], b[0]));                    \
    const real height = name##_larger(0, name##_smaller(a[3], b[3]) - name##_larger(a[1], b[1]));                   \
    const real shared = width * height;                                                                             \
    const real mine = (a[2] - a[0]) * (a[3] - a[1]);                                                                \
    const real other = (b[2] - b[0]) * (b[3] - b[1]);                                                               \
    const real ratio = shared / (mine + other - shared);                                                            \
    return (double)ratio > threshold;                                                                               \
  }                                                                                                                 \
  static int64_t name(const real *boxes, int64_t *left, int64_t count, double threshold, int64_t *kept) {           \
    int64_t found = 0;                                                                                              \
    while (found < count) {                                                                                         \
      const int64_t best = left[found];                                                                             \
      kept[found++] = best;                                                                                         \
      int64_t to = found;                                                                                           \
      for (int64_t at = found; at < count; at++) {                                                                  \
        left[to] = left[at];                                                                                        \
        to += !name##_overlap(boxes + 4 * best, boxes + 4 * left[to], threshold);                                   \
      }                                                                                                             \
      count = to;                                                                                                   \
    }                                                                                                               \
    return found;                                                                                                   \
  }

SUPPRESS(suppress_f32, float)
SUPPRESS(suppress_f64, double)

bool litz_nms(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t boxes = ints[0];
  const litz_dtype dtype = reads[0].dtype;
  const int64_t numbers = litz_mul(&call->bad, boxes, 4);
  if ((dtype != LITZ_F32 && dtype != LITZ_F64) || !fits(call, reads[0], dtype, numbers) ||
      !fits(call, reads[1], LITZ_I64, boxes) || !fits(call, reads[2], LITZ_F64, 1) ||
      !fits(call, writes[0], LITZ_I64, boxes) || !fits(call, writes[1], LITZ_I64, 1)) {
    return litz_bug(call, "nms has buffers that do not fit");
  }
  const int mark = litz_mark(call);
  int64_t *left = litz_scratch(call, boxes, sizeof *left);
  if (left == NULL) {
    return false;
  }
  if (boxes > 0) {
    memcpy(left, reads[1].memory.data, (size_t)boxes * sizeof *left);
  }
  for (int64_t i = 0; i < boxes; i++) {
    if (left[i] < 0 || left[i] >= reads[0].memory.bytes / (4 * litz_dtype_bytes(dtype))) {
      return litz_bug(call, "the order of nms has a place outside of the boxes");
    }
  }
  double threshold = 0;
  memcpy(&threshold, reads[2].memory.data, sizeof threshold);
  int64_t *kept = (void *)writes[0].memory.data;
  const void *data = reads[0].memory.data;
  const int64_t found = dtype == LITZ_F32 ? suppress_f32(data, left, boxes, threshold, kept)
                                          : suppress_f64(data, left, boxes, threshold, kept);
  for (int64_t i = found; i < writes[0].memory.bytes / 8; i++) {
    kept[i] = 0;
  }
  ((int64_t *)(void *)writes[1].memory.data)[0] = found;
  litz_release(call, mark);
  return true;
}
