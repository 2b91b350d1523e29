/* Reads single elements of every type as numbers. */
#include "litz_support.h"

#include <math.h>
#include <string.h>

bool litz_is_integer(litz_dtype dtype) { return dtype >= LITZ_U8 && dtype <= LITZ_I64; }

/* A float of `exponent` and `fraction` bits behind a sign. Where there is no infinity, the largest exponent is of numbers, but for the
 * largest of all, which is none. */
static double of_bits(uint32_t bits, int exponent, int fraction, bool has_infinity) {
  const int bias = (1 << (exponent - 1)) - 1;
  const uint32_t most = (1u << exponent) - 1;
  const uint32_t digits = bits & ((1u << fraction) - 1);
  const uint32_t power = bits >> fraction & most;
  const double sign = bits >> (exponent + fraction) & 1 ? -1.0 : 1.0;
  if (power == most && has_infinity) {
    return digits == 0 ? sign * (double)INFINITY : (double)NAN;
  }
  if (power == most && digits == (1u << fraction) - 1) {
    return (double)NAN;
  }
  if (power == 0) {
    return sign * ldexp((double)digits, 1 - bias - fraction);
  }
  return sign * ldexp((double)(digits + (1u << fraction)), (int)power - bias - fraction);
}

double litz_as_double(litz_dtype dtype, const unsigned char *element) {
  uint16_t half = 0;
  float single = 0;
  double number = 0;
  switch (dtype) {
    case LITZ_F16:
      memcpy(&half, element, sizeof half);
      return of_bits(half, 5, 10, true);
    case LITZ_BF16:
      memcpy(&half, element, sizeof half);
      return of_bits(half, 8, 7, true);
    case LITZ_F8E4M3:
      return of_bits(element[0], 4, 3, false);
    case LITZ_F8E5M2:
      return of_bits(element[0], 5, 2, true);
    case LITZ_F32:
    case LITZ_C64:
      memcpy(&single, element, sizeof single);
      return single;
    case LITZ_F64:
    case LITZ_C128:
      memcpy(&number, element, sizeof number);
      return number;
    case LITZ_U64:
      return (double)(uint64_t)litz_as_integer(dtype, element);
    case LITZ_BOOL:
    case LITZ_U8:
    case LITZ_U16:
    case LITZ_U32:
    case LITZ_I8:
    case LITZ_I16:
    case LITZ_I32:
    case LITZ_I64:
      break;
  }
  return (double)litz_as_integer(dtype, element);
}

int64_t litz_as_integer(litz_dtype dtype, const unsigned char *element) {
  const int bytes = (int)litz_dtype_bytes(dtype);
  uint64_t bits = 0;
  if (bytes > 8) {
    return 0;
  }
  memcpy(&bits, element, (size_t)bytes);
  const bool has_sign = dtype >= LITZ_I8 && dtype <= LITZ_I64;
  const int unused = 64 - 8 * bytes;
  if (has_sign && bits >> (8 * bytes - 1) != 0 && unused > 0) {
    bits |= ~(uint64_t)0 << (8 * bytes);
  }
  /* The same bits with a sign. */
  return bits <= INT64_MAX ? (int64_t)bits : -(int64_t)(~bits) - 1;
}
