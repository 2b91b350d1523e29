/* Factorizes and solves batches of matrices, in double precision whatever the elements are.
 *
 * Buffers are batches of row-major matrices of f32 or f64, of those that solve also of complex numbers of two f32. What factorizations
 * return is laid out, and its signs and pivots are chosen, as LAPACK has it: columns of Householder vectors below an upper triangle, unit
 * diagonals left out, rows exchanged one after another with the first of the largest elements. */
#include "litz_routines.h"

#include <math.h>

/* An element: real ones have no imaginary part. */
typedef struct number {
  double re;
  double im;
} number;

static const number zero = {0, 0};
static const number one = {1, 0};

static number minus_product(number sum, number a, number b) {
  sum.re -= a.re * b.re - a.im * b.im;
  sum.im -= a.re * b.im + a.im * b.re;
  return sum;
}

static number divided(number a, number b) {
  if (b.im == 0) {
    const number quotient = {a.re / b.re, a.im / b.re};
    return quotient;
  }
  /* Smith's method: no square overflows. */
  const bool is_steep = fabs(b.im) > fabs(b.re);
  const double ratio = is_steep ? b.re / b.im : b.im / b.re;
  const double size = is_steep ? b.im + b.re * ratio : b.re + b.im * ratio;
  const number quotient = {
      (is_steep ? a.re * ratio + a.im : a.re + a.im * ratio) / size,
      (is_steep ? a.im * ratio - a.re : a.im - a.re * ratio) / size,
  };
  return quotient;
}

static double magnitude(number z) { return z.im == 0 ? fabs(z.re) : hypot(z.re, z.im); }

/* A matrix of a batch, row after row. */
typedef struct matrix {
  number *at;
  int64_t rows;
  int64_t columns;
} matrix;

static number *entry(const matrix *m, int64_t row, int64_t column) { return &m->at[row * m->columns + column]; }

static bool is_real(litz_dtype dtype) { return dtype == LITZ_F32 || dtype == LITZ_F64; }

static number load_number(litz_dtype dtype, const void *data, int64_t at) {
  number z = zero;
  switch (dtype) {
    case LITZ_F32:
      z.re = ((const float *)data)[at];
      break;
    case LITZ_F64:
      z.re = ((const double *)data)[at];
      break;
    default:
      z.re = ((const float *)data)[2 * at];
      z.im = ((const float *)data)[2 * at + 1];
      break;
  }
  return z;
}

static void store_number(litz_dtype dtype, void *data, int64_t at, number z) {
  switch (dtype) {
    case LITZ_F32:
      ((float *)data)[at] = (float)z.re;
      break;
    case LITZ_F64:
      ((double *)data)[at] = z.re;
      break;
    default:
      ((float *)data)[2 * at] = (float)z.re;
      ((float *)data)[2 * at + 1] = (float)z.im;
      break;
  }
}

/* Whether a buffer is a batch of so many elements each, of a type that has these. */
static bool holds(litz_call *call, litz_buffer buffer, bool is_number, litz_dtype dtype, int64_t batch, int64_t count) {
  const int64_t all = litz_mul(&call->bad, batch, count);
  return batch >= 0 && count >= 0 && buffer.dtype == dtype && (!is_number || is_real(dtype) || dtype == LITZ_C64) &&
         litz_fits(&call->bad, buffer.memory, all, litz_dtype_bytes(dtype)) && !call->bad;
}

static bool wrong(litz_call *call) { return litz_bug(call, "a routine of linear algebra has buffers that do not fit"); }

static bool take(litz_call *call, matrix *m, int64_t rows, int64_t columns) {
  m->rows = rows;
  m->columns = columns;
  m->at = litz_scratch(call, litz_mul(&call->bad, rows, columns), sizeof *m->at);
  return m->at != NULL;
}

static void load(const matrix *m, litz_buffer from, int64_t item) {
  const int64_t count = m->rows * m->columns;
  for (int64_t i = 0; i < count; i++) {
    m->at[i] = load_number(from.dtype, from.memory.data, item * count + i);
  }
}

