/* Declares what programs take and give that Litz compiled ahead of time: tensors, values, errors and interfaces of models. */
#ifndef LITZ_H
#define LITZ_H

#include <stdbool.h>
#include <stdint.h>

/* Element types. Complex numbers are pairs, the real part first. */
typedef enum litz_dtype {
  LITZ_BOOL,
  LITZ_U8,
  LITZ_U16,
  LITZ_U32,
  LITZ_U64,
  LITZ_I8,
  LITZ_I16,
  LITZ_I32,
  LITZ_I64,
  LITZ_F16,
  LITZ_BF16,
  LITZ_F32,
  LITZ_F64,
  LITZ_F8E4M3,
  LITZ_F8E5M2,
  LITZ_C64,
  LITZ_C128
} litz_dtype;

/* How a call ends. */
typedef enum litz_status {
  LITZ_OK,
  LITZ_WRONG_COUNT,
  LITZ_WRONG_DTYPE,
  LITZ_WRONG_RANK,
  LITZ_WRONG_SIZE,
  LITZ_SIZE_OUT_OF_RANGE,
  LITZ_CHECK_FAILED,
  LITZ_ASSERTION_FAILED,
  LITZ_BAD_INDEX,
  LITZ_OUT_OF_MEMORY,
  /* The file of weights cannot be read, or belongs to another model. */
  LITZ_BAD_WEIGHTS,
  /* An earlier call failed while it changed the model's state: open the model again. */
  LITZ_STATE_LOST,
  /* The memory that the caller gives for an output is too small. */
  LITZ_SMALL_OUTPUT,
  /* The program breaks its own rules: an error of the compiler. */
  LITZ_BUG
} litz_status;

/* What went wrong, in words. */
typedef struct litz_error {
  litz_status status;
  char text[512];
} litz_error;

/* Most dimensions of a tensor. */
#define LITZ_MAX_RANK 32

/* Memory of results that a caller provides is used where it is if it begins at a multiple of so many bytes. */
#define LITZ_ALIGNMENT 64

/* A tensor of the caller's. Strides are in elements and not negative; NULL: row after row. */
typedef struct litz_tensor {
  const void *data;
  litz_dtype dtype;
  int rank;
  const int64_t *sizes;
  const int64_t *strides;
} litz_tensor;

/* What a value is. */
typedef enum litz_kind { LITZ_NOTHING, LITZ_TENSOR, LITZ_INTEGER, LITZ_REAL, LITZ_TRUTH, LITZ_TEXT } litz_kind;

/* A result. All zero (`litz_value v = {0}`) it is one that a call makes memory for, which later calls use again, until `litz_value_free`.
 * A caller that sets `data` and `capacity`, in bytes, gets the tensor there. */
typedef struct litz_value {
  litz_kind kind;
  litz_dtype dtype;
  int rank;
  int64_t sizes[LITZ_MAX_RANK];
  /* In elements. */
  int64_t strides[LITZ_MAX_RANK];
  void *data;
  int64_t capacity;
  /* Whether a call made the memory. */
  bool is_owned;
  /* Of an integer or a truth value. */
  int64_t integer;
  double real;
  const char *text;
} litz_value;

/* An input or output of a model. */
typedef struct litz_port {
  const char *name;
  /* As Litz writes types: `f32[s0, 10]`. */
  const char *type;
  litz_dtype dtype;
  int rank;
} litz_port;

/* A model that was opened. Calls from several threads take turns. */
typedef struct litz_model litz_model;

/* What there is of a model. Behind its own outputs a call gives the new contents of the inputs that the model updates: where such an
 * output is given the input's own memory, that is updated in place. No other output's memory is an input's. */
typedef struct litz_interface {
  const char *name;
  int inputs;
  int outputs;
  const litz_port *input_ports;
  const litz_port *output_ports;
  litz_model *(*open)(const char *weights, int threads, litz_error *error);
  litz_status (*run)(litz_model *model, const litz_tensor *inputs, int input_count, litz_value *outputs,
                     int output_count, litz_error *error);
  void (*close)(litz_model *model);
} litz_interface;

/* Frees memory that a call made. */
void litz_value_free(litz_value *value);

/* Bytes of an element. */
int64_t litz_dtype_bytes(litz_dtype dtype);

/* The type's name, such as `f32`. */
const char *litz_dtype_name(litz_dtype dtype);

#endif
