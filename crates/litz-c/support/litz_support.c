/* Opens models, and gives calls their memory, inputs and outputs. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64

#include "litz_model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a file of weights begins with; the model's number and the file's length follow, then zeros up to 64 bytes. */
static const char magic[16] = "litz-weights-1";

static bool fail(litz_error *error, litz_status status, const char *format, va_list arguments) {
  error->status = status;
  vsnprintf(error->text, sizeof error->text, format, arguments);
  return false;
}

bool litz_fail(litz_call *call, litz_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fail(call->error, status, format, arguments);
  va_end(arguments);
  return false;
}

bool litz_bug(litz_call *call, const char *what) {
  return litz_fail(call, LITZ_BUG, "bug in program @%s: %s", call->model->program->name, what);
}

static bool refuse(litz_error *error, litz_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fail(error, status, format, arguments);
  va_end(arguments);
  return false;
}

unsigned char *litz_aligned(int64_t bytes) {
  void *data = NULL;
  if (bytes < 0 || (uint64_t)bytes > SIZE_MAX - LITZ_ALIGNMENT) {
    return NULL;
  }
  if (posix_memalign(&data, LITZ_ALIGNMENT, (size_t)bytes + LITZ_ALIGNMENT) != 0) {
    return NULL;
  }
  return data;
}

/* Memory of calls. */

static bool grow(litz_block **list, int *room, int count) {
  if (count < *room) {
    return true;
  }
  const int wanted = *room < 16 ? 16 : 2 * *room;
  litz_block *grown = realloc(*list, (size_t)wanted * sizeof **list);
  if (grown == NULL) {
    return false;
  }
  *list = grown;
  *room = wanted;
  return true;
}

/* The smallest block that waits and is large enough; else a new one, for which the largest of those that wait goes. */
static unsigned char *take(litz_arena *arena, int64_t bytes) {
  int best = -1;
  int largest = -1;
  litz_block block = {NULL, bytes};
  if (!grow(&arena->used, &arena->used_room, arena->used_count)) {
    return NULL;
  }
  for (int i = 0; i < arena->idle_count; i++) {
    const int64_t room = arena->idle[i].bytes;
    if (room >= bytes && (best < 0 || room < arena->idle[best].bytes)) {
      best = i;
    }
    if (largest < 0 || room > arena->idle[largest].bytes) {
      largest = i;
    }
  }
  if (best >= 0) {
    block = arena->idle[best];
    arena->idle[best] = arena->idle[--arena->idle_count];
  } else {
    if (largest >= 0) {
      free(arena->idle[largest].data);
      arena->idle[largest] = arena->idle[--arena->idle_count];
    }
    block.data = litz_aligned(bytes);
    if (block.data == NULL) {
      return NULL;
    }
  }
  arena->used[arena->used_count++] = block;
  return block.data;
}

static void give(litz_arena *arena, int at) {
  const litz_block block = arena->used[at];
  arena->used_count--;
  memmove(&arena->used[at], &arena->used[at + 1], (size_t)(arena->used_count - at) * sizeof block);
  if (grow(&arena->idle, &arena->idle_room, arena->idle_count)) {
    arena->idle[arena->idle_count++] = block;
  } else {
    free(block.data);
  }
}

static bool alloc_bytes(litz_call *call, int64_t bytes, litz_memory *memory) {
  unsigned char *data = call->bad ? NULL : take(&call->model->arena, bytes);
  if (data == NULL) {
    call->bad = false;
    return litz_fail(call, LITZ_OUT_OF_MEMORY, "no memory for %" PRId64 " bytes", bytes);
  }
  memory->data = data;
  memory->bytes = bytes;
  return true;
}

/* The extent of a layout without elements may come out negative: it means none. */
static int64_t bytes_of(litz_call *call, int64_t elements, litz_dtype dtype) {
  return litz_mul(&call->bad, litz_max(elements, 0), litz_dtype_bytes(dtype));
}

bool litz_alloc(litz_call *call, int64_t elements, litz_dtype dtype, litz_memory *memory) {
  return alloc_bytes(call, bytes_of(call, elements, dtype), memory);
}

