/*
 * Litz: opens models and compiled programs, runs them, and gives their constants new contents.
 *
 *     litz_model *model = NULL;
 *     litz_outputs *outputs = NULL;
 *     litz_value value;
 *     int64_t sizes[] = {2, 1, 28, 28};
 *     litz_tensor input = {images, LITZ_F32, 4, sizes, NULL};
 *     if (litz_model_open("digits.litzc", NULL, NULL, &model) != LITZ_OK
 *         || litz_model_run(model, &input, 1, &outputs) != LITZ_OK
 *         || litz_outputs_get(outputs, 0, &value) != LITZ_OK)
 *         fprintf(stderr, "%s\n", litz_last_error());
 *
 * Functions that can fail return a status, and leave what they were to write as it was; litz_last_error() has the message. A null pointer,
 * and a number that makes no sense, is LITZ_INVALID with the name of the argument. Handles (litz_model, litz_outputs, litz_update) are
 * released by the function that is named for it, which takes null as well; what a handle gave (names, sizes, data) is gone with it. Texts
 * are UTF-8. Sizes and strides are counted in elements.
 *
 * Every function may be called from any thread. A model serves any number of threads at a time, and may be closed when none of
 * them uses it; a litz_outputs is for one thread at a time.
 *
 * This is C99 and C++. It is for version 0.1, whose interface is not fixed: a program runs with the minor version that it was compiled for.
 */
#ifndef LITZ_H
#define LITZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LITZ_VERSION_MAJOR 0
#define LITZ_VERSION_MINOR 1
#define LITZ_VERSION_PATCH 0

/* The version of the library, such as "0.1.0". */
const char *litz_version(void);

/* ---- Errors ---- */

typedef enum litz_status {
  LITZ_OK = 0,
  LITZ_INVALID = 1,     /* an argument, a file or an input is wrong: the message says which */
  LITZ_UNSUPPORTED = 2, /* what is asked for is right, and Litz does not have it */
  LITZ_RUN = 3,         /* a call failed because of what it computed, or its host failed */
  LITZ_LIMIT = 4,       /* more memory, time or work than the options allow, or than there is */
  LITZ_IO = 5,          /* a file cannot be read */
  LITZ_BUG = 6          /* a mistake of Litz */
} litz_status;

/* The message of the calling thread's latest error; "" where there was none. It stays until the thread's next error. */
const char *litz_last_error(void);

/* ---- Tensors ---- */

/* Element types, by the numbers of PyTorch's c10::ScalarType. */
typedef enum litz_dtype {
  LITZ_U8 = 0,
  LITZ_I8 = 1,
  LITZ_I16 = 2,
  LITZ_I32 = 3,
  LITZ_I64 = 4,
  LITZ_F16 = 5,
  LITZ_F32 = 6,
  LITZ_F64 = 7,
  LITZ_C64 = 9,   /* complex, of two f32 */
  LITZ_C128 = 10, /* complex, of two f64 */
  LITZ_BOOL = 11, /* one byte, 0 or 1 */
  LITZ_BF16 = 15,
  LITZ_F8E5M2 = 23,
  LITZ_F8E4M3 = 24,
  LITZ_U16 = 27,
  LITZ_U32 = 28,
  LITZ_U64 = 29
} litz_dtype;

/* Elements in memory: that at [i, j, ..] is i*strides[0] + j*strides[1] + .. elements behind the first. No dimensions mean one element. */
typedef struct litz_tensor {
  void *data;             /* the first element, at a multiple of its size; may be null where there are no elements */
  litz_dtype dtype;
  int32_t rank;           /* at most 64 */
  const int64_t *sizes;   /* may be null where rank is 0 */
  const int64_t *strides; /* not negative; null: row by row without gaps */
} litz_tensor;

typedef enum litz_kind {
  LITZ_KIND_TENSOR = 0,
  LITZ_KIND_INT = 1,
  LITZ_KIND_FLOAT = 2,
  LITZ_KIND_BOOL = 3,
  LITZ_KIND_TEXT = 4,
  LITZ_KIND_NONE = 5
} litz_kind;

/* A result. */
typedef struct litz_value {
  litz_kind kind;
  union {
    litz_tensor tensor; /* LITZ_KIND_TENSOR */
    int64_t integer;    /* LITZ_KIND_INT */
    double real;        /* LITZ_KIND_FLOAT */
    bool truth;         /* LITZ_KIND_BOOL */
    const char *text;   /* LITZ_KIND_TEXT */
  } of;
} litz_value;

/* What an input, a result or a constant is. */
typedef struct litz_type {
  const char *name; /* in the model; "" where it has none */
  litz_kind kind;
  litz_dtype dtype; /* of tensors and numbers */
  size_t rank;
  const int64_t *sizes;          /* -1 where calls decide it */
  const char *const *size_texts; /* the same as texts: "3", or an expression of symbols such as "2*s0" */
  bool is_state;                 /* of constants: whether calls write it */
} litz_type;