static void store(const matrix *m, litz_buffer to, int64_t item) {
  const int64_t count = m->rows * m->columns;
  for (int64_t i = 0; i < count; i++) {
    store_number(to.dtype, to.memory.data, item * count + i, m->at[i]);
  }
}

static void exchange_rows(const matrix *m, int64_t a, int64_t b) {
  for (int64_t j = 0; j < m->columns; j++) {
    const number kept = *entry(m, a, j);
    *entry(m, a, j) = *entry(m, b, j);
    *entry(m, b, j) = kept;
  }
}

/* A -> L, info: the lower triangle alone is read. */
bool litz_cholesky(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t batch = ints[0];
  const int64_t n = ints[1];
  const litz_dtype dtype = reads[0].dtype;
  const int64_t size = litz_mul(&call->bad, n, n);
  const int mark = litz_mark(call);
  matrix a;
  matrix l;
  if (!is_real(dtype) || !holds(call, reads[0], true, dtype, batch, size) ||
      !holds(call, writes[0], true, dtype, batch, size) || !holds(call, writes[1], false, LITZ_I32, batch, 1)) {
    return wrong(call);
  }
  LITZ_TRY(take(call, &a, n, n) && take(call, &l, n, n));
  int32_t *infos = (void *)writes[1].memory.data;
  for (int64_t item = 0; item < batch; item++) {
    load(&a, reads[0], item);
    infos[item] = 0;
    for (int64_t i = 0; i < n * n; i++) {
      l.at[i] = zero;
    }
    for (int64_t j = 0; j < n && infos[item] == 0; j++) {
      double pivot = entry(&a, j, j)->re;
      for (int64_t k = 0; k < j; k++) {
        pivot -= entry(&l, j, k)->re * entry(&l, j, k)->re;
      }
      if (!(pivot > 0)) {
        /* LAPACK leaves the rest as it found it. */
        infos[item] = (int32_t)(j + 1);
        for (int64_t i = j; i < n; i++) {
          for (int64_t k = j; k <= i; k++) {
            *entry(&l, i, k) = *entry(&a, i, k);
          }
        }
        break;
      }
      entry(&l, j, j)->re = sqrt(pivot);
      for (int64_t i = j + 1; i < n; i++) {
        double sum = entry(&a, i, j)->re;
        for (int64_t k = 0; k < j; k++) {
          sum -= entry(&l, i, k)->re * entry(&l, j, k)->re;
        }
        entry(&l, i, j)->re = sum / entry(&l, j, j)->re;
      }
    }
    store(&l, writes[0], item);
  }
  litz_release(call, mark);
  return true;
}

/* A -> L and U, pivots from 1, info. */
bool litz_lu(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t batch = ints[0];
  const int64_t m = ints[1];
  const int64_t n = ints[2];
  const int64_t r = litz_min(m, n);
  const litz_dtype dtype = reads[0].dtype;
  const int64_t size = litz_mul(&call->bad, m, n);
  const int mark = litz_mark(call);
  matrix a;
  if (!holds(call, reads[0], true, dtype, batch, size) || !holds(call, writes[0], true, dtype, batch, size) ||
      !holds(call, writes[1], false, LITZ_I32, batch, r) || !holds(call, writes[2], false, LITZ_I32, batch, 1)) {
    return wrong(call);
  }
  LITZ_TRY(take(call, &a, m, n));
  int32_t *pivots = (void *)writes[1].memory.data;
  int32_t *infos = (void *)writes[2].memory.data;
  for (int64_t item = 0; item < batch; item++) {
    load(&a, reads[0], item);
    infos[item] = 0;
    for (int64_t k = 0; k < r; k++) {
      int64_t pivot = k;
      for (int64_t i = k + 1; i < m; i++) {
        if (magnitude(*entry(&a, i, k)) > magnitude(*entry(&a, pivot, k))) {
          pivot = i;
        }
      }
      pivots[item * r + k] = (int32_t)(pivot + 1);
      exchange_rows(&a, k, pivot);
      if (magnitude(*entry(&a, k, k)) == 0) {
        infos[item] = infos[item] == 0 ? (int32_t)(k + 1) : infos[item];
        continue;
      }
      for (int64_t i = k + 1; i < m; i++) {
        const number factor = divided(*entry(&a, i, k), *entry(&a, k, k));
        *entry(&a, i, k) = factor;
        for (int64_t j = k + 1; j < n; j++) {
          *entry(&a, i, j) = minus_product(*entry(&a, i, j), factor, *entry(&a, k, j));
        }
      }
    }
    store(&a, writes[0], item);
  }
  litz_release(call, mark);
  return true;
}

