/* Runs the chunks of launches on a pool of threads. */
#define _POSIX_C_SOURCE 200809L
/* For `syscall`. */
#define _DEFAULT_SOURCE

#include "litz_model.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>

/* Asks for the state of tile registers (AMX), which kernels for processors that have them use: Linux keeps it for processes that ask. It refuses where the
 * processor has none, which kernels for others do without. (arch_prctl(2), ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA.) */
static void ask_for_tiles(void) {
  syscall(SYS_arch_prctl, 0x1023, 18);
}
#else
static void ask_for_tiles(void) {}
#endif

typedef struct worker {
  litz_pool *pool;
  pthread_t thread;
  int number;
} worker;

struct litz_pool {
  pthread_mutex_t lock;
  /* A launch has begun, or the pool ends. */
  pthread_cond_t begun;
  /* The last worker is done with a launch. */
  pthread_cond_t done;
  worker *workers;
  int worker_count;
  const litz_job *job;
  /* Counts launches, around 2^32. Threads that spin look at it, and at `active`, without the lock. */
  uint32_t launches;
  /* The first chunk that nobody has taken. */
  int64_t next;
  /* Workers that have not come to the end of the current launch. */
  uint32_t active;
  int64_t failed;
  bool is_closing;
  /* Whether there is a core for each thread: those that wait spin for a while then. */
  bool has_cores;
};

/* Nanoseconds that a thread looks for work before it sleeps: kernels follow each other within microseconds, and waking takes about 40. */
static const int64_t spin_time = 50000;

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

#if defined(__GNUC__)
#define LOAD(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(place, value, __ATOMIC_RELEASE)
#endif

/* Waits a while for a number to become another one. Where the compiler has no atomic loads nobody spins. */
static void spin(const litz_pool *pool, const uint32_t *place, uint32_t value) {
#if defined(__GNUC__)
  const int64_t start = now();
  while (pool->has_cores && now() - start < spin_time) {
    for (int looks = 0; looks < 64; looks++) {
      if (LOAD(place) != value) {
        return;
      }
    }
  }
#else
#define STORE(place, value) (*(place) = (value))
  (void)pool;
  (void)place;
  (void)value;
#endif
}

static int64_t run_chunk(const litz_job *job, int64_t chunk, int thread) {
  const int64_t begin = chunk * job->grain;
  const int64_t end = job->points - begin > job->grain ? begin + job->grain : job->points;
  unsigned char *scratch = job->scratch_bytes == 0 ? job->scratch : job->scratch + (size_t)(thread * job->scratch_bytes);
  int64_t status = 0;
  job->code(job->args, job->sizes, begin, end, scratch, &status);
  return status;
}

static void note(int64_t *failed, int64_t status) {
  if (status != 0 && (*failed == 0 || status < *failed)) {
    *failed = status;
  }
}

/* Takes chunks, some at a time, fewer towards the end, until there are none. The caller holds the lock. */
static void run_chunks(litz_pool *pool, const litz_job *job, int thread) {
  while (pool->next < job->chunks) {
    const int64_t left = job->chunks - pool->next;
    const int64_t share = left / (4 * ((int64_t)pool->worker_count + 1));
    const int64_t first = pool->next;
    const int64_t end = first + (share > 1 ? share : 1);
    int64_t failed = 0;
    pool->next = end;
    pthread_mutex_unlock(&pool->lock);
    for (int64_t chunk = first; chunk < end; chunk++) {
      note(&failed, run_chunk(job, chunk, thread));
    }
    pthread_mutex_lock(&pool->lock);
    note(&pool->failed, failed);
  }
}

static void *work(void *argument) {
  worker *self = argument;
  litz_pool *pool = self->pool;
  uint32_t seen = 0;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    if (!pool->is_closing && pool->launches == seen) {
      pthread_mutex_unlock(&pool->lock);
      spin(pool, &pool->launches, seen);
      pthread_mutex_lock(&pool->lock);
    }
    while (!pool->is_closing && pool->launches == seen) {
      pthread_cond_wait(&pool->begun, &pool->lock);
    }
    if (pool->is_closing) {
      break;
    }
    seen = pool->launches;
    /* A launch may be over before this thread wakes. */
    if (pool->job != NULL) {
      STORE(&pool->active, pool->active + 1);
      run_chunks(pool, pool->job, self->number);
      STORE(&pool->active, pool->active - 1);
      if (pool->active == 0) {
        pthread_cond_signal(&pool->done);
      }
    }
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

litz_pool *litz_pool_new(int threads) {
  const int workers = threads > 1 ? threads - 1 : 0;
  litz_pool *pool = calloc(1, sizeof *pool);
  if (pool == NULL) {
    return NULL;
  }
  pool->workers = calloc((size_t)workers + 1, sizeof *pool->workers);
  if (pool->workers == NULL) {
    free(pool);
    return NULL;
  }
  ask_for_tiles();
  pool->has_cores = sysconf(_SC_NPROCESSORS_ONLN) >= threads;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->begun, NULL);
  pthread_cond_init(&pool->done, NULL);
  for (int i = 0; i < workers; i++) {
    worker *next = &pool->workers[i];
    next->pool = pool;
    next->number = i + 1;
    if (pthread_create(&next->thread, NULL, work, next) != 0) {
      break;
    }
    pthread_mutex_lock(&pool->lock);
    pool->worker_count++;
    pthread_mutex_unlock(&pool->lock);
  }
  return pool;
}