/* Structs of DLPack: include dlpack/dlpack.h, or litz_dlpack.h, which declares them. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

/* Describes a tensor of DLPack's that is in the host's memory, where it is: sizes and strides are those of the struct. Nobody takes
 * it over. */
litz_status litz_tensor_of_dlpack(const struct DLManagedTensor *managed, litz_tensor *tensor);
litz_status litz_tensor_of_dlpack_versioned(const struct DLManagedTensorVersioned *managed, litz_tensor *tensor);

/* ---- Models ---- */

typedef struct litz_model litz_model;
typedef struct litz_host litz_host;

/*
 * Opens a .litzc file, or with the compiler in the library a .pt2 file, which it compiles. What the file is, its contents say. It must not
 * change while the model is open: constants are used where it is mapped. A .litzc file holds machine code: it is as trusted as any program.
 *
 * `options` are lines of name=value, or null. Always there are threads (default: all cores), bind (threads to cores, true), and the limits
 * call_bytes, constant_bytes, iterations, time (ms), statements, written_out and compile_time (ms). With the compiler there are device (cpu,
 * cuda, reference), target, model (one of several in an archive), cache (a folder; default: none), cache_read_only (false), shared_cache (a
 * folder that is looked into for what is not in cache, and not written to), freeze (true), verify (false), dump (a folder), and the settings
 * of `litz compile --set`. No environment variable is read.
 *
 * `host` runs operators that Litz does not have, or is null; what it points to is copied, and its context is used until the model, and all
 * that share its constants, are closed.
 */
litz_status litz_model_open(const char *path, const char *options, const litz_host *host, litz_model **model);

/* As litz_model_open, of a file in memory, which is copied. */
litz_status litz_model_open_bytes(const void *bytes, size_t size, const char *options, const litz_host *host,
                                  litz_model **model);

/* The same model with its constants and state, in the same memory, on so many threads of its own, so that calls of the two do not wait for
 * each other's; 0: as many as the first was opened with. Either may be closed first. */
litz_status litz_model_share(const litz_model *model, size_t threads, litz_model **shared);

void litz_model_close(litz_model *model);

/* What calls take and return. Behind its results a program returns the new contents of inputs that it updates, under their names. */
size_t litz_model_input_count(const litz_model *model);
size_t litz_model_output_count(const litz_model *model);
litz_status litz_model_input(const litz_model *model, size_t index, litz_type *input);
litz_status litz_model_output(const litz_model *model, size_t index, litz_type *output);

/* ---- Calls ---- */

typedef struct litz_outputs litz_outputs;

/*
 * Calls the model on inputs, which are read where they are. A number is a tensor without dimensions.
 *
 * `*outputs` is null, or has the results of an earlier call, in whose memory the new ones are where types and sizes are the same; what
 * litz_outputs_get gave of them is gone. After an error they have no results.
 */
litz_status litz_model_run(const litz_model *model, const litz_tensor *inputs, size_t input_count,
                           litz_outputs **outputs);

/* Memory for a result. */
typedef struct litz_memory {
  void *data; /* null: the library's */
  size_t bytes;
} litz_memory;

/*
 * As litz_model_run, with results in the caller's memory: one litz_memory for each result, of which those of results that are no tensors are not
 * looked at. Memory at a multiple of 64 bytes, that overlaps no other and no input, is computed in; to any other, results are copied.
 * How sizes and strides are, `outputs` says, which may be null where that is known; results are in it as long as it is not released, and
 * those in the caller's memory as long as that is there.
 *
 * Where a memory is too small, the call is over nevertheless and the result in the library's memory; the status is LITZ_INVALID.
 */
litz_status litz_model_run_into(const litz_model *model, const litz_tensor *inputs, size_t input_count,
                                const litz_memory *memories, size_t memory_count, litz_outputs **outputs);

size_t litz_outputs_count(const litz_outputs *outputs);

/* A result. Its data may be written. */
litz_status litz_outputs_get(const litz_outputs *outputs, size_t index, litz_value *value);

/* A tensor among the results that is in the library's memory, for DLPack: it shares that memory, and stays when `outputs` is released or used
 * again, until its deleter is called. */
litz_status litz_outputs_dlpack(const litz_outputs *outputs, size_t index, struct DLManagedTensor **managed);
litz_status litz_outputs_dlpack_versioned(const litz_outputs *outputs, size_t index,
                                          struct DLManagedTensorVersioned **managed);

void litz_outputs_free(litz_outputs *outputs);

/* ---- Constants ---- */

/* The model's parameters and buffers that calls use, each name once. */
size_t litz_model_constant_count(const litz_model *model);
litz_status litz_model_constant(const litz_model *model, size_t index, litz_type *constant);

/* Copies what a constant holds at this moment, row by row without gaps: `bytes` is exactly as many as there are. */
litz_status litz_model_read_constant(const litz_model *model, const char *name, void *data, size_t bytes);