/* Solves with a triangle of a matrix, or of the transposed one, in place. */
static void solve(const matrix *a, const matrix *x, bool is_upper, bool is_unit, bool is_transposed) {
  const int64_t n = a->rows;
  for (int64_t step = 0; step < n; step++) {
    const int64_t i = is_upper ? n - 1 - step : step;
    for (int64_t column = 0; column < x->columns; column++) {
      number sum = *entry(x, i, column);
      for (int64_t k = is_upper ? i + 1 : 0; k < (is_upper ? n : i); k++) {
        sum = minus_product(sum, is_transposed ? *entry(a, k, i) : *entry(a, i, k), *entry(x, k, column));
      }
      *entry(x, i, column) = divided(sum, is_unit ? one : *entry(a, i, i));
    }
  }
}

/* A, B -> X with A X = B. */
bool litz_triangular(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t batch = ints[0];
  const int64_t n = ints[1];
  const int64_t k = ints[2];
  const litz_dtype dtype = reads[0].dtype;
  const int64_t size = litz_mul(&call->bad, n, n);
  const int64_t sides = litz_mul(&call->bad, n, k);
  const int mark = litz_mark(call);
  matrix a;
  matrix x;
  if (!holds(call, reads[0], true, dtype, batch, size) || !holds(call, reads[1], true, dtype, batch, sides) ||
      !holds(call, writes[0], true, dtype, batch, sides)) {
    return wrong(call);
  }
  LITZ_TRY(take(call, &a, n, n) && take(call, &x, n, k));
  for (int64_t item = 0; item < batch; item++) {
    load(&a, reads[0], item);
    load(&x, reads[1], item);
    solve(&a, &x, ints[3] != 0, ints[4] != 0, false);
    store(&x, writes[0], item);
  }
  litz_release(call, mark);
  return true;
}

/* L and U, pivots, B -> X with A X = B, or A^T X = B. */
bool litz_lu_solve(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t batch = ints[0];
  const int64_t n = ints[1];
  const int64_t k = ints[2];
  const bool is_transposed = ints[3] != 0;
  const litz_dtype dtype = reads[0].dtype;
  const int64_t size = litz_mul(&call->bad, n, n);
  const int64_t sides = litz_mul(&call->bad, n, k);
  const int mark = litz_mark(call);
  matrix a;
  matrix x;
  if (!holds(call, reads[0], true, dtype, batch, size) || !holds(call, reads[1], false, LITZ_I32, batch, n) ||
      !holds(call, reads[2], true, dtype, batch, sides) || !holds(call, writes[0], true, dtype, batch, sides)) {
    return wrong(call);
  }
  LITZ_TRY(take(call, &a, n, n) && take(call, &x, n, k));
  const int32_t *pivots = (const void *)reads[1].memory.data;
  for (int64_t i = 0; i < batch * n; i++) {
    if (pivots[i] < 1 || pivots[i] > n) {
      return litz_bug(call, "a pivot is no row");
    }
  }
  for (int64_t item = 0; item < batch; item++) {
    load(&a, reads[0], item);
    load(&x, reads[2], item);
    if (is_transposed) {
      /* U^T L^T P X = B */
      solve(&a, &x, false, false, true);
      solve(&a, &x, true, true, true);
      for (int64_t i = n - 1; i >= 0; i--) {
        exchange_rows(&x, i, pivots[item * n + i] - 1);
      }
    } else {
      /* L U X = P B */
      for (int64_t i = 0; i < n; i++) {
        exchange_rows(&x, i, pivots[item * n + i] - 1);
      }
      solve(&a, &x, false, true, false);
      solve(&a, &x, true, false, false);
    }
    store(&x, writes[0], item);
  }
  litz_release(call, mark);
  return true;
}

