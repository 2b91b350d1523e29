/* Declares what the C of a compiled program calls: sizes, memory, launches, inputs and outputs of a call. */
#ifndef LITZ_SUPPORT_H
#define LITZ_SUPPORT_H

#include "litz.h"

#include <stddef.h>

/* Code of a kernel: runs grid points `begin` to `end`. Where an index is out of range it stores the number of the check, from 1, to
 * `status`. */
typedef void litz_code(unsigned char *const *args, const int64_t *sizes, int64_t begin, int64_t end,
                       unsigned char *scratch, int64_t *status);

/* Memory of a call, or of the model. */
typedef struct litz_memory {
  unsigned char *data;
  int64_t bytes;
} litz_memory;

/* Memory as a routine sees it. */
typedef struct litz_buffer {
  litz_memory memory;
  litz_dtype dtype;
} litz_buffer;

typedef struct litz_call litz_call;

/* What a launch depends on sizes by. */
typedef struct litz_grid {
  int64_t points;
  /* Bytes for each thread. */
  int64_t scratch;
} litz_grid;

/* A kernel. */
typedef struct litz_kernel {
  const char *name;
  litz_code *code;
  int params;
  /* Points that a thread takes at a time. */
  int64_t grain;
  /* Whether the memory is as large as the kernel takes it for, and the sizes are those that it was made for; fills the grid. */
  bool (*plan)(const litz_memory *args, const int64_t *sizes, bool *bad, litz_grid *grid);
  const char *const *checks;
  int check_count;
} litz_kernel;

/* A constant: where it is in the file of weights. */
typedef struct litz_constant {
  int64_t offset;
  int64_t bytes;
} litz_constant;

/* A program. */
typedef struct litz_program {
  const char *name;
  /* What the file of weights begins with, and its length. */
  uint64_t weights_id;
  int64_t weights_bytes;
  const litz_constant *constants;
  int constant_count;
  /* Memory that load steps keep. */
  int kept_count;
  /* Most parameters of a kernel. */
  int most_params;
  const litz_port *inputs;
  int input_count;
  int output_count;
  bool (*load)(litz_call *call);
  bool (*run)(litz_call *call);
} litz_program;

/* A call. */
struct litz_call {
  litz_model *model;
  /* Constants, then what load steps keep. */
  litz_memory *kept;
  const litz_tensor *inputs;
  litz_value *outputs;
  litz_error *error;
  /* Whether a size overflows, or divides by zero. */
  bool bad;
  /* Whether the call has begun to store to the model's state. */
  bool changes_state;
};

/* Leaves a step that failed. */
#define LITZ_TRY(...)      \
  do {                     \
    if (!(__VA_ARGS__)) {  \
      return false;        \
    }                      \
  } while (0)

litz_model *litz_open(const litz_program *program, const char *weights, int threads, litz_error *error);
litz_status litz_run(litz_model *model, const litz_tensor *inputs, int input_count, litz_value *outputs,
                     int output_count, litz_error *error);
void litz_close(litz_model *model);

/* Notes why a call ends; returns false. */
bool litz_fail(litz_call *call, litz_status status, const char *format, ...);
/* The program breaks a rule. */
bool litz_bug(litz_call *call, const char *what);

/* Arithmetic of sizes: what overflows or divides by zero is noted. Quotients are rounded down, and remainders have the sign of the
 * divisor. A product with a zero is zero. */
int64_t litz_add(bool *bad, int64_t a, int64_t b);
int64_t litz_mul(bool *bad, int64_t a, int64_t b);
int64_t litz_product(bool *bad, int count, const int64_t *factors);
int64_t litz_floordiv(bool *bad, int64_t a, int64_t b);
int64_t litz_mod(bool *bad, int64_t a, int64_t b);
/* Whether a relation holds: not where one of its sides has no value. */
bool litz_holds(bool *bad, bool relation);
int64_t litz_min(int64_t a, int64_t b);
int64_t litz_max(int64_t a, int64_t b);

/* Sizes of inputs. `litz_solve` gives `value` what a symbol is where `coefficient * symbol + rest` is the size of a dimension. */
int64_t litz_size_of(const litz_call *call, int input, int dim);
bool litz_solve(litz_call *call, int input, int dim, int64_t coefficient, int64_t rest, const char *expected,
                int64_t *value);