/*
 * New contents of constants. They are made ready while calls go on, and no call sees any of it before the swap; each call sees what was there
 * when it began, all of it before or all of it after a swap.
 *
 *     litz_update_new(model, &update);
 *     litz_update_set(update, "fc.weight", &weight);
 *     litz_update_set(update, "fc.bias", &bias);
 *     litz_update_swap(update);
 *     litz_update_free(update);
 *
 * Not for programs that were saved without their original constants (`litz compile --updatable` keeps them), nor for state that calls write.
 */
typedef struct litz_update litz_update;

/* It may outlive the model. */
litz_status litz_update_new(const litz_model *model, litz_update **update);

/* Copies new contents of one constant; those that are not set stay as they are. */
litz_status litz_update_set(litz_update *update, const char *name, const litz_tensor *contents);

/* Packs and folds what was set, and what the other constants hold at this moment. */
litz_status litz_update_fold(litz_update *update);

/*
 * Gives calls that begin from here on the new contents, those of models that share the constants, too. Old contents are freed when the last
 * call with them has ended. The update has nothing set afterwards, and can be used again.
 *
 * Without litz_update_fold it folds first; then swaps of several threads are all there in the end. What was folded before is swapped in as it
 * is: what another swap has brought since is gone where it was not set as well.
 */
litz_status litz_update_swap(litz_update *update);

void litz_update_free(litz_update *update);

/* ---- Hosts: operators that Litz does not have ---- */

/* A device: kind 0 is the CPU, 1 an NVIDIA GPU. */
typedef struct litz_device {
  uint32_t kind;
  uint32_t index;
} litz_device;

/*
 * A tensor of a call, in the memory of a device: for hosts of C that is always the CPU's. One that is shared may have elements in common with
 * others of the call, of which one is written.
 */
typedef struct litz_host_tensor {
  void *data;
  size_t bytes; /* from the first element to the last */
  size_t rank;
  const size_t *sizes;
  const size_t *strides;
  litz_dtype dtype;
  bool is_writable;
  bool is_shared;
  litz_device device;
} litz_host_tensor;

typedef enum litz_host_kind {
  LITZ_HOST_NONE = 0,
  LITZ_HOST_TENSOR = 1,
  LITZ_HOST_LIST = 2,
  LITZ_HOST_INT = 3,
  LITZ_HOST_FLOAT = 4,
  LITZ_HOST_BOOL = 5,
  LITZ_HOST_COMPLEX = 6,
  LITZ_HOST_TEXT = 7,
  LITZ_HOST_DTYPE = 8,
  LITZ_HOST_DEVICE = 9,
  LITZ_HOST_STRIDED = 10,
  LITZ_HOST_MEMORY_FORMAT = 11
} litz_host_kind;

typedef struct litz_host_arg litz_host_arg;

/* An argument. */
struct litz_host_arg {
  litz_host_kind kind;
  union {
    litz_host_tensor tensor;
    struct {
      litz_host_arg *items;
      size_t count;
    } list;
    int64_t integer;
    double real;
    bool truth;
    double parts[2]; /* real and imaginary */
    struct {
      const char *data; /* without a zero at the end */
      size_t bytes;
    } text;
    litz_dtype dtype;
    litz_device device;
    uint32_t memory_format; /* of c10::MemoryFormat */
  } of;
};

/* A result to be written. */
typedef struct litz_host_result {
  litz_host_tensor tensor; /* its type, sizes, strides and memory, where sizes are given */
  size_t written;          /* elements that were written, which the host has to say; litz_host_allocate says it */
  bool is_wanted;          /* one that is not may be left out */
  uint32_t decided;        /* the litz_dtype of a result whose sizes the operator decides, else UINT32_MAX */
  void *reserved;
} litz_host_result;

/* Two functions, which may be called from any thread, and from several at a time. Neither may unwind (throw). */
struct litz_host {
  void *context;

  /*
   * What the host says of an operator that it has, such as "mylib.foo.default": PyTorch's schema and what docs/add-a-host.md adds to it,
   * "mylib.foo.default(Tensor x, int n=1) -> Tensor contiguous". Null where it does not have it. The text stays until the thread asks again.
   */
  const char *(*declaration)(void *context, const char *op);

  /*
   * Runs an operator: one argument for each of its schema's, one result for each tensor that it returns. Returns 0, or anything else where it
   * fails, and may point `message` to text, which stays until the thread calls again. What it is given is there until it returns.
   */
  int (*call)(void *context, const char *op, litz_host_arg *args, size_t arg_count, litz_host_result *results,
              size_t result_count, const char **message);
};

/* Memory, row by row, for a result whose sizes the operator decides, to be written before the host returns. */
litz_status litz_host_allocate(litz_host_result *result, const int64_t *sizes, size_t rank, void **data);

#ifdef __cplusplus
}
#endif

#endif