/* Pivots -> the rows that go to each place. */
bool litz_permutation(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t batch = ints[0];
  const int64_t m = ints[1];
  const int64_t k = ints[2];
  if (!holds(call, reads[0], false, LITZ_I32, batch, k) || !holds(call, writes[0], false, LITZ_I64, batch, m)) {
    return wrong(call);
  }
  const int32_t *pivots = (const void *)reads[0].memory.data;
  int64_t *order = (void *)writes[0].memory.data;
  for (int64_t item = 0; item < batch; item++, order += m, pivots += k) {
    for (int64_t i = 0; i < m; i++) {
      order[i] = i;
    }
    for (int64_t i = 0; i < k; i++) {
      if (i >= m || pivots[i] < 1 || pivots[i] > m) {
        return litz_bug(call, "a pivot is no row");
      }
      const int64_t kept = order[i];
      order[i] = order[pivots[i] - 1];
      order[pivots[i] - 1] = kept;
    }
  }
  return true;
}

/* A -> vectors and R, scales. */
bool litz_qr(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t batch = ints[0];
  const int64_t m = ints[1];
  const int64_t n = ints[2];
  const int64_t r = litz_min(m, n);
  const litz_dtype dtype = reads[0].dtype;
  const int64_t size = litz_mul(&call->bad, m, n);
  const int mark = litz_mark(call);
  matrix a;
  if (!is_real(dtype) || !holds(call, reads[0], true, dtype, batch, size) ||
      !holds(call, writes[0], true, dtype, batch, size) || !holds(call, writes[1], true, dtype, batch, r)) {
    return wrong(call);
  }
  LITZ_TRY(take(call, &a, m, n));
  for (int64_t item = 0; item < batch; item++) {
    load(&a, reads[0], item);
    for (int64_t k = 0; k < r; k++) {
      double below = 0;
      number scale = zero;
      for (int64_t i = k + 1; i < m; i++) {
        below = hypot(below, entry(&a, i, k)->re);
      }
      /* A column that is zero below its diagonal is not reflected. */
      if (below != 0) {
        const double first = entry(&a, k, k)->re;
        const double norm = copysign(hypot(first, below), -first);
        scale.re = (norm - first) / norm;
        for (int64_t i = k + 1; i < m; i++) {
          entry(&a, i, k)->re /= first - norm;
        }
        entry(&a, k, k)->re = norm;
        for (int64_t j = k + 1; j < n; j++) {
          double along = entry(&a, k, j)->re;
          for (int64_t i = k + 1; i < m; i++) {
            along += entry(&a, i, k)->re * entry(&a, i, j)->re;
          }
          entry(&a, k, j)->re -= scale.re * along;
          for (int64_t i = k + 1; i < m; i++) {
            entry(&a, i, j)->re -= scale.re * along * entry(&a, i, k)->re;
          }
        }
      }
      store_number(dtype, writes[1].memory.data, item * r + k, scale);
    }
    store(&a, writes[0], item);
  }
  litz_release(call, mark);
  return true;
}

