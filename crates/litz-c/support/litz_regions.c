/* Resamples regions of images to one size, where each region decides how many pixels a result sees: as torchvision's kernels for CPUs do it, in
 * the type of the pixels. */
#include "litz_routines.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* A call. Numbers are computed with in double precision and rounded to the type of the pixels after each operation, which gives that
 * type's own results. */
typedef struct regions {
  /* Images, channels, height and width. */
  const int64_t *images;
  /* Regions, channels, rows and columns of bins. */
  const int64_t *results;
  bool is_single;
  const void *pixels;
  const int64_t *numbers;
  const void *boxes;
  double scale;
  void *out;
} regions;

static double rounded(const regions *r, double number) { return r->is_single ? (double)(float)number : number; }

static double element(const regions *r, const void *data, int64_t at) {
  return r->is_single ? (double)((const float *)data)[at] : ((const double *)data)[at];
}

static void store(const regions *r, int64_t at, double number) {
  if (r->is_single) {
    ((float *)r->out)[at] = (float)number;
  } else {
    ((double *)r->out)[at] = number;
  }
}

/* A number without its fraction as C's `int`, where that holds it; what is no number is the least. */
static int64_t whole(double number) {
  if (isnan(number) || number <= INT32_MIN) {
    return INT32_MIN;
  }
  return number >= INT32_MAX ? INT32_MAX : (int64_t)number;
}

static bool prepare(litz_call *call, regions *r, const litz_buffer *reads, litz_buffer out, const int64_t *ints,
                    bool is_apart) {
  const litz_dtype dtype = out.dtype;
  const int64_t size = litz_dtype_bytes(dtype);
  const int64_t bins = litz_mul(&call->bad, ints[6], ints[7]);
  const int64_t channels = is_apart ? litz_mul(&call->bad, ints[5], bins) : ints[5];
  const int64_t elements = litz_product(&call->bad, 4, ints);
  const int64_t count = litz_product(&call->bad, 4, ints + 4);
  bool is_sound = (dtype == LITZ_F32 || dtype == LITZ_F64) && reads[0].dtype == dtype && reads[2].dtype == dtype &&
                  reads[1].dtype == LITZ_I64 && reads[3].dtype == LITZ_F64 && channels == ints[1];
  for (int i = 0; i < 8; i++) {
    is_sound = is_sound && ints[i] >= 0;
  }
  is_sound = is_sound && litz_fits(&call->bad, reads[0].memory, elements, size) &&
             litz_fits(&call->bad, reads[1].memory, ints[4], 8) &&
             litz_fits(&call->bad, reads[2].memory, litz_mul(&call->bad, ints[4], 5), size) &&
             litz_fits(&call->bad, reads[3].memory, 1, 8) && litz_fits(&call->bad, out.memory, count, size);
  if (!is_sound || call->bad) {
    return litz_bug(call, "regions of images have buffers that do not fit");
  }
  r->images = ints;
  r->results = ints + 4;
  r->is_single = dtype == LITZ_F32;
  r->pixels = reads[0].memory.data;
  r->numbers = (const void *)reads[1].memory.data;
  r->boxes = reads[2].memory.data;
  r->out = out.memory.data;
  memcpy(&r->scale, reads[3].memory.data, sizeof r->scale);
  for (int64_t i = 0; i < ints[4]; i++) {
    if (r->numbers[i] < 0 || r->numbers[i] >= ints[0]) {
      return litz_bug(call, "a region is of an image that there is not");
    }
  }
  return true;
}

/* Both ends of a region in pixels along a dimension, height (0) or width (1). A region is something, left, top, right and bottom. */
static void ends_of(const regions *r, int64_t region, int dim, double *ends) {
  const int64_t first = region * 5 + (dim == 0 ? 2 : 1);
  for (int i = 0; i < 2; i++) {
    ends[i] = rounded(r, element(r, r->boxes, first + 2 * i) * rounded(r, r->scale));
  }
}

/* The first place of a channel. */
static int64_t plane_of(const regions *r, int64_t region, int64_t channel) {
  return (r->numbers[region] * r->images[1] + channel) * r->images[2] * r->images[3];
}

typedef struct range {
  int64_t from;
  int64_t to;
} range;

static int64_t clamped(int64_t place, int64_t limit) { return litz_max(0, litz_min(place, limit)); }