void litz_pool_free(litz_pool *pool) {
  if (pool == NULL) {
    return;
  }
  pthread_mutex_lock(&pool->lock);
  pool->is_closing = true;
  STORE(&pool->launches, pool->launches + 1);
  pthread_cond_broadcast(&pool->begun);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->worker_count; i++) {
    pthread_join(pool->workers[i].thread, NULL);
  }
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->begun);
  pthread_mutex_destroy(&pool->lock);
  free(pool->workers);
  free(pool);
}

int litz_pool_threads(const litz_pool *pool) { return pool->worker_count + 1; }

int64_t litz_pool_run(litz_pool *pool, const litz_job *job) {
  int64_t failed = 0;
  if (job->chunks <= 1 || pool->worker_count == 0) {
    for (int64_t chunk = 0; chunk < job->chunks; chunk++) {
      note(&failed, run_chunk(job, chunk, 0));
    }
    return failed;
  }
  pthread_mutex_lock(&pool->lock);
  pool->job = job;
  pool->next = 0;
  pool->failed = 0;
  STORE(&pool->launches, pool->launches + 1);
  pthread_cond_broadcast(&pool->begun);
  run_chunks(pool, job, 0);
  if (pool->active > 0) {
    const uint32_t active = pool->active;
    pthread_mutex_unlock(&pool->lock);
    spin(pool, &pool->active, active);
    pthread_mutex_lock(&pool->lock);
  }
  while (pool->active > 0) {
    pthread_cond_wait(&pool->done, &pool->lock);
  }
  pool->job = NULL;
  failed = pool->failed;
  pthread_mutex_unlock(&pool->lock);
  return failed;
}

bool litz_fits(bool *bad, litz_memory memory, int64_t elements, int64_t bytes) {
  return litz_mul(bad, litz_max(elements, 0), bytes) <= memory.bytes;
}

bool litz_launch(litz_call *call, const litz_kernel *kernel, const litz_memory *args, const int64_t *sizes) {
  litz_model *model = call->model;
  litz_grid grid = {0, 0};
  int64_t failed = 0;
  const bool fits = !call->bad && kernel->plan(args, sizes, &call->bad, &grid);
  if (!fits || call->bad) {
    call->bad = false;
    return litz_fail(call, LITZ_BUG, "launch of @%s: its memory or sizes are others than it was made for", kernel->name);
  }
  const int threads = litz_pool_threads(model->pool);
  const int64_t scratch = litz_mul(&call->bad, litz_max(grid.scratch, 0), threads);
  if (scratch > model->scratch.bytes || call->bad) {
    free(model->scratch.data);
    model->scratch.data = call->bad ? NULL : litz_aligned(scratch);
    model->scratch.bytes = model->scratch.data == NULL ? 0 : scratch;
    call->bad = false;
    if (model->scratch.data == NULL) {
      return litz_fail(call, LITZ_OUT_OF_MEMORY, "no memory for the scratch of @%s", kernel->name);
    }
  }
  for (int i = 0; i < kernel->params; i++) {
    model->args[i] = args[i].data;
  }
  const litz_job job = {
      .code = kernel->code,
      .args = model->args,
      .sizes = sizes,
      .points = litz_max(grid.points, 0),
      .grain = kernel->grain,
      .chunks = grid.points <= 0 ? 0 : (grid.points - 1) / kernel->grain + 1,
      .scratch = model->scratch.data,
      .scratch_bytes = litz_max(grid.scratch, 0),
  };
  failed = litz_pool_run(model->pool, &job);
  if (failed == 0) {
    return true;
  }
  if (failed < 1 || failed > kernel->check_count) {
    return litz_fail(call, LITZ_BUG, "kernel @%s: its code gave an unknown status", kernel->name);
  }
  return litz_fail(call, LITZ_BAD_INDEX, "kernel @%s: %s", kernel->name, kernel->checks[failed - 1]);
}
