/* Calls models of one executable with recorded inputs and writes what they give: `driver CALLS RESULTS FIRST THREADS`.
 *
 * Both files are numbers of 64 bits and bytes, one after another. CALLS: how many records; of each a model's number, its file of weights, the number
 * of calls, and for each the inputs: type, rank, sizes, strides, bytes. RESULTS: of each record its number, and for each call the status, its
 * text, and the values. Records before FIRST are left out. Every other call of a model updates inputs in place. */
#include "litz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const litz_interface *const models[];
extern const int model_count;

static FILE *calls;
static FILE *results;

static void check(bool holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "driver: %s\n", what);
    exit(2);
  }
}

static int64_t read_number(void) {
  int64_t number = 0;
  check(fread(&number, sizeof number, 1, calls) == 1, "the calls end early");
  return number;
}

/* Room that tensors are given beside their bytes. */
enum { SPARE = 4096 };

/* Bytes that begin at a multiple of 64. */
static unsigned char *read_bytes(int64_t bytes) {
  unsigned char *data = aligned_alloc(64, ((size_t)bytes / 64 + 1) * 64 + SPARE);
  check(data != NULL, "no memory");
  check(bytes == 0 || fread(data, (size_t)bytes, 1, calls) == 1, "the calls end early");
  return data;
}

static void write_number(int64_t number) { check(fwrite(&number, sizeof number, 1, results) == 1, "cannot write"); }

static void write_bytes(const void *data, int64_t bytes) {
  write_number(bytes);
  check(bytes == 0 || fwrite(data, (size_t)bytes, 1, results) == 1, "cannot write");
}

static void write_value(const litz_value *value) {
  int64_t last = 1;
  write_number(value->kind);
  switch (value->kind) {
    case LITZ_NOTHING:
      return;
    case LITZ_INTEGER:
    case LITZ_TRUTH:
      write_number(value->integer);
      return;
    case LITZ_REAL:
      write_bytes(&value->real, sizeof value->real);
      return;
    case LITZ_TEXT:
      write_bytes(value->text, (int64_t)strlen(value->text));
      return;
    case LITZ_TENSOR:
      break;
  }
  write_number(value->dtype);
  write_number(value->rank);
  for (int dim = 0; dim < value->rank; dim++) {
    write_number(value->sizes[dim]);
  }
  for (int dim = 0; dim < value->rank; dim++) {
    write_number(value->strides[dim]);
    last += (value->sizes[dim] - 1) * value->strides[dim];
  }
  for (int dim = 0; dim < value->rank; dim++) {
    last = value->sizes[dim] == 0 ? 0 : last;
  }
  write_bytes(value->data, last * litz_dtype_bytes(value->dtype));
}

typedef struct operand {
  litz_tensor tensor;
  int64_t sizes[LITZ_MAX_RANK];
  int64_t strides[LITZ_MAX_RANK];
  int64_t bytes;
} operand;

static operand read_operand(void) {
  operand read = {0};
  read.tensor.dtype = (litz_dtype)read_number();
  read.tensor.rank = (int)read_number();
  for (int dim = 0; dim < read.tensor.rank; dim++) {
    read.sizes[dim] = read_number();
  }
  for (int dim = 0; dim < read.tensor.rank; dim++) {
    read.strides[dim] = read_number();
  }
  read.bytes = read_number();
  read.tensor.data = read_bytes(read.bytes);
  return read;
}

/* Whether elements lie row after row. */
static bool is_packed(const operand *tensor) {
  int64_t stride = 1;
  for (int dim = tensor->tensor.rank - 1; dim >= 0; dim--) {
    if (tensor->strides[dim] != stride) {
      return false;
    }
    stride *= tensor->sizes[dim];
  }
  return true;
}

/* Gives new contents of inputs the inputs' own memory. */
static void update_in_place(const litz_interface *model, const operand *operands, int64_t inputs, litz_value *values) {
  for (int k = 0; k < model->outputs; k++) {
    for (int64_t i = 0; i < inputs && i < model->inputs; i++) {
      const char *name = model->output_ports[k].name;
      if (strncmp(name, "new ", 4) == 0 && strcmp(name + 4, model->input_ports[i].name) == 0) {
        litz_value_free(&values[k]);
        values[k].data = (void *)(uintptr_t)operands[i].tensor.data;
        values[k].capacity = operands[i].bytes + SPARE;
      }
    }
  }
}

int main(int argc, char **argv) {
  check(argc == 5, "expected CALLS RESULTS FIRST THREADS");
  const int64_t first = strtoll(argv[3], NULL, 10);
  const int threads = atoi(argv[4]);
  calls = fopen(argv[1], "rb");
  results = fopen(argv[2], "wb");
  check(calls != NULL && results != NULL, "cannot open a file");
  const int64_t records = read_number();
  for (int64_t record = 0; record < records; record++) {
    const int64_t number = read_number();
    check(number >= 0 && number < model_count, "no such model");
    const litz_interface *model = models[number];
    char path[4096] = {0};
    const int64_t length = read_number();
    check(length < (int64_t)sizeof path, "a long name");
    unsigned char *text = read_bytes(length);
    memcpy(path, text, (size_t)length);
    free(text);
    const int64_t count = read_number();
    litz_error error = {LITZ_OK, ""};
    litz_model *open = NULL;
    litz_value *values = calloc((size_t)model->outputs + 1, sizeof *values);
    check(values != NULL, "no memory");
    if (record >= first) {
      write_number(record);
      fflush(results);
      open = model->open(length == 0 ? NULL : path, threads, &error);
    }
    for (int64_t i = 0; i < count; i++) {
      const int64_t inputs = read_number();
      operand *operands = calloc((size_t)inputs + 1, sizeof *operands);
      litz_tensor *tensors = calloc((size_t)inputs + 1, sizeof *tensors);
      check(operands != NULL && tensors != NULL, "no memory");
      for (int64_t k = 0; k < inputs; k++) {
        operands[k] = read_operand();
        tensors[k] = operands[k].tensor;
        tensors[k].sizes = operands[k].sizes;
        tensors[k].strides = is_packed(&operands[k]) ? NULL : operands[k].strides;
      }
      if (i % 2 == 1) {
        update_in_place(model, operands, inputs, values);
      }
      if (open != NULL) {
        model->run(open, tensors, (int)inputs, values, model->outputs, &error);
      }
      if (record >= first) {
        write_number(error.status);
        write_bytes(error.text, (int64_t)strlen(error.text));
        write_number(error.status == LITZ_OK ? model->outputs : 0);
        for (int k = 0; error.status == LITZ_OK && k < model->outputs; k++) {
          write_value(&values[k]);
        }
      }
      for (int k = 0; k < model->outputs; k++) {
        if (!values[k].is_owned) {
          litz_value_free(&values[k]);
        }
      }
      for (int64_t k = 0; k < inputs; k++) {
        free((void *)(uintptr_t)operands[k].tensor.data);
      }
      free(operands);
      free(tensors);
    }
    for (int k = 0; k < model->outputs; k++) {
      litz_value_free(&values[k]);
    }
    free(values);
    model->close(open);
    fflush(results);
  }
  fclose(calls);
  check(fclose(results) == 0, "cannot write");
  return 0;
}