void *litz_scratch(litz_call *call, int64_t count, int64_t bytes) {
  litz_memory memory = {NULL, 0};
  return alloc_bytes(call, litz_mul(&call->bad, count, bytes), &memory) ? memory.data : NULL;
}

bool litz_keep(litz_call *call, int at, int64_t elements, litz_dtype dtype) {
  const int64_t bytes = bytes_of(call, elements, dtype);
  litz_memory *memory = &call->kept[at];
  memory->data = call->bad ? NULL : litz_aligned(bytes);
  memory->bytes = bytes;
  if (memory->data == NULL) {
    return litz_fail(call, LITZ_OUT_OF_MEMORY, "no memory for %" PRId64 " bytes that the model keeps", bytes);
  }
  return true;
}

void litz_give_back(litz_call *call, litz_memory memory) {
  litz_arena *arena = &call->model->arena;
  for (int i = arena->used_count - 1; i >= 0; i--) {
    if (arena->used[i].data == memory.data) {
      give(arena, i);
      return;
    }
  }
}

int litz_mark(const litz_call *call) { return call->model->arena.used_count; }

void litz_release(litz_call *call, int mark) {
  litz_arena *arena = &call->model->arena;
  while (arena->used_count > mark) {
    give(arena, arena->used_count - 1);
  }
}

bool litz_view(litz_call *call, litz_memory base, int64_t offset, int64_t elements, litz_dtype dtype,
               litz_memory *memory) {
  const int64_t bytes = bytes_of(call, elements, dtype);
  if (call->bad || offset < 0 || offset > base.bytes || bytes > base.bytes - offset) {
    call->bad = false;
    return litz_bug(call, "a buffer lies outside of the one that it is placed in");
  }
  memory->data = base.data + (size_t)offset;
  memory->bytes = bytes;
  return true;
}

bool litz_copy(litz_call *call, litz_memory from, litz_memory to) {
  if (from.bytes != to.bytes) {
    return litz_bug(call, "a copy to memory of another length");
  }
  if (from.bytes > 0) {
    memmove(to.data, from.data, (size_t)from.bytes);
  }
  return true;
}

bool litz_truth(litz_call *call, litz_memory memory, litz_dtype dtype, bool *value) {
  if (memory.bytes < litz_dtype_bytes(dtype)) {
    return litz_bug(call, "a condition is read from memory without elements");
  }
  *value = litz_as_integer(dtype, memory.data) != 0;
  return true;
}

/* Inputs and outputs. */

void litz_copy_strided(int64_t size, int rank, const int64_t *sizes, const unsigned char *from,
                       const int64_t *from_strides, unsigned char *to, const int64_t *to_strides) {
  if (rank == 0) {
    memmove(to, from, (size_t)size);
    return;
  }
  if (rank == 1 && from_strides[0] == 1 && to_strides[0] == 1) {
    memmove(to, from, (size_t)(sizes[0] * size));
    return;
  }
  for (int64_t i = 0; i < sizes[0]; i++) {
    litz_copy_strided(size, rank - 1, sizes + 1, from + (size_t)(i * from_strides[0] * size), from_strides + 1,
                      to + (size_t)(i * to_strides[0] * size), to_strides + 1);
  }
}

/* Whether each element is where the strides put it. */
static bool has_strides(int rank, const int64_t *sizes, const int64_t *found, const int64_t *expected) {
  for (int dim = 0; dim < rank; dim++) {
    if (sizes[dim] != 1 && found[dim] != expected[dim]) {
      return false;
    }
  }
  return true;
}

