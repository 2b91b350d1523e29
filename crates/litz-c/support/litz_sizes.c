/* Computes with sizes, and compares those of inputs with what a program takes. */
#include "litz_model.h"

#include <inttypes.h>

int64_t litz_add(bool *bad, int64_t a, int64_t b) {
  if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) {
    *bad = true;
    return 0;
  }
  return a + b;
}

int64_t litz_mul(bool *bad, int64_t a, int64_t b) {
  bool overflows = false;
  if (a == 0 || b == 0) {
    return 0;
  }
  if (a > 0) {
    overflows = b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a;
  } else {
    overflows = b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a;
  }
  if (overflows) {
    *bad = true;
    return 0;
  }
  return a * b;
}

int64_t litz_product(bool *bad, int count, const int64_t *factors) {
  int64_t product = 1;
  for (int i = 0; i < count; i++) {
    if (factors[i] == 0) {
      return 0;
    }
  }
  for (int i = 0; i < count; i++) {
    product = litz_mul(bad, product, factors[i]);
  }
  return product;
}

int64_t litz_floordiv(bool *bad, int64_t a, int64_t b) {
  if (b == 0 || (a == INT64_MIN && b == -1)) {
    *bad = true;
    return 0;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t litz_mod(bool *bad, int64_t a, int64_t b) {
  if (b == 0) {
    *bad = true;
    return 0;
  }
  if (b == -1) {
    return 0;
  }
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

bool litz_holds(bool *bad, bool relation) {
  const bool has_value = !*bad;
  *bad = false;
  return has_value && relation;
}

int64_t litz_min(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t litz_max(int64_t a, int64_t b) { return a > b ? a : b; }

static const struct {
  const char *name;
  int bytes;
} dtypes[] = {
    [LITZ_BOOL] = {"bool", 1},     [LITZ_U8] = {"u8", 1},         [LITZ_U16] = {"u16", 2}, [LITZ_U32] = {"u32", 4},
    [LITZ_U64] = {"u64", 8},       [LITZ_I8] = {"i8", 1},         [LITZ_I16] = {"i16", 2}, [LITZ_I32] = {"i32", 4},
    [LITZ_I64] = {"i64", 8},       [LITZ_F16] = {"f16", 2},       [LITZ_BF16] = {"bf16", 2}, [LITZ_F32] = {"f32", 4},
    [LITZ_F64] = {"f64", 8},       [LITZ_F8E4M3] = {"f8e4m3", 1}, [LITZ_F8E5M2] = {"f8e5m2", 1},
    [LITZ_C64] = {"c64", 8},       [LITZ_C128] = {"c128", 16},
};

int64_t litz_dtype_bytes(litz_dtype dtype) { return dtypes[dtype].bytes; }

const char *litz_dtype_name(litz_dtype dtype) { return dtypes[dtype].name; }

int64_t litz_span(litz_call *call, litz_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides) {
  int64_t last = 1;
  for (int dim = 0; dim < rank; dim++) {
    if (sizes[dim] <= 0) {
      return 0;
    }
  }
  for (int dim = 0; dim < rank; dim++) {
    last = litz_add(&call->bad, last, litz_mul(&call->bad, sizes[dim] - 1, strides[dim]));
  }
  return litz_mul(&call->bad, last, litz_dtype_bytes(dtype));
}

int64_t litz_size_of(const litz_call *call, int input, int dim) { return call->inputs[input].sizes[dim]; }

bool litz_solve(litz_call *call, int input, int dim, int64_t coefficient, int64_t rest, const char *expected,
                int64_t *value) {
  const int64_t size = litz_size_of(call, input, dim);
  bool bad = call->bad || coefficient == 0;
  const int64_t negative = litz_mul(&bad, rest, -1);
  const int64_t difference = litz_add(&bad, size, negative);
  if (bad || litz_mod(&bad, difference, coefficient) != 0) {
    call->bad = false;
    return litz_expect(call, input, dim, INT64_MIN, expected, true);
  }
  *value = litz_floordiv(&bad, difference, coefficient);
  return true;
}

static const char *input_name(const litz_call *call, int input) { return call->model->program->inputs[input].name; }

bool litz_in_range(litz_call *call, int input, int dim, const char *symbol, int64_t lo, int64_t hi, int64_t value) {
  if (value >= lo && value <= hi) {
    return true;
  }
  return litz_fail(call, LITZ_SIZE_OUT_OF_RANGE,
                   "input `%s`, dimension %d: expected %s in [%" PRId64 ", %" PRId64 "], found %" PRId64,
                   input_name(call, input), dim, symbol, lo, hi, value);
}

bool litz_expect(litz_call *call, int input, int dim, int64_t value, const char *expected, bool is_constant) {
  const int64_t found = litz_size_of(call, input, dim);
  const bool bad = call->bad;
  call->bad = false;
  if (!bad && value == found) {
    return true;
  }
  if (bad || is_constant) {
    return litz_fail(call, LITZ_WRONG_SIZE, "input `%s`, dimension %d: expected size %s, found %" PRId64,
                     input_name(call, input), dim, expected, found);
  }
  return litz_fail(call, LITZ_WRONG_SIZE,
                   "input `%s`, dimension %d: expected size %s, which is %" PRId64 ", found %" PRId64,
                   input_name(call, input), dim, expected, value, found);
}

bool litz_check_failed(litz_call *call, const char *condition, const char *who, int pairs, const int64_t *sides) {
  const bool has_sides = pairs > 0 && !call->bad;
  call->bad = false;
  if (!has_sides) {
    return litz_fail(call, LITZ_CHECK_FAILED, "expected %s (asked for by %s), found what is none", condition, who);
  }
  return litz_fail(call, LITZ_CHECK_FAILED, "expected %s (asked for by %s), found %" PRId64 " and %" PRId64, condition,
                   who, sides[0], sides[1]);
}

bool litz_late(litz_call *call, litz_memory memory, litz_dtype dtype, const char *symbol, int64_t lo, int64_t hi,
               int64_t divisor, const char *who, int64_t *value) {
  if (memory.bytes < litz_dtype_bytes(dtype)) {
    return litz_bug(call, "a size is read from memory without elements");
  }
  *value = litz_as_integer(dtype, memory.data);
  if (*value < lo) {
    return litz_fail(call, LITZ_CHECK_FAILED, "expected %s >= %" PRId64 " (asked for by %s), found %" PRId64, symbol, lo,
                     who, *value);
  }
  if (*value > hi) {
    return litz_fail(call, LITZ_CHECK_FAILED, "expected %s <= %" PRId64 " (asked for by %s), found %" PRId64, symbol, hi,
                     who, *value);
  }
  if (*value % divisor != 0) {
    return litz_fail(call, LITZ_CHECK_FAILED, "expected %s to be a multiple of %" PRId64 " (asked for by %s), found %" PRId64,
                     symbol, divisor, who, *value);
  }
  return true;
}
