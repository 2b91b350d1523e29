/* Computes functions of one or two numbers whose steps depend on the numbers, in double precision, by the formulas that ATen has. */
#define _POSIX_C_SOURCE 200809L

#include "litz_routines.h"
#include "litz_special_tables.h"

#include <float.h>
#include <math.h>

static const double pi = 3.14159265358979323846;
static const double two_over_pi = 0.63661977236758134308;
static const double root_half = 0.70710678118654752440;

/* A polynomial, the highest power first. */
static double polynomial(double x, const double *coefficients, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    sum = sum * x + coefficients[i];
  }
  return sum;
}

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
#define POLYNOMIAL(x, table) polynomial(x, table, COUNT(table))
#define RATIO(x, numerator, denominator) (POLYNOMIAL(x, numerator) / POLYNOMIAL(x, denominator))

/* Bessel and Airy functions. Up to 5, of the modified ones up to 2, they are rational functions and Chebyshev series, above the
 * amplitudes of the two phases of an oscillation. */

/* Squares of the first two zeros of J0 and of J1. */
static const double j0_zeros[2] = {5.783185962946785, 30.471262343662087};
static const double j1_zeros[2] = {14.681970642123893, 49.2184563216946};

/* A series in Chebyshev polynomials of `x / 2`, the last coefficient halved. */
static double chebyshev(double x, const double *coefficients, size_t count) {
  double before = 0;
  double last = 0;
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    before = last;
    last = sum;
    sum = x * last - before + coefficients[i];
  }
  return 0.5 * (sum - before);
}

#define CHEBYSHEV(x, table) chebyshev(x, table, COUNT(table))

/* Amplitudes of the cosine and of the sine above 5, and both of an angle behind. */
typedef struct wave {
  double cosine_amplitude;
  double sine_amplitude;
  double cosine;
  double sine;
} wave;

static wave wave_0(double x) {
  const double z = (5 / x) * (5 / x);
  const double scale = sqrt(two_over_pi / x);
  const wave found = {
      .cosine_amplitude = scale * RATIO(z, cosine0_numerator, cosine0_denominator),
      .sine_amplitude = scale * 5 / x * RATIO(z, sine0_numerator, sine0_denominator),
      /* Of `x - pi / 4`: the difference itself would be rounded. */
      .cosine = root_half * (sin(x) + cos(x)),
      .sine = root_half * (sin(x) - cos(x)),
  };
  return found;
}

static wave wave_1(double x) {
  const double z = (5 / x) * (5 / x);
  const double scale = sqrt(two_over_pi / x);
  const wave found = {
      .cosine_amplitude = scale * RATIO(z, cosine1_numerator, cosine1_denominator),
      .sine_amplitude = scale * 5 / x * RATIO(z, sine1_numerator, sine1_denominator),
      /* Of `x - 3 pi / 4`. */
      .cosine = root_half * (sin(x) - cos(x)),
      .sine = -root_half * (sin(x) + cos(x)),
  };
  return found;
}

static double bessel_j0(double x) {
  x = fabs(x);
  if (x <= 5) {
    const double z = x * x;
    if (x < 1e-5) {
      return 1 - z / 4;
    }
    return (z - j0_zeros[0]) * (z - j0_zeros[1]) * RATIO(z, j0_numerator, j0_denominator);
  }
  const wave w = wave_0(x);
  return w.cosine_amplitude * w.cosine - w.sine_amplitude * w.sine;
}

static double bessel_j1(double x) {
  if (x < 0) {
    return -bessel_j1(-x);
  }
  if (x <= 5) {
    const double z = x * x;
    return RATIO(z, j1_numerator, j1_denominator) * x * (z - j1_zeros[0]) * (z - j1_zeros[1]);
  }
  const wave w = wave_1(x);
  return w.cosine_amplitude * w.cosine - w.sine_amplitude * w.sine;
}