bool litz_input(litz_call *call, int at, const int64_t *strides, int64_t elements, bool is_stored,
                const litz_memory *into, litz_memory *memory) {
  const litz_tensor *input = &call->inputs[at];
  const int64_t size = litz_dtype_bytes(input->dtype);
  const int64_t room = bytes_of(call, elements, input->dtype);
  const int64_t bytes = litz_span(call, input->dtype, input->rank, input->sizes, strides);
  int64_t packed[LITZ_MAX_RANK];
  const int64_t *found = input->strides;
  if (call->bad) {
    call->bad = false;
    return litz_fail(call, LITZ_OUT_OF_MEMORY, "input `%s`: its sizes are too large",
                     call->model->program->inputs[at].name);
  }
  if (found == NULL) {
    int64_t stride = 1;
    for (int dim = input->rank - 1; dim >= 0; dim--) {
      packed[dim] = stride;
      stride = litz_mul(&call->bad, stride, litz_max(input->sizes[dim], 1));
    }
    call->bad = false;
    found = packed;
  }
  const bool is_there = has_strides(input->rank, input->sizes, found, strides) &&
                        (uintptr_t)input->data % (size == 16 ? 8 : (uintptr_t)size) == 0;
  if (bytes > 0 && room <= bytes && is_there && (!is_stored || (into != NULL && into->data == input->data))) {
    /* Nothing is written that is not the model's to write. */
    memory->data = (unsigned char *)(uintptr_t)input->data;
    memory->bytes = room;
    return true;
  }
  /* An input's own memory has its elements elsewhere, or begins where kernels do not take it. */
  const bool is_apart = into != NULL && into->data != input->data;
  if (is_apart && room <= into->bytes && (uintptr_t)into->data % LITZ_ALIGNMENT == 0) {
    *memory = *into;
  } else {
    LITZ_TRY(alloc_bytes(call, litz_max(room, bytes), memory));
  }
  memory->bytes = litz_max(room, bytes);
  if (bytes > 0) {
    litz_copy_strided(size, input->rank, input->sizes, input->data, found, memory->data, strides);
  }
  return true;
}

bool litz_output(litz_call *call, int at, litz_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                 litz_memory *memory) {
  litz_value *value = &call->outputs[at];
  const int64_t bytes = litz_span(call, dtype, rank, sizes, strides);
  if (call->bad) {
    call->bad = false;
    return litz_fail(call, LITZ_OUT_OF_MEMORY, "output %d: its sizes are too large", at);
  }
  value->kind = LITZ_TENSOR;
  value->dtype = dtype;
  value->rank = rank;
  for (int dim = 0; dim < rank; dim++) {
    value->sizes[dim] = sizes[dim];
    value->strides[dim] = strides[dim];
  }
  if (value->data == NULL || value->capacity < bytes) {
    if (value->data != NULL && !value->is_owned) {
      return litz_fail(call, LITZ_SMALL_OUTPUT, "output %d: expected memory of %" PRId64 " bytes, found %" PRId64, at,
                       bytes, value->capacity);
    }
    free(value->data);
    value->data = litz_aligned(bytes);
    value->capacity = value->data == NULL ? 0 : bytes;
    value->is_owned = true;
    if (value->data == NULL) {
      return litz_fail(call, LITZ_OUT_OF_MEMORY, "output %d: no memory for %" PRId64 " bytes", at, bytes);
    }
  }
  memory->data = value->data;
  memory->bytes = bytes;
  return true;
}

bool litz_result(litz_call *call, litz_memory given, litz_dtype dtype, int rank, const int64_t *sizes,
                 const int64_t *strides, litz_memory *memory) {
  const int64_t bytes = litz_span(call, dtype, rank, sizes, strides);
  if (call->bad || bytes > given.bytes) {
    call->bad = false;
    return litz_bug(call, "a result of a function has no room");
  }
  memory->data = given.data;
  memory->bytes = bytes;
  return true;
}

bool litz_update(litz_call *call, litz_memory from, litz_memory to) {
  if (from.bytes < to.bytes) {
    return litz_bug(call, "new contents are smaller than what they are stored to");
  }
  if (from.data != to.data && to.bytes > 0) {
    memmove(to.data, from.data, (size_t)to.bytes);
  }
  return true;
}

bool litz_alloc_result(litz_call *call, litz_memory result, int64_t elements, litz_dtype dtype, litz_memory *memory) {
  const int64_t bytes = bytes_of(call, elements, dtype);
  if (!call->bad && bytes == result.bytes && (uintptr_t)result.data % LITZ_ALIGNMENT == 0) {
    *memory = result;
    return true;
  }
  return alloc_bytes(call, bytes, memory);
}