/* Vectors, scales -> the first columns of the product of `1 - t v v^T`, from the left to the right. */
bool litz_householder(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t batch = ints[0];
  const int64_t m = ints[1];
  const int64_t k = ints[2];
  const int64_t t = ints[3];
  const int64_t n = ints[4];
  const litz_dtype dtype = reads[0].dtype;
  const int64_t size = litz_mul(&call->bad, m, k);
  const int64_t result = litz_mul(&call->bad, m, n);
  const int mark = litz_mark(call);
  matrix v;
  matrix product;
  if (!is_real(dtype) || t > k || t > m || n > m || !holds(call, reads[0], true, dtype, batch, size) ||
      !holds(call, reads[1], true, dtype, batch, t) || !holds(call, writes[0], true, dtype, batch, result)) {
    return wrong(call);
  }
  LITZ_TRY(take(call, &v, m, k) && take(call, &product, m, n));
  for (int64_t item = 0; item < batch; item++) {
    load(&v, reads[0], item);
    for (int64_t i = 0; i < m * n; i++) {
      product.at[i] = i / n == i % n ? one : zero;
    }
    for (int64_t i = t - 1; i >= 0; i--) {
      const double scale = load_number(dtype, reads[1].memory.data, item * t + i).re;
      for (int64_t j = 0; j < n; j++) {
        double along = entry(&product, i, j)->re;
        for (int64_t row = i + 1; row < m; row++) {
          along += entry(&v, row, i)->re * entry(&product, row, j)->re;
        }
        entry(&product, i, j)->re -= scale * along;
        for (int64_t row = i + 1; row < m; row++) {
          entry(&product, row, j)->re -= scale * along * entry(&v, row, i)->re;
        }
      }
    }
    store(&product, writes[0], item);
  }
  litz_release(call, mark);
  return true;
}

static void multiply(const matrix *a, const matrix *b, double scale, const matrix *to) {
  for (int64_t i = 0; i < a->rows; i++) {
    for (int64_t j = 0; j < b->columns; j++) {
      double sum = 0;
      for (int64_t k = 0; k < a->columns; k++) {
        sum += entry(a, i, k)->re * entry(b, k, j)->re;
      }
      entry(to, i, j)->re = sum * scale;
    }
  }
}

/* Taylor's series of 24 terms of a matrix halved until its norm is below 1, squared as often: `1 / 24!` is below the last place of 1. */
bool litz_matrix_exp(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  const int64_t batch = ints[0];
  const int64_t n = ints[1];
  const litz_dtype dtype = reads[0].dtype;
  const int64_t size = litz_mul(&call->bad, n, n);
  const int mark = litz_mark(call);
  matrix a;
  matrix sum;
  matrix next;
  if (!is_real(dtype) || !holds(call, reads[0], true, dtype, batch, size) ||
      !holds(call, writes[0], true, dtype, batch, size)) {
    return wrong(call);
  }
  LITZ_TRY(take(call, &a, n, n) && take(call, &sum, n, n) && take(call, &next, n, n));
  for (int64_t item = 0; item < batch; item++) {
    double norm = 0;
    bool is_finite = true;
    load(&a, reads[0], item);
    for (int64_t j = 0; j < n; j++) {
      double column = 0;
      for (int64_t i = 0; i < n; i++) {
        column += fabs(entry(&a, i, j)->re);
      }
      norm = fmax(norm, column);
      is_finite = is_finite && isfinite(column);
    }
    const int halvings = is_finite && norm > 1 ? (int)ceil(log2(norm)) : 0;
    for (int64_t i = 0; i < n * n; i++) {
      const number unit = {is_finite ? i / n == i % n : (double)NAN, 0};
      a.at[i].re = ldexp(a.at[i].re, -halvings);
      sum.at[i] = unit;
      next.at[i] = zero;
    }
    for (int term = 24; is_finite && term >= 1; term--) {
      const matrix kept = sum;
      multiply(&a, &sum, 1.0 / term, &next);
      sum = next;
      next = kept;
      for (int64_t i = 0; i < n; i++) {
        entry(&sum, i, i)->re += 1;
      }
    }
    for (int i = 0; i < halvings; i++) {
      const matrix kept = sum;
      multiply(&sum, &sum, 1, &next);
      sum = next;
      next = kept;
    }
    store(&sum, writes[0], item);
  }
  litz_release(call, mark);
  return true;
}
