/*
 * Eight threads call two models that share constants, while another one gives both constants the same new contents so many times: the results
 * of each call say that it saw both or neither. Then the memory of the process is what it was at the beginning.
 *
 *     threads PATH SWAPS MOST_GROWTH_IN_BYTES
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 8, SIDE = 32 };

static litz_model *models[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int is_over = 0;
static long calls = 0;

static int over(long made) {
  pthread_mutex_lock(&lock);
  calls += made;
  int result = is_over;
  pthread_mutex_unlock(&lock);
  return result;
}

static void *call(void *argument) {
  litz_model *model = models[*(int *)argument % 2];
  float x[2 * SIDE], last = 0;
  int64_t sizes[] = {2, SIDE};
  for (int at = 0; at < 2 * SIDE; ++at) x[at] = 1.0f;
  litz_tensor input = floats(x, 2, sizes);
  litz_outputs *outputs = NULL;
  while (!over(1)) {
    OK(litz_model_run(model, &input, 1, &outputs));
    float *product = tensor_at(outputs, 0).data, *difference = tensor_at(outputs, 1).data;
    for (int at = 0; at < 2 * SIDE; ++at) CHECK(product[at] == product[0] && difference[at] == 0.0f);
    CHECK(product[0] >= last); /* A later call does not see older constants. */
    last = product[0];
  }
  litz_outputs_free(outputs);
  return NULL;
}

static long resident(void) {
  long pages = 0, all = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file != NULL && fscanf(file, "%ld %ld", &all, &pages) == 2);
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv) {
  CHECK(argc == 4);
  int swaps = atoi(argv[2]);
  long most = atol(argv[3]), before = 0;
  OK(litz_model_open(argv[1], "threads=2\nbind=false", NULL, &models[0]));
  OK(litz_model_share(models[0], 1, &models[1]));
  pthread_t threads[THREADS];
  int numbers[THREADS];
  for (int at = 0; at < THREADS; ++at) {
    numbers[at] = at;
    CHECK(pthread_create(&threads[at], NULL, call, &numbers[at]) == 0);
  }
  static float contents[SIDE * SIDE];
  int64_t sizes[] = {SIDE, SIDE};
  litz_tensor tensor = floats(contents, 2, sizes);
  litz_update *update = NULL;
  OK(litz_update_new(models[0], &update));
  for (int swap = 1; swap <= swaps; ++swap) {
    for (int at = 0; at < SIDE * SIDE; ++at) contents[at] = (float)(2 + swap);
    OK(litz_update_set(update, "a", &tensor));
    OK(litz_update_set(update, "b", &tensor));
    if (swap % 2) OK(litz_update_fold(update));
    OK(litz_update_swap(update));
    if (swap == swaps / 4) before = resident();
  }
  long after = resident();
  pthread_mutex_lock(&lock);
  is_over = 1;
  pthread_mutex_unlock(&lock);
  for (int at = 0; at < THREADS; ++at) CHECK(pthread_join(threads[at], NULL) == 0);
  litz_update_free(update);
  litz_model_close(models[0]);
  litz_model_close(models[1]);
  if (after - before > most) {
    fprintf(stderr, "memory grew by %ld bytes, expected at most %ld\n", after - before, most);
    return 1;
  }
  printf("%d swaps, %ld calls\n", swaps, calls);
  return 0;
}