bool litz_finish(litz_call *call, litz_memory from, int64_t offset, litz_dtype dtype, litz_memory result) {
  const int64_t skip = litz_mul(&call->bad, offset, litz_dtype_bytes(dtype));
  if (result.bytes == 0 && !call->bad) {
    return true;
  }
  if (call->bad || skip < 0 || skip > from.bytes || result.bytes > from.bytes - skip) {
    call->bad = false;
    return litz_bug(call, "a result lies outside of its buffer");
  }
  if (from.data + (size_t)skip != result.data) {
    memmove(result.data, from.data + (size_t)skip, (size_t)result.bytes);
  }
  return true;
}

/* An output that is no tensor; its memory stays for later calls. */
static litz_value *scalar(litz_call *call, int at, litz_kind kind) {
  litz_value *value = &call->outputs[at];
  value->kind = kind;
  value->rank = 0;
  return value;
}

bool litz_integer(litz_call *call, int at, int64_t number) {
  if (call->bad) {
    call->bad = false;
    return litz_bug(call, "an output overflows, or divides by zero");
  }
  scalar(call, at, LITZ_INTEGER)->integer = number;
  return true;
}

void litz_real(litz_call *call, int at, double number) { scalar(call, at, LITZ_REAL)->real = number; }

void litz_truth_value(litz_call *call, int at, bool value) { scalar(call, at, LITZ_TRUTH)->integer = value; }

void litz_text(litz_call *call, int at, const char *text) { scalar(call, at, LITZ_TEXT)->text = text; }

void litz_nothing(litz_call *call, int at) { scalar(call, at, LITZ_NOTHING); }

bool litz_number(litz_call *call, int at, litz_memory memory, litz_dtype dtype) {
  if (memory.bytes < litz_dtype_bytes(dtype)) {
    return litz_bug(call, "a number is read from memory without elements");
  }
  if (dtype == LITZ_BOOL) {
    litz_truth_value(call, at, memory.data[0] != 0);
  } else if (litz_is_integer(dtype)) {
    return litz_integer(call, at, litz_as_integer(dtype, memory.data));
  } else {
    litz_real(call, at, litz_as_double(dtype, memory.data));
  }
  return true;
}

void litz_value_free(litz_value *value) {
  if (value->is_owned) {
    free(value->data);
  }
  memset(value, 0, sizeof *value);
}

/* Models. */