static double bessel_y0(double x) {
  if (x <= 0) {
    return x == 0 ? -(double)INFINITY : (double)NAN;
  }
  if (x <= 5) {
    return RATIO(x * x, y0_numerator, y0_denominator) + two_over_pi * log(x) * bessel_j0(x);
  }
  const wave w = wave_0(x);
  return w.cosine_amplitude * w.sine + w.sine_amplitude * w.cosine;
}

static double bessel_y1(double x) {
  if (x <= 0) {
    return x == 0 ? -(double)INFINITY : (double)NAN;
  }
  if (x <= 5) {
    const double regular = x * RATIO(x * x, y1_numerator, y1_denominator);
    return regular + two_over_pi * (bessel_j1(x) * log(x) - 1 / x);
  }
  const wave w = wave_1(x);
  return w.cosine_amplitude * w.sine + w.sine_amplitude * w.cosine;
}

/* `sum of (x / 2)^(2 k + order) / (k! (k + order)!)`: the modified function of the first kind, for small arguments. */
static double bessel_i_near(double x, int order) {
  const double z = x * x / 4;
  double term = order == 0 ? 1 : x / 2;
  double sum = term;
  for (double k = 1; fabs(term) > DBL_EPSILON / 4 * fabs(sum); k++) {
    term *= z / (k * (k + order));
    sum += term;
  }
  return sum;
}

static double bessel_scaled_k0(double x) {
  if (x <= 0) {
    return x == 0 ? (double)INFINITY : (double)NAN;
  }
  if (x <= 2) {
    return (CHEBYSHEV(x * x - 2, k0_near) - log(0.5 * x) * bessel_i_near(x, 0)) * exp(x);
  }
  return CHEBYSHEV(8 / x - 2, k0_far) / sqrt(x);
}

static double bessel_scaled_k1(double x) {
  if (x <= 0) {
    return x == 0 ? (double)INFINITY : (double)NAN;
  }
  if (x <= 2) {
    return (log(0.5 * x) * bessel_i_near(x, 1) + CHEBYSHEV(x * x - 2, k1_near) / x) * exp(x);
  }
  return CHEBYSHEV(8 / x - 2, k1_far) / sqrt(x);
}

static double bessel_k0(double x) { return bessel_scaled_k0(x) * exp(-x); }

static double bessel_k1(double x) { return bessel_scaled_k1(x) * exp(-x); }

/* No number at either infinity, as in eager mode. */
static double airy_ai(double x) {
  /* `1 / sqrt(pi)` */
  const double scale = 0.5641895835477563;
  if (isinf(x)) {
    return (double)NAN;
  }
  const double zeta = 2 * fabs(x) * sqrt(fabs(x)) / 3;
  if (x < -2.09) {
    const double z = 1 / zeta;
    const double sine = 1 + z * z * RATIO(z * z, airy_sine_numerator, airy_sine_denominator);
    const double cosine = z * RATIO(z * z, airy_cosine_numerator, airy_cosine_denominator);
    const double angle = zeta + pi / 4;
    return scale / sqrt(sqrt(-x)) * (sin(angle) * sine - cos(angle) * cosine);
  }
  if (x >= 2.09) {
    const double decay = 2 * sqrt(sqrt(x)) * exp(zeta);
    return scale * RATIO(1 / zeta, airy_numerator, airy_denominator) / decay;
  }
  /* `Ai(0) f - -Ai'(0) g`, by their power series. */
  const double z = x * x * x;
  double even = 1;
  double odd = x;
  double f = 1;
  double g = x;
  double k = 1;
  for (int i = 0; i < 40; i++) {
    even *= z / ((k + 1) * (k + 2));
    odd *= z / ((k + 2) * (k + 3));
    f += even;
    g += odd;
    k += 3;
  }
  return 0.3550280538878172 * f - 0.2588194037928068 * g;
}

/* Incomplete gamma functions, the zeta function and the inverse of the normal distribution. */