/* The pixels of a bin of a region along a dimension. Ends are rounded to pixels; `last` of them belong to the region's end, and pixels from
 * `limit` on to no bin. */
static range bin_of(const regions *r, int64_t region, int dim, int64_t bin, int64_t last, int64_t limit) {
  double ends[2];
  ends_of(r, region, dim, ends);
  const int64_t start = whole(round(ends[0]));
  const int64_t length = litz_max(whole(round(ends[1])) - start + last, 1);
  const double size = rounded(r, rounded(r, (double)length) / rounded(r, (double)r->results[2 + dim]));
  const double low = rounded(r, rounded(r, (double)bin) * size);
  const double high = rounded(r, rounded(r, (double)(bin + 1)) * size);
  const range found = {clamped(whole(floor(low)) + start, limit), clamped(whole(ceil(high)) + start, limit)};
  return found;
}

bool litz_roi_pool(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  regions r = {0};
  LITZ_TRY(prepare(call, &r, reads, writes[0], ints, false));
  const int64_t count = litz_product(&call->bad, 4, ints + 4);
  if (writes[1].dtype != LITZ_I32 || !litz_fits(&call->bad, writes[1].memory, count, 4)) {
    return litz_bug(call, "there is no room for the places of regions");
  }
  int32_t *places = (void *)writes[1].memory.data;
  const int64_t width = ints[3];
  for (int64_t at = 0; at < count; at++) {
    const int64_t column = at % ints[7];
    const int64_t row = at / ints[7] % ints[6];
    const int64_t channel = at / ints[7] / ints[6] % ints[5];
    const int64_t region = at / ints[7] / ints[6] / ints[5];
    const range rows = bin_of(&r, region, 0, row, 1, ints[2]);
    const range columns = bin_of(&r, region, 1, column, 1, width);
    const int64_t plane = plane_of(&r, region, channel);
    const bool is_empty = rows.from >= rows.to || columns.from >= columns.to;
    double largest = is_empty ? 0 : -(double)FLT_MAX;
    int64_t place = -1;
    for (int64_t i = rows.from; i < rows.to; i++) {
      for (int64_t j = columns.from; j < columns.to; j++) {
        const double value = element(&r, r.pixels, plane + i * width + j);
        if (value > largest) {
          largest = value;
          place = i * width + j;
        }
      }
    }
    store(&r, at, largest);
    places[at] = (int32_t)place;
  }
  return true;
}

bool litz_ps_roi_pool(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  regions r = {0};
  LITZ_TRY(prepare(call, &r, reads, writes[0], ints, true));
  const int64_t count = litz_product(&call->bad, 4, ints + 4);
  const int64_t width = ints[3];
  for (int64_t at = 0; at < count; at++) {
    const int64_t column = at % ints[7];
    const int64_t row = at / ints[7] % ints[6];
    const int64_t region = at / ints[7] / ints[6] / ints[5];
    /* The last row and column belong to no bin in torchvision's kernel for CPUs. */
    const range rows = bin_of(&r, region, 0, row, 0, litz_max(ints[2] - 1, 0));
    const range columns = bin_of(&r, region, 1, column, 0, litz_max(width - 1, 0));
    const int64_t plane = plane_of(&r, region, at % (ints[5] * ints[6] * ints[7]));
    double sum = 0;
    for (int64_t i = rows.from; i < rows.to; i++) {
      for (int64_t j = columns.from; j < columns.to; j++) {
        sum = rounded(&r, sum + element(&r, r.pixels, plane + i * width + j));
      }
    }
    const int64_t pixels = litz_max(rows.to - rows.from, 0) * litz_max(columns.to - columns.from, 0);
    store(&r, at, pixels == 0 ? sum : sum / rounded(&r, (double)pixels));
  }
  return true;
}

/* The points of a bin along a dimension. */
typedef struct points {
  double start;
  double size;
  /* As many as the bin is long, at equal distances. */
  int64_t count;
  /* Those that may lie on an image; a bin can have many more than that. */
  range near;
  int64_t limit;
} points;