static bool map_weights(litz_model *model, const char *path, litz_error *error) {
  const litz_program *program = model->program;
  struct stat status;
  uint64_t found[2] = {0, 0};
  if (program->constant_count == 0) {
    return true;
  }
  if (path == NULL) {
    return refuse(error, LITZ_BAD_WEIGHTS, "expected the file of the weights of %s", program->name);
  }
  if ((uint64_t)program->weights_bytes > SIZE_MAX) {
    return refuse(error, LITZ_OUT_OF_MEMORY, "%s: %" PRId64 " bytes of weights have no addresses", path,
                  program->weights_bytes);
  }
  const int file = open(path, O_RDONLY);
  if (file < 0) {
    return refuse(error, LITZ_BAD_WEIGHTS, "cannot open %s: %s", path, strerror(errno));
  }
  if (fstat(file, &status) != 0 || (int64_t)status.st_size != program->weights_bytes) {
    close(file);
    return refuse(error, LITZ_BAD_WEIGHTS, "%s: expected %" PRId64 " bytes, found %" PRId64, path,
                  program->weights_bytes, (int64_t)status.st_size);
  }
  void *mapped = mmap(NULL, (size_t)program->weights_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  close(file);
  if (mapped == MAP_FAILED) {
    return refuse(error, LITZ_OUT_OF_MEMORY, "cannot map %s: %s", path, strerror(errno));
  }
  model->weights = mapped;
  memcpy(found, model->weights + sizeof magic, sizeof found);
  if (memcmp(model->weights, magic, sizeof magic) != 0 || found[0] != program->weights_id) {
    return refuse(error, LITZ_BAD_WEIGHTS, "%s: it has the weights of another model than %s", path, program->name);
  }
  for (int i = 0; i < program->constant_count; i++) {
    model->kept[i].data = model->weights + (size_t)program->constants[i].offset;
    model->kept[i].bytes = program->constants[i].bytes;
  }
  return true;
}

litz_model *litz_open(const litz_program *program, const char *weights, int threads, litz_error *error) {
  litz_error unwanted;
  error = error == NULL ? &unwanted : error;
  error->status = LITZ_OK;
  error->text[0] = '\0';
  litz_model *model = calloc(1, sizeof *model);
  if (model == NULL) {
    refuse(error, LITZ_OUT_OF_MEMORY, "no memory for %s", program->name);
    return NULL;
  }
  model->program = program;
  pthread_mutex_init(&model->turn, NULL);
  model->pool = litz_pool_new(threads);
  model->kept = calloc((size_t)(program->constant_count + program->kept_count) + 1, sizeof *model->kept);
  model->args = calloc((size_t)program->most_params + 1, sizeof *model->args);
  if (model->pool == NULL || model->kept == NULL || model->args == NULL) {
    refuse(error, LITZ_OUT_OF_MEMORY, "no memory for %s", program->name);
    litz_close(model);
    return NULL;
  }
  litz_call call = {.model = model, .kept = model->kept, .error = error};
  if (!map_weights(model, weights, error) || !program->load(&call)) {
    litz_close(model);
    return NULL;
  }
  litz_release(&call, 0);
  return model;
}

static bool check_inputs(litz_call *call, int input_count, int output_count) {
  const litz_program *program = call->model->program;
  if (input_count != program->input_count) {
    return litz_fail(call, LITZ_WRONG_COUNT, "number of inputs: expected %d, found %d", program->input_count,
                     input_count);
  }
  if (output_count != program->output_count) {
    return litz_fail(call, LITZ_WRONG_COUNT, "number of outputs: expected %d, found %d", program->output_count,
                     output_count);
  }
  for (int i = 0; i < input_count; i++) {
    const litz_port *port = &program->inputs[i];
    const litz_tensor *input = &call->inputs[i];
    if (input->dtype != port->dtype) {
      const char *found = input->dtype <= LITZ_C128 ? litz_dtype_name(input->dtype) : "no type";
      return litz_fail(call, LITZ_WRONG_DTYPE, "input `%s`: expected %s, found %s", port->name,
                       litz_dtype_name(port->dtype), found);
    }
    if (input->rank != port->rank) {
      return litz_fail(call, LITZ_WRONG_RANK, "input `%s`: expected %d dimensions, found %d", port->name, port->rank,
                       input->rank);
    }
  }
  return true;
}

litz_status litz_run(litz_model *model, const litz_tensor *inputs, int input_count, litz_value *outputs,
                     int output_count, litz_error *error) {
  litz_error unwanted;
  error = error == NULL ? &unwanted : error;
  litz_call call = {.model = model, .kept = model->kept, .inputs = inputs, .outputs = outputs, .error = error};
  error->status = LITZ_OK;
  error->text[0] = '\0';
  pthread_mutex_lock(&model->turn);
  if (model->is_state_lost) {
    litz_fail(&call, LITZ_STATE_LOST,
              "an earlier call failed while it changed the model's state, which is lost: open the model again");
  } else if (!check_inputs(&call, input_count, output_count) || !model->program->run(&call)) {
    model->is_state_lost = call.changes_state;
  }
  litz_release(&call, 0);
  pthread_mutex_unlock(&model->turn);
  return error->status;
}

void litz_close(litz_model *model) {
  if (model == NULL) {
    return;
  }
  litz_pool_free(model->pool);
  for (int i = 0; i < model->arena.used_count; i++) {
    free(model->arena.used[i].data);
  }
  for (int i = 0; i < model->arena.idle_count; i++) {
    free(model->arena.idle[i].data);
  }
  free(model->arena.used);
  free(model->arena.idle);
  for (int i = 0; model->kept != NULL && i < model->program->kept_count; i++) {
    free(model->kept[model->program->constant_count + i].data);
  }
  if (model->weights != NULL) {
    munmap(model->weights, (size_t)model->program->weights_bytes);
  }
  free(model->kept);
  free(model->args);
  free(model->scratch.data);
  pthread_mutex_destroy(&model->turn);
  free(model);
}
