/* Defines a model as the support code sees it: its memory, its threads, and whose turn it is. */
#ifndef LITZ_MODEL_H
#define LITZ_MODEL_H

#include "litz_support.h"

#include <pthread.h>

/* Threads that run the chunks of one launch at a time, the caller of it among them. */
typedef struct litz_pool litz_pool;

/* A pool of so many threads, or fewer where the system refuses one; NULL where it has no memory. */
litz_pool *litz_pool_new(int threads);
void litz_pool_free(litz_pool *pool);
int litz_pool_threads(const litz_pool *pool);

/* A launch. What a chunk computes does not depend on who runs it. */
typedef struct litz_job {
  litz_code *code;
  unsigned char *const *args;
  const int64_t *sizes;
  int64_t points;
  int64_t grain;
  int64_t chunks;
  /* Each thread has a piece of so many bytes. */
  unsigned char *scratch;
  int64_t scratch_bytes;
} litz_job;

/* Runs a launch to its end; returns the least status other than 0 that a chunk gave. */
int64_t litz_pool_run(litz_pool *pool, const litz_job *job);

/* A piece of memory that calls use. */
typedef struct litz_block {
  unsigned char *data;
  int64_t bytes;
} litz_block;

/* Blocks that are in use, in the order in which they were taken, and others that wait for the next who needs one. */
typedef struct litz_arena {
  litz_block *used;
  int used_count;
  int used_room;
  litz_block *idle;
  int idle_count;
  int idle_room;
} litz_arena;

struct litz_model {
  const litz_program *program;
  litz_pool *pool;
  litz_arena arena;
  /* The file of weights, of which the process has a copy of each page that it writes to. */
  unsigned char *weights;
  litz_memory *kept;
  /* Addresses of a launch's arguments. */
  unsigned char **args;
  litz_memory scratch;
  pthread_mutex_t turn;
  bool is_state_lost;
};

/* Memory that begins at a multiple of LITZ_ALIGNMENT; NULL where there is none. Zero bytes are some as well. */
unsigned char *litz_aligned(int64_t bytes);

/* Copies elements from one layout to another. */
void litz_copy_strided(int64_t size, int rank, const int64_t *sizes, const unsigned char *from,
                       const int64_t *from_strides, unsigned char *to, const int64_t *to_strides);

#endif
