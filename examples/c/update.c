/* Gives a model new weights while another thread calls it, from C.
 *
 *     target/release/litz compile examples/digits.pt2 --updatable -o digits.litzc
 *     cc examples/c/update.c -o update -lpthread $(PKG_CONFIG_PATH=target/c/lib/pkgconfig pkg-config --cflags --libs litz)
 *     LD_LIBRARY_PATH=target/c/lib ./update digits.litzc
 */
#define _POSIX_C_SOURCE 200809L
#include <litz.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { CALLS = 1000, MOST_FLOATS = 1 << 20 };

static void expect(litz_status status) {
  if (status == LITZ_OK) return;
  fprintf(stderr, "%s\n", litz_last_error());
  exit(1);
}

/* The first score of an empty image. */
static float call(litz_model *model, litz_outputs **outputs) {
  static float image[64];
  const int64_t sizes[] = {1, 1, 8, 8};
  const litz_tensor input = {image, LITZ_F32, 4, sizes, NULL};
  litz_value value;
  expect(litz_model_run(model, &input, 1, outputs));
  expect(litz_outputs_get(*outputs, 0, &value));
  return ((float *)value.of.tensor.data)[0];
}

/* Counts the calls that see the weights from before, those that see others, and mixtures. */
static void *serve(void *argument) {
  litz_model *model = argument;
  litz_outputs *outputs = NULL;
  const float before = call(model, &outputs);
  int old = 0, zero = 0, mixed = 0;
  for (int at = 0; at < CALLS; ++at) {
    const float score = call(model, &outputs);
    *(score == before ? &old : score == 0.0f ? &zero : &mixed) += 1;
  }
  litz_outputs_free(outputs);
  printf("%d calls saw a mixture\n", mixed);
  return mixed ? argument : NULL;
}

int main(int argc, char **argv) {
  litz_model *model = NULL;
  litz_update *update = NULL;
  expect(litz_model_open(argc > 1 ? argv[1] : "digits.litzc", "threads=2", NULL, &model));
  pthread_t thread;
  if (pthread_create(&thread, NULL, serve, model) != 0) return 1;

  /* All weights are zero from one call to the next. */
  static float zeros[MOST_FLOATS];
  expect(litz_update_new(model, &update));
  for (size_t at = 0; at < litz_model_constant_count(model); ++at) {
    litz_type constant;
    expect(litz_model_constant(model, at, &constant));
    size_t elements = 1;
    for (size_t dim = 0; dim < constant.rank; ++dim) elements *= (size_t)constant.sizes[dim];
    if (constant.dtype != LITZ_F32 || elements > MOST_FLOATS) return 1;
    const litz_tensor contents = {zeros, LITZ_F32, (int32_t)constant.rank, constant.sizes, NULL};
    expect(litz_update_set(update, constant.name, &contents));
  }
  expect(litz_update_swap(update));

  void *failed = NULL;
  pthread_join(thread, &failed);
  litz_outputs *outputs = NULL;
  const float after = call(model, &outputs);
  printf("it is %g\n", (double)after);
  litz_outputs_free(outputs);
  litz_update_free(update);
  litz_model_close(model);
  return failed != NULL;
}
