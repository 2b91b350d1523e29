/* Ends a test program at the first thing that is not as it should be, with the line and the library's message. */
#ifndef CHECK_H
#define CHECK_H

#include <litz.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                             \
  do {                                                                                                               \
    if (!(condition)) {                                                                                              \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, litz_last_error());                         \
      exit(1);                                                                                                       \
    }                                                                                                                \
  } while (0)

#define OK(call) CHECK((call) == LITZ_OK)

/* The call fails so, with these words in its message. */
#define FAILS(call, status, words)                                                                                   \
  do {                                                                                                               \
    CHECK((call) == (status));                                                                                       \
    CHECK(strstr(litz_last_error(), (words)) != NULL);                                                               \
  } while (0)

static inline litz_tensor floats(float *data, int32_t rank, const int64_t *sizes) {
  litz_tensor tensor;
  tensor.data = data;
  tensor.dtype = LITZ_F32;
  tensor.rank = rank;
  tensor.sizes = sizes;
  tensor.strides = NULL;
  return tensor;
}

static inline litz_value value_at(const litz_outputs *outputs, size_t index) {
  litz_value value;
  OK(litz_outputs_get(outputs, index, &value));
  return value;
}

static inline litz_tensor tensor_at(const litz_outputs *outputs, size_t index) {
  litz_value value = value_at(outputs, index);
  CHECK(value.kind == LITZ_KIND_TENSOR);
  return value.of.tensor;
}

#endif
