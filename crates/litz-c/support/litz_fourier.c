/* Transforms rows of numbers by Fourier's sums, in double precision: by the factors of their length, those with a large prime factor as
 * convolutions (Bluestein's method).
 *
 * A result is the sum over j of the row's element j times e to the power of -2 pi i j k / n, backward of 2 pi i j k / n. What is real
 * is f32, what is complex c64. The last integer says what results are divided by: 0 nothing, 1 the root of n, 2 n. */
#include "litz_routines.h"

#include <math.h>

typedef struct number {
  double re;
  double im;
} number;

/* Prime factors up to this are summed as they are written. */
enum { MOST_FACTOR = 64 };

typedef struct plan {
  int64_t length;
  /* The length of the transforms that are done: of the row itself, or of convolutions of it. */
  int64_t inner;
  /* `e^(-+2 pi i k / inner)`. */
  number *turns;
  /* Of convolutions, `e^(-+pi i j^2 / n)`, and what rows are convolved with, transformed. */
  number *chirp;
  number *kernel;
  number *row;
  number *spare;
} plan;

static number times(number a, number b) {
  const number product = {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  return product;
}

static int64_t smallest_factor(int64_t n) {
  for (int64_t p = 2; p * p <= n; p++) {
    if (n % p == 0) {
      return p;
    }
  }
  return n;
}

/* `e^(i pi numerator / denominator)`; the numerator is not negative. */
static number turn(int64_t numerator, int64_t denominator, int sign) {
  const double pi = 3.14159265358979323846;
  const double angle = pi * (double)(numerator % (2 * denominator)) / (double)denominator;
  const number found = {cos(angle), sign * sin(angle)};
  return found;
}

/* Transforms `n` numbers that are `stride` apart: those with one remainder by the smallest factor first, then their sums. */
static void transform(const plan *p, const number *from, int64_t stride, number *to, int64_t n) {
  if (n == 1) {
    to[0] = from[0];
    return;
  }
  const int64_t factor = smallest_factor(n);
  const int64_t m = n / factor;
  number terms[MOST_FACTOR];
  for (int64_t r = 0; r < factor; r++) {
    transform(p, from + r * stride, stride * factor, to + r * m, m);
  }
  for (int64_t k = 0; k < m; k++) {
    for (int64_t r = 0; r < factor; r++) {
      terms[r] = to[r * m + k];
    }
    for (int64_t q = 0; q < factor; q++) {
      number sum = terms[0];
      for (int64_t r = 1; r < factor; r++) {
        const number term = times(terms[r], p->turns[r * (k + q * m) % n * (p->inner / n)]);
        sum.re += term.re;
        sum.im += term.im;
      }
      to[k + q * m] = sum;
    }
  }
}

static number conjugate(number z) {
  z.im = -z.im;
  return z;
}

/* Prepares transforms of rows of `n` numbers; false where there is no memory. */
static bool prepare(litz_call *call, plan *p, int64_t n, bool is_forward) {
  const int sign = is_forward ? -1 : 1;
  int64_t largest = 1;
  for (int64_t left = n; left > 1; left /= smallest_factor(left)) {
    largest = smallest_factor(left);
  }
  const bool is_convolved = largest > MOST_FACTOR;
  p->length = n;
  p->inner = n;
  if (is_convolved) {
    p->inner = 1;
    while (p->inner < 2 * n - 1) {
      p->inner *= 2;
    }
  }
  p->turns = litz_scratch(call, p->inner, sizeof *p->turns);
  p->row = litz_scratch(call, p->inner, sizeof *p->row);
  p->spare = litz_scratch(call, p->inner, sizeof *p->spare);
  if (p->turns == NULL || p->row == NULL || p->spare == NULL) {
    return false;
  }
  for (int64_t k = 0; k < p->inner; k++) {
    /* Convolutions are transformed forward and back. */
    p->turns[k] = turn(2 * k, p->inner, is_convolved ? -1 : sign);
  }
  p->chirp = NULL;
  if (!is_convolved) {
    return true;
  }
  p->chirp = litz_scratch(call, n, sizeof *p->chirp);
  p->kernel = litz_scratch(call, p->inner, sizeof *p->kernel);
  if (p->chirp == NULL || p->kernel == NULL) {
    return false;
  }
  int64_t square = 0;
  for (int64_t j = 0; j < n; j++) {
    p->chirp[j] = turn(square, n, sign);
    square = (square + 2 * j + 1) % (2 * n);
  }
  for (int64_t j = 0; j < p->inner; j++) {
    const number zero = {0, 0};
    p->spare[j] = zero;
  }
  for (int64_t j = 0; j < n; j++) {
    p->spare[j] = conjugate(p->chirp[j]);
    p->spare[(p->inner - j) % p->inner] = conjugate(p->chirp[j]);
  }
  transform(p, p->spare, 1, p->kernel, p->inner);
  return true;
}

/* Transforms what is in `row`, in place. */
static void run(const plan *p) {
  if (p->chirp == NULL) {
    transform(p, p->row, 1, p->spare, p->length);
    for (int64_t k = 0; k < p->length; k++) {
      p->row[k] = p->spare[k];
    }
    return;
  }
  for (int64_t j = 0; j < p->inner; j++) {
    const number zero = {0, 0};
    p->row[j] = j < p->length ? times(p->row[j], p->chirp[j]) : zero;
  }
  transform(p, p->row, 1, p->spare, p->inner);
  for (int64_t j = 0; j < p->inner; j++) {
    p->row[j] = conjugate(times(p->spare[j], p->kernel[j]));
  }
  transform(p, p->row, 1, p->spare, p->inner);
  for (int64_t k = 0; k < p->length; k++) {
    const number sum = conjugate(p->spare[k]);
    const number found = times(sum, p->chirp[k]);
    p->row[k].re = found.re / (double)p->inner;
    p->row[k].im = found.im / (double)p->inner;
  }
}

static double factor_of(int64_t n, int64_t divisor) {
  if (divisor == 0) {
    return 1;
  }
  return divisor == 1 ? 1 / sqrt((double)n) : 1 / (double)n;
}

/* Whether buffers are of these types, and hold rows of these lengths. */
static bool fits(litz_call *call, litz_buffer from, litz_dtype read, int64_t read_length, litz_buffer to,
                 litz_dtype written, int64_t written_length, int64_t rows) {
  const int64_t in = litz_mul(&call->bad, rows, read_length);
  const int64_t out = litz_mul(&call->bad, rows, written_length);
  return rows >= 0 && read_length >= 1 && written_length >= 1 && from.dtype == read && to.dtype == written &&
         litz_fits(&call->bad, from.memory, in, litz_dtype_bytes(read)) &&
         litz_fits(&call->bad, to.memory, out, litz_dtype_bytes(written)) && !call->bad;
}

static void store(float *to, number z, double factor) {
  to[0] = (float)(z.re * factor);
  to[1] = (float)(z.im * factor);
}

bool litz_fft(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t rows = ints[0];
  const int64_t n = ints[1];
  const double factor = factor_of(n, ints[3]);
  const int mark = litz_mark(call);
  plan p = {0};
  if (!fits(call, reads[0], LITZ_C64, n, writes[0], LITZ_C64, n, rows)) {
    return litz_bug(call, "a Fourier transform has buffers that do not fit");
  }
  if (rows > 0 && !prepare(call, &p, n, ints[2] != 0)) {
    return false;
  }
  const float *from = (const void *)reads[0].memory.data;
  float *to = (void *)writes[0].memory.data;
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t j = 0; j < n; j++) {
      p.row[j].re = from[2 * (row * n + j)];
      p.row[j].im = from[2 * (row * n + j) + 1];
    }
    run(&p);
    for (int64_t k = 0; k < n; k++) {
      store(to + 2 * (row * n + k), p.row[k], factor);
    }
  }
  litz_release(call, mark);
  return true;
}