/* The logarithm of the gamma function of a number above 0, where the C library's need not store a sign. */
static double log_gamma(double x) { return lgamma(x); }

/* Most terms of a series or a fraction: about `6 sqrt(a)` are needed near `x = a`. */
enum { MOST_TERMS = 1 << 20 };

/* `x^a exp(-x) / gamma(a)`: for large `a`, where the three nearly cancel, by the distance of `x` from `a` and Stirling's series. */
static double density(double a, double x) {
  static const double terms[] = {-691.0 / 360360, 1.0 / 1188, -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12};
  if (a < 12) {
    return exp(a * log(x) - x - log_gamma(a));
  }
  const double excess = (x - a) / a;
  /* The first terms of the series: the next is below 1e-17 from 12 on. */
  const double stirling = POLYNOMIAL(1 / (a * a), terms) / a;
  return sqrt(a / (2 * pi)) * exp(a * (log1p(excess) - excess) - stirling);
}

/* The lower function by its power series. */
static double lower_series(double a, double x) {
  const double scale = density(a, x);
  double term = 1;
  double sum = 1;
  double at = a;
  if (scale == 0) {
    return 0;
  }
  for (int i = 0; i < MOST_TERMS; i++) {
    at += 1;
    term *= x / at;
    sum += term;
    if (term <= DBL_EPSILON / 2 * sum) {
      break;
    }
  }
  return sum * scale / a;
}

/* The upper function for small `x` and `a` (DLMF 8.7.3), which `1 - lower` would leave without digits. */
static double upper_series(double a, double x) {
  double factor = 1;
  double sum = 0;
  for (int n = 1; n < MOST_TERMS; n++) {
    factor *= -x / n;
    const double term = factor / (a + n);
    sum += term;
    if (fabs(term) <= DBL_EPSILON / 2 * fabs(sum)) {
      break;
    }
  }
  const double first = -expm1(a * log(x) - log_gamma(1 + a));
  return first - exp(a * log(x) - log_gamma(a)) * sum;
}

/* The upper function by its continued fraction (DLMF 8.9.2), evaluated by Lentz's method. */
static double upper_fraction(double a, double x) {
  const double tiny = 1e-300;
  double b = x + 1 - a;
  double c = 1 / tiny;
  double d = 1 / (b == 0 ? tiny : b);
  double fraction = d;
  for (int n = 1; n < MOST_TERMS; n++) {
    const double numerator = n * (a - n);
    b += 2;
    d = numerator * d + b;
    c = b + numerator / c;
    d = 1 / (d == 0 ? tiny : d);
    c = c == 0 ? tiny : c;
    fraction *= d * c;
    if (fabs(d * c - 1) <= DBL_EPSILON) {
      break;
    }
  }
  return density(a, x) * fraction;
}

/* The upper function where an argument is zero, infinite or outside of what it is defined for. */
static bool is_at_edge(double a, double x, double *upper) {
  if (isnan(x) || isnan(a) || x < 0 || a < 0) {
    *upper = (double)NAN;
  } else if (a == 0) {
    *upper = x > 0 ? 0 : (double)NAN;
  } else if (x == 0) {
    *upper = 1;
  } else if (isinf(a)) {
    *upper = isinf(x) ? (double)NAN : 1;
  } else if (isinf(x)) {
    *upper = 0;
  } else {
    return false;
  }
  return true;
}

static double gammainc(double a, double x) {
  double upper = 0;
  if (is_at_edge(a, x, &upper)) {
    return 1 - upper;
  }
  return x > 1 && x > a ? 1 - upper_fraction(a, x) : lower_series(a, x);
}