static points points_of(const regions *r, int64_t region, int dim, int64_t bin, bool is_aligned) {
  const double half = is_aligned ? 0.5 : 0;
  double ends[2];
  points found = {0};
  ends_of(r, region, dim, ends);
  ends[0] = rounded(r, ends[0] - half);
  ends[1] = rounded(r, ends[1] - half);
  double length = rounded(r, ends[1] - ends[0]);
  if (!is_aligned && length < 1) {
    length = 1;
  }
  found.limit = r->images[2 + dim];
  found.size = rounded(r, length / rounded(r, (double)r->results[2 + dim]));
  found.start = rounded(r, ends[0] + rounded(r, rounded(r, (double)bin) * found.size));
  /* An endless bin, as one whose length is no number, has no points. */
  found.count = isfinite(found.size) ? whole(ceil(found.size)) : 0;
  if (found.count >= 1) {
    const double step = found.size / (double)found.count;
    const double epsilon = r->is_single ? (double)FLT_EPSILON : DBL_EPSILON;
    const double slack = 8 + 16 * epsilon * (fabs(found.start) + fabs(found.size)) / step;
    const double first = fmax((-1 - found.start) / step - slack, 0);
    const double last = fmin(((double)found.limit - found.start) / step + slack, (double)found.count);
    found.near.from = first < (double)found.count ? (int64_t)first : found.count;
    found.near.to = last > 0 ? (int64_t)last : 0;
  }
  return found;
}

/* Two pixels along a dimension around a point, and the weight of the second. */
typedef struct between {
  int64_t pixels[2];
  double weight;
} between;

/* Nothing around a point that is more than a pixel outside of the image. */
static bool around(const regions *r, const points *p, int64_t point, between *found) {
  const double offset = rounded(r, rounded(r, rounded(r, (double)point + 0.5) * p->size) / rounded(r, (double)p->count));
  const double place = rounded(r, p->start + offset);
  if (!(place >= -1 && place <= (double)p->limit) || p->limit < 1) {
    return false;
  }
  const double inside = place <= 0 ? 0 : place;
  const int64_t low = (int64_t)inside;
  const int64_t last = p->limit - 1;
  found->pixels[0] = low >= last ? last : low;
  found->pixels[1] = low >= last ? last : low + 1;
  found->weight = low >= last ? 0 : rounded(r, inside - rounded(r, (double)low));
  return true;
}

static double weighted(const regions *r, double a, double b, double pixel) {
  return rounded(r, rounded(r, a * b) * pixel);
}

bool litz_roi_align(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints) {
  regions r = {0};
  const bool is_aligned = ints[8] == 1;
  const bool is_apart = ints[9] == 1;
  LITZ_TRY(prepare(call, &r, reads, writes[0], ints, is_apart));
  const int64_t count = litz_product(&call->bad, 4, ints + 4);
  const int64_t width = ints[3];
  for (int64_t at = 0; at < count; at++) {
    const int64_t column = at % ints[7];
    const int64_t row = at / ints[7] % ints[6];
    const int64_t region = at / ints[7] / ints[6] / ints[5];
    const int64_t channel = at / ints[7] / ints[6] % ints[5];
    const int64_t plane =
        plane_of(&r, region, is_apart ? at % (ints[5] * ints[6] * ints[7]) : channel);
    const points rows = points_of(&r, region, 0, row, is_aligned);
    const points columns = points_of(&r, region, 1, column, is_aligned);
    const double all = (double)rows.count * (double)columns.count;
    double sum = 0;
    for (int64_t i = rows.near.from; i < rows.near.to; i++) {
      between y;
      if (!around(&r, &rows, i, &y)) {
        continue;
      }
      for (int64_t j = columns.near.from; j < columns.near.to; j++) {
        between x;
        if (!around(&r, &columns, j, &x)) {
          continue;
        }
        const double low = rounded(&r, 1 - y.weight);
        const double left = rounded(&r, 1 - x.weight);
        const int64_t above = plane + y.pixels[0] * width;
        const int64_t below = plane + y.pixels[1] * width;
        double term = weighted(&r, low, left, element(&r, r.pixels, above + x.pixels[0]));
        term = rounded(&r, term + weighted(&r, low, x.weight, element(&r, r.pixels, above + x.pixels[1])));
        term = rounded(&r, term + weighted(&r, y.weight, left, element(&r, r.pixels, below + x.pixels[0])));
        term = rounded(&r, term + weighted(&r, y.weight, x.weight, element(&r, r.pixels, below + x.pixels[1])));
        sum = rounded(&r, sum + term);
      }
    }
    store(&r, at, sum / rounded(&r, is_apart ? all : fmax(all, 1)));
  }
  return true;
}