bool litz_in_range(litz_call *call, int input, int dim, const char *symbol, int64_t lo, int64_t hi, int64_t value);
bool litz_expect(litz_call *call, int input, int dim, int64_t value, const char *expected, bool is_constant);
bool litz_check_failed(litz_call *call, const char *condition, const char *who, int pairs, const int64_t *sides);
/* Reads a size that data decides. */
bool litz_late(litz_call *call, litz_memory memory, litz_dtype dtype, const char *symbol, int64_t lo, int64_t hi,
               int64_t divisor, const char *who, int64_t *value);

/* Memory. What is not given back is when the call, or the function that took it, ends. */
bool litz_alloc(litz_call *call, int64_t elements, litz_dtype dtype, litz_memory *memory);
/* Of what load steps keep. */
bool litz_keep(litz_call *call, int at, int64_t elements, litz_dtype dtype);
void litz_give_back(litz_call *call, litz_memory memory);
bool litz_view(litz_call *call, litz_memory base, int64_t offset, int64_t elements, litz_dtype dtype,
               litz_memory *memory);
bool litz_copy(litz_call *call, litz_memory from, litz_memory to);
/* Takes memory from here on for itself. */
int litz_mark(const litz_call *call);
/* Gives back what was taken since. */
void litz_release(litz_call *call, int mark);
/* The integer or truth value that memory begins with. */
bool litz_truth(litz_call *call, litz_memory memory, litz_dtype dtype, bool *value);

/* Bytes from the first element of a tensor to its last. */
int64_t litz_span(litz_call *call, litz_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides);

/* Binds an input: where it lies as expected and is only read, itself, else a copy, in `into` where that is not NULL. */
bool litz_input(litz_call *call, int at, const int64_t *strides, int64_t elements, bool is_stored,
                const litz_memory *into, litz_memory *memory);

/* Makes an output a tensor and finds its memory. */
bool litz_output(litz_call *call, int at, litz_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                 litz_memory *memory);
/* As `litz_output`, of a function: in memory of who calls it. */
bool litz_result(litz_call *call, litz_memory given, litz_dtype dtype, int rank, const int64_t *sizes,
                 const int64_t *strides, litz_memory *memory);
/* Takes memory in which a result is computed: the result's own, where that holds `elements` and no more. */
bool litz_alloc_result(litz_call *call, litz_memory result, int64_t elements, litz_dtype dtype, litz_memory *memory);
/* Copies a result to its place, unless it is there. `offset` is in elements. */
bool litz_finish(litz_call *call, litz_memory from, int64_t offset, litz_dtype dtype, litz_memory result);
/* Stores new contents, as much as there is room for, unless they are there. */
bool litz_update(litz_call *call, litz_memory from, litz_memory to);
/* Outputs that are no tensors. */
bool litz_number(litz_call *call, int at, litz_memory memory, litz_dtype dtype);
bool litz_integer(litz_call *call, int at, int64_t value);
void litz_real(litz_call *call, int at, double value);
void litz_truth_value(litz_call *call, int at, bool value);
void litz_text(litz_call *call, int at, const char *text);
void litz_nothing(litz_call *call, int at);

/* Runs a kernel on the model's threads. */
bool litz_launch(litz_call *call, const litz_kernel *kernel, const litz_memory *args, const int64_t *sizes);
/* Whether memory holds `elements` of so many bytes. */
bool litz_fits(bool *bad, litz_memory memory, int64_t elements, int64_t bytes);

/* An element as a number: of complex types the real part. Integers of 64 bits are rounded. */
double litz_as_double(litz_dtype dtype, const unsigned char *element);
/* An element of an integer type, or a truth value; of 64 bits without a sign, its bits. */
int64_t litz_as_integer(litz_dtype dtype, const unsigned char *element);
/* Whether a type is of integers. */
bool litz_is_integer(litz_dtype dtype);

/* Memory for a routine; NULL where the system has none, of which the call is told. */
void *litz_scratch(litz_call *call, int64_t count, int64_t bytes);

#endif