/* By the formulas that SciPy chooses between. */
static double gammaincc(double a, double x) {
  double upper = 0;
  if (is_at_edge(a, x, &upper)) {
    return upper;
  }
  if (x > 1.1) {
    return x < a ? 1 - lower_series(a, x) : upper_fraction(a, x);
  }
  const bool is_small = x <= 0.5 ? -0.4 / log(x) >= a : x * 1.1 >= a;
  return is_small ? upper_series(a, x) : 1 - lower_series(a, x);
}

/* `sum of 1 / (q + k)^x`: some terms, then the Euler-Maclaurin formula, as Cephes and ATen have it. */
static double zeta(double x, double q) {
  /* `(2 k)! / B(2 k)` */
  static const double terms[] = {
      12,
      -720,
      30240,
      -1209600,
      47900160,
      -1307674368000.0 / 691,
      74724249600.0,
      -10670622842880000.0 / 3617,
      5109094217170944000.0 / 43867,
      -802857662698291200000.0 / 174611,
      1.5511210043330986e23 / 854513,
      -1.6938241367317437e27 / 236364091,
  };
  if (x == 1) {
    return (double)INFINITY;
  }
  if (isnan(x) || isnan(q) || x < 1) {
    return (double)NAN;
  }
  if (q <= 0) {
    if (q == floor(q)) {
      return (double)INFINITY;
    }
    if (x != floor(x)) {
      return (double)NAN;
    }
  }
  double sum = pow(q, -x);
  double at = q;
  double power = 0;
  for (int steps = 0; steps < 9 || at <= 9; steps++) {
    at += 1;
    power = pow(at, -x);
    sum += power;
    if (fabs(power) < DBL_EPSILON / 2 * fabs(sum)) {
      return sum;
    }
  }
  sum += power * at / (x - 1) - 0.5 * power;
  double rising = 1;
  double k = 0;
  for (size_t i = 0; i < COUNT(terms); i++) {
    rising *= x + k;
    power /= at;
    const double term = rising * power / terms[i];
    sum += term;
    if (fabs(term / sum) < DBL_EPSILON / 2) {
      break;
    }
    rising *= x + k + 1;
    power /= at;
    k += 2;
  }
  return sum;
}

/* By ATen's rational starting points and Newton's method on whichever of erf and erfc is not near 1, so that the tails keep their precision. */
static double erfinv(double y) {
  static const double above[] = {-0.140543331, 0.914624893, -1.645349621, 0.886226899};
  static const double below[] = {0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0};
  static const double above_far[] = {1.641345311, 3.429567803, -1.624906493, -1.970840454};
  static const double below_far[] = {1.637067800, 3.543889200, 1.0};
  const double two_over_root_pi = 1.12837916709551257390;
  const double magnitude = fabs(y);
  const double complement = 1 - magnitude;
  if (isnan(y) || magnitude > 1) {
    return (double)NAN;
  }
  if (magnitude == 1) {
    return copysign((double)INFINITY, y);
  }
  const double z = magnitude * magnitude;
  const double far = sqrt(-log(complement / 2));
  double x = magnitude <= 0.7 ? magnitude * POLYNOMIAL(z, above) / POLYNOMIAL(z, below)
                              : POLYNOMIAL(far, above_far) / POLYNOMIAL(far, below_far);
  for (int i = 0; i < 3; i++) {
    const double error = magnitude <= 0.7 ? erf(x) - magnitude : complement - erfc(x);
    x -= error / (two_over_root_pi * exp(-x * x));
  }
  return copysign(x, y);
}

/* The derivative of the logarithm of the gamma function: by its recurrence up to 10, then the asymptotic series in Bernoulli numbers, and by
 * reflection below 0. */
static double digamma(double x) {
  static const double series[] = {1.0 / 12, -691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252, -1.0 / 120, 1.0 / 12};
  double below = 0;
  if (x == 0) {
    return copysign((double)INFINITY, -x);
  }
  if (x < 0) {
    /* The distance to the nearest pole, which is exact: near one it makes all of the result. */
    const double fraction = x - round(x);
    if (fraction == 0 || isinf(x)) {
      return (double)NAN;
    }
    return digamma(1 - x) - pi / tan(pi * fraction);
  }
  while (x < 10) {
    below -= 1 / x;
    x += 1;
  }
  const double z = 1 / (x * x);
  return log(x) - 0.5 / x - z * POLYNOMIAL(z, series) + below;
}

