/* Gives a model other weights and its own again while threads call it, from C.
 *
 *     target/release/litz compile examples/digits.pt2 --updatable -o digits.litzc
 *     cc examples/c/update.c -o update -lpthread $(PKG_CONFIG_PATH=target/c/lib/pkgconfig pkg-config --cflags --libs litz)
 *     LD_LIBRARY_PATH=target/c/lib ./update digits.litzc [THREADS [SWAPS]]
 */
#define _POSIX_C_SOURCE 200809L
#include <litz.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { CALLS = 1000, MOST_THREADS = 64 };

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

/* What a thread calls, and what it finds. */
struct server {
  litz_model *model;
  float before; /* The score with the model's own weights. */
  int mixed;    /* Calls that saw neither these nor zeros. */
};

static void *serve(void *argument) {
  struct server *server = argument;
  litz_outputs *outputs = NULL;
  for (int at = 0; at < CALLS; ++at) {
    const float score = call(server->model, &outputs);
    server->mixed += score != server->before && score != 0.0f;
  }
  litz_outputs_free(outputs);
  return NULL;
}

/* Elements of a constant. */
static size_t elements_of(const litz_type *constant) {
  size_t elements = 1;
  for (size_t dim = 0; dim < constant->rank; ++dim) elements *= (size_t)constant->sizes[dim];
  return elements;
}

/* Sets all constants: to zeros, or to what the model had in the beginning, one constant after another. */
static void set_all(litz_model *model, litz_update *update, float *contents) {
  for (size_t at = 0; at < litz_model_constant_count(model); ++at) {
    litz_type constant;
    expect(litz_model_constant(model, at, &constant));
    const litz_tensor tensor = {contents, LITZ_F32, (int32_t)constant.rank, constant.sizes, NULL};
    expect(litz_update_set(update, constant.name, &tensor));
    contents += elements_of(&constant);
  }
}

/* The elements of all constants together, which it copies behind each other if there is a place for them. */
static size_t read_all(litz_model *model, float *contents) {
  size_t all = 0;
  for (size_t at = 0; at < litz_model_constant_count(model); ++at) {
    litz_type constant;
    expect(litz_model_constant(model, at, &constant));
    if (constant.dtype != LITZ_F32) exit(1);
    const size_t elements = elements_of(&constant);
    if (contents) expect(litz_model_read_constant(model, constant.name, contents + all, 4 * elements));
    all += elements;
  }
  return all;
}

int main(int argc, char **argv) {
  const int threads = argc > 2 ? atoi(argv[2]) : 1, swaps = argc > 3 ? atoi(argv[3]) : 1;
  if (threads < 1 || threads > MOST_THREADS) return 1;
  litz_model *model = NULL;
  expect(litz_model_open(argc > 1 ? argv[1] : "digits.litzc", "threads=2", NULL, &model));
  const size_t elements = read_all(model, NULL);
  float *own = malloc(4 * elements), *zeros = calloc(elements, 4);
  if (!own || !zeros) return 1;
  read_all(model, own);

  litz_outputs *outputs = NULL;
  pthread_t running[MOST_THREADS];
  struct server servers[MOST_THREADS];
  for (int at = 0; at < threads; ++at) {
    servers[at] = (struct server){model, call(model, &outputs), 0};
  }
  for (int at = 0; at < threads; ++at) {
    if (pthread_create(&running[at], NULL, serve, &servers[at]) != 0) return 1;
  }

  /* All weights are others from one call to the next. The last ones are zeros. */
  litz_update *update = NULL;
  expect(litz_update_new(model, &update));
  for (int swap = swaps; swap > 0; --swap) {
    set_all(model, update, swap % 2 ? zeros : own);
    expect(litz_update_swap(update));
  }

  int mixed = 0;
  for (int at = 0; at < threads; ++at) {
    pthread_join(running[at], NULL);
    mixed += servers[at].mixed;
  }
  printf("%d calls saw a mixture\nit is %g\n", mixed, (double)call(model, &outputs));
  litz_outputs_free(outputs);
  litz_update_free(update);
  litz_model_close(model);
  free(own);
  free(zeros);
  return mixed != 0;
}