bool litz_rfft(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t rows = ints[0];
  const int64_t n = ints[1];
  const int64_t kept = ints[2];
  const double factor = factor_of(n, ints[3]);
  const int mark = litz_mark(call);
  plan p = {0};
  if (kept > n || !fits(call, reads[0], LITZ_F32, n, writes[0], LITZ_C64, kept, rows)) {
    return litz_bug(call, "a Fourier transform has buffers that do not fit");
  }
  if (rows > 0 && !prepare(call, &p, n, true)) {
    return false;
  }
  const float *from = (const void *)reads[0].memory.data;
  float *to = (void *)writes[0].memory.data;
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t j = 0; j < n; j++) {
      p.row[j].re = from[row * n + j];
      p.row[j].im = 0;
    }
    run(&p);
    for (int64_t k = 0; k < kept; k++) {
      /* Numbers of the other half are conjugate, and those that are conjugate to themselves real. */
      number z = k <= n / 2 ? p.row[k] : conjugate(p.row[n - k]);
      z.im = 2 * k % n == 0 ? 0 : z.im;
      store(to + 2 * (row * kept + k), z, factor);
    }
  }
  litz_release(call, mark);
  return true;
}

bool litz_irfft(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t rows = ints[0];
  const int64_t n = ints[1];
  const int64_t half = n / 2 + 1;
  const double factor = factor_of(n, ints[2]);
  const int mark = litz_mark(call);
  plan p = {0};
  if (!fits(call, reads[0], LITZ_C64, half, writes[0], LITZ_F32, n, rows)) {
    return litz_bug(call, "a Fourier transform has buffers that do not fit");
  }
  if (rows > 0 && !prepare(call, &p, n, false)) {
    return false;
  }
  const float *from = (const void *)reads[0].memory.data;
  float *to = (void *)writes[0].memory.data;
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t k = 0; k < half; k++) {
      number z = {from[2 * (row * half + k)], from[2 * (row * half + k) + 1]};
      /* Numbers that are conjugate to themselves are real; what is said otherwise does not count. */
      z.im = 2 * k % n == 0 ? 0 : z.im;
      p.row[k] = z;
      if (k > 0) {
        p.row[n - k] = conjugate(z);
      }
    }
    run(&p);
    for (int64_t j = 0; j < n; j++) {
      to[row * n + j] = (float)(p.row[j].re * factor);
    }
  }
  litz_release(call, mark);
  return true;
}