double lz_erfinv_f64(double x) { return erfinv(x); }

float lz_erfinv_f32(float x) { return (float)erfinv((double)x); }

double lz_digamma_f64(double x) { return digamma(x); }

float lz_digamma_f32(float x) { return (float)digamma((double)x); }

/* By the inverse error function, in the tails by Newton's method on logarithms. */
static double ndtri(double y) {
  /* `exp(-2)` */
  const double tail_begins = 0.1353352832366127;
  if (y == 0 || y == 1) {
    return y == 0 ? -(double)INFINITY : (double)INFINITY;
  }
  if (isnan(y) || y < 0 || y > 1) {
    return (double)NAN;
  }
  if (y > tail_begins && y < 1 - tail_begins) {
    return sqrt(2) * erfinv(2 * y - 1);
  }
  const double tail = y < 0.5 ? y : 1 - y;
  const double far = sqrt(-2 * log(tail));
  double x = far - (log(far) + 0.5 * log(2 * pi)) / far;
  for (int i = 0; i < 6; i++) {
    const double above = 0.5 * erfc(x * root_half);
    const double slope = exp(-0.5 * x * x) / sqrt(2 * pi);
    x += above / slope * log(above / tail);
  }
  return y < 0.5 ? -x : x;
}

/* Polynomials. */

/* The degree up to which polynomials are computed, step by step: eager mode goes on for hours. */
static const int64_t most_steps = 1 << 24;

/* A degree as an integer; what is none of 64 bits counts as negative. */
static int64_t degree_of(double n) { return fabs(n) < 0x1p63 ? (int64_t)n : -1; }

static double hermite(double x, double n, double factor, litz_dtype dtype) {
  const int64_t degree = degree_of(n);
  double before = 1;
  double last = factor * x;
  if (degree < 0) {
    return 0;
  }
  if (degree > (dtype == LITZ_F32 ? 128 : 512)) {
    return (double)NAN;
  }
  if (degree == 0) {
    return 1;
  }
  for (int64_t k = 2; k <= degree && !isnan(last); k++) {
    const double next = factor * (x * last - ((double)k - 1) * before);
    before = last;
    last = next;
  }
  return last;
}

static double laguerre(double x, double n) {
  const int64_t degree = degree_of(n);
  double before = 1;
  double last = 1 - x;
  if (degree < 0) {
    return 0;
  }
  if (x == 0 || degree == 0) {
    return 1;
  }
  if (degree > most_steps) {
    return (double)NAN;
  }
  for (int64_t i = 2; i <= degree && !isnan(last); i++) {
    const double k = (double)i;
    const double next = ((2 * k - 1 - x) * last - (k - 1) * before) / k;
    before = last;
    last = next;
  }
  return last;
}

static double legendre(double x, double n) {
  const int64_t degree = degree_of(n);
  double before = 1;
  double last = x;
  if (degree < 0) {
    return 0;
  }
  if (fabs(x) == 1) {
    return degree % 2 == 0 ? 1 : x;
  }
  if (degree == 0) {
    return 1;
  }
  if (degree > most_steps) {
    return (double)NAN;
  }
  for (int64_t i = 2; i <= degree && !isnan(last); i++) {
    const double k = (double)i;
    const double next = ((2 * k - 1) * x * last - (k - 1) * before) / k;
    before = last;
    last = next;
  }
  return last;
}

/* Application to buffers. */

static bool fits(litz_call *call, const litz_buffer *buffers, int count, litz_dtype dtype, int64_t elements) {
  for (int i = 0; i < count; i++) {
    if (buffers[i].dtype != dtype || !litz_fits(&call->bad, buffers[i].memory, elements, litz_dtype_bytes(dtype))) {
      return false;
    }
  }
  return elements >= 0 && !call->bad;
}

static bool apply(litz_call *call, const litz_buffer *reads, int count, const litz_buffer *writes, int64_t elements,
                  double (*function)(litz_dtype dtype, double a, double b)) {
  const litz_dtype dtype = writes[0].dtype;
  const bool is_single = dtype == LITZ_F32;
  if ((dtype != LITZ_F32 && dtype != LITZ_F64) || !fits(call, reads, count, dtype, elements) ||
      !fits(call, writes, 1, dtype, elements)) {
    return litz_bug(call, "a function of elements has buffers that do not fit");
  }
  for (int64_t i = 0; i < elements; i++) {
    double operands[2] = {0, 0};
    for (int k = 0; k < count; k++) {
      const void *data = reads[k].memory.data;
      operands[k] = is_single ? (double)((const float *)data)[i] : ((const double *)data)[i];
    }
    const double result = function(dtype, operands[0], operands[1]);
    void *to = writes[0].memory.data;
    if (is_single) {
      ((float *)to)[i] = (float)result;
    } else {
      ((double *)to)[i] = result;
    }
  }
  return true;
}

#define OF_ONE(name, function)                                                                                     \
  static double name##_of(litz_dtype dtype, double a, double b) {                                                  \
    (void)dtype;                                                                                                   \
    (void)b;                                                                                                       \
    return function(a);                                                                                            \
  }                                                                                                                \
  bool litz_##name(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {     \
    return apply(call, reads, 1, writes, ints[0], name##_of);                                                      \
  }

#define OF_TWO(name, expression)                                                                                   \
  static double name##_of(litz_dtype dtype, double a, double b) {                                                  \
    (void)dtype;                                                                                                   \
    return expression;                                                                                             \
  }                                                                                                                \
  bool litz_##name(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {     \
    return apply(call, reads, 2, writes, ints[0], name##_of);                                                      \
  }

OF_ONE(airy_ai, airy_ai)
OF_ONE(bessel_j0, bessel_j0)
OF_ONE(bessel_j1, bessel_j1)
OF_ONE(bessel_k0, bessel_k0)
OF_ONE(bessel_k1, bessel_k1)
OF_ONE(bessel_scaled_k0, bessel_scaled_k0)
OF_ONE(bessel_scaled_k1, bessel_scaled_k1)
OF_ONE(bessel_y0, bessel_y0)
OF_ONE(bessel_y1, bessel_y1)
OF_ONE(ndtri, ndtri)
OF_TWO(gammainc, gammainc(a, b))
OF_TWO(gammaincc, gammaincc(a, b))
OF_TWO(hermite_h, hermite(a, b, 2, dtype))
OF_TWO(hermite_he, hermite(a, b, 1, dtype))
OF_TWO(laguerre_l, laguerre(a, b))
OF_TWO(legendre_p, legendre(a, b))
OF_TWO(zeta, zeta(a, b))

/* The greatest common divisor by Euclid's algorithm, whose signs are those of the operands' remainders. */
bool litz_gcd(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  if (!fits(call, reads, 2, LITZ_I64, ints[0]) || !fits(call, writes, 1, LITZ_I64, ints[0])) {
    return litz_bug(call, "gcd has buffers that do not fit");
  }
  const int64_t *as = (const void *)reads[0].memory.data;
  const int64_t *bs = (const void *)reads[1].memory.data;
  int64_t *divisors = (void *)writes[0].memory.data;
  for (int64_t i = 0; i < ints[0]; i++) {
    int64_t a = as[i];
    int64_t b = bs[i];
    while (a != 0) {
      const int64_t rest = a == -1 ? 0 : b % a;
      b = a;
      a = rest;
    }
    divisors[i] = b;
  }
  return true;
}
