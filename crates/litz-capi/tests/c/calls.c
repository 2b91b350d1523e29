/* Opens models and calls them: what they say of themselves, results of every kind in every memory, and what wrong calls say. */
#include "check.h"
#include <litz_dlpack.h>

/* Twice `a`, and `a` less `b`, by rows of ones. */
static void pair(const char *path, const char *options) {
  litz_model *model = NULL;
  OK(litz_model_open(path, options, NULL, &model));
  CHECK(litz_model_input_count(model) == 1 && litz_model_output_count(model) == 2);
  litz_type type;
  OK(litz_model_input(model, 0, &type));
  CHECK(strcmp(type.name, "x") == 0 && type.kind == LITZ_KIND_TENSOR && type.dtype == LITZ_F32 && type.rank == 2);
  CHECK(type.sizes[0] == -1 && type.sizes[1] == 32 && !type.is_state);
  CHECK(strcmp(type.size_texts[0], "s0") == 0 && strcmp(type.size_texts[1], "32") == 0);
  OK(litz_model_output(model, 1, &type));
  CHECK(type.kind == LITZ_KIND_TENSOR && type.rank == 2 && type.sizes[0] == -1);
  FAILS(litz_model_input(model, 1, &type), LITZ_INVALID, "index: expected less than 1, found 1");
  FAILS(litz_model_output(model, 0, NULL), LITZ_INVALID, "output: it is null");

  static float x[3 * 64];
  for (int at = 0; at < 3 * 64; ++at) x[at] = at % 64 < 32 ? 1.0f : 100.0f;
  int64_t sizes[] = {3, 32}, strides[] = {64, 1};
  litz_tensor input = floats(x, 2, sizes);
  input.strides = strides;
  litz_outputs *outputs = NULL;
  OK(litz_model_run(model, &input, 1, &outputs));
  CHECK(litz_outputs_count(outputs) == 2);
  litz_tensor first = tensor_at(outputs, 0);
  CHECK(first.rank == 2 && first.sizes[0] == 3 && first.sizes[1] == 32 && first.dtype == LITZ_F32);
  for (int at = 0; at < 96; ++at) CHECK(((float *)first.data)[at] == 64.0f);

  /* The same memory is used again, and may be written. */
  void *before = first.data;
  memset(first.data, 0, 96 * sizeof(float));
  OK(litz_model_run(model, &input, 1, &outputs));
  CHECK(tensor_at(outputs, 0).data == before && ((float *)before)[95] == 64.0f);

  /* But not where the call reads it. */
  litz_tensor fed = tensor_at(outputs, 0);
  OK(litz_model_run(model, &fed, 1, &outputs));
  CHECK(((float *)tensor_at(outputs, 0).data)[95] == 64.0f * 64.0f);
  OK(litz_model_run(model, &input, 1, &outputs));

  /* Other sizes, none among them. */
  int64_t none[] = {0, 32};
  litz_tensor empty = floats(NULL, 2, none);
  OK(litz_model_run(model, &empty, 1, &outputs));
  CHECK(tensor_at(outputs, 0).sizes[0] == 0);
  OK(litz_model_run(model, &input, 1, &outputs));

  /* In memory of the caller's: aligned and large, in the middle of nowhere, the library's, and the input's own. */
  char *room = malloc(4096);
  char *aligned = room + (64 - (size_t)room % 64) % 64;
  litz_memory memories[] = {{aligned, 96 * sizeof(float)}, {aligned + 1024 + 4, 1000}};
  OK(litz_model_run_into(model, &input, 1, memories, 2, &outputs));
  CHECK(tensor_at(outputs, 0).data == memories[0].data && tensor_at(outputs, 1).data == memories[1].data);
  CHECK(((float *)memories[0].data)[95] == 64.0f && ((float *)memories[1].data)[95] == 0.0f);
  OK(litz_model_run_into(model, &input, 1, memories, 2, NULL));
  memories[1].data = NULL;
  OK(litz_model_run_into(model, &input, 1, memories, 2, &outputs));
  CHECK(((float *)tensor_at(outputs, 1).data)[0] == 0.0f);
  litz_tensor own = floats(memories[0].data, 2, sizes);
  OK(litz_model_run_into(model, &own, 1, memories, 2, &outputs));
  CHECK(tensor_at(outputs, 0).data == own.data && ((float *)own.data)[95] == 64.0f * 64.0f);
  memories[0].bytes = 95 * sizeof(float);
  FAILS(litz_model_run_into(model, &input, 1, memories, 2, &outputs), LITZ_INVALID,
        "memories: result 0 has 384 bytes, found 380");
  CHECK(tensor_at(outputs, 0).data != memories[0].data && ((float *)tensor_at(outputs, 0).data)[0] == 64.0f);
  FAILS(litz_model_run_into(model, &input, 1, memories, 1, &outputs), LITZ_INVALID, "memory_count: expected 2");
  FAILS(litz_model_run_into(model, &input, 1, NULL, 2, &outputs), LITZ_INVALID, "memories: it is null");

  /* By DLPack, in and out. */
  OK(litz_model_run(model, &input, 1, &outputs));
  DLManagedTensor *managed = NULL;
  DLManagedTensorVersioned *versioned = NULL;
  OK(litz_outputs_dlpack(outputs, 0, &managed));
  OK(litz_outputs_dlpack_versioned(outputs, 1, &versioned));
  void *shared = tensor_at(outputs, 0).data;
  CHECK(managed->dl_tensor.data == shared && managed->dl_tensor.ndim == 2 && managed->dl_tensor.shape[0] == 3);
  CHECK(managed->dl_tensor.strides[0] == 32 && managed->dl_tensor.dtype.code == 2 && managed->dl_tensor.dtype.bits == 32);
  CHECK(versioned->version.major == 1 && versioned->flags == 0 && versioned->dl_tensor.device.device_type == 1);
  OK(litz_model_run(model, &input, 1, &outputs));
  CHECK(tensor_at(outputs, 0).data != shared); /* It is DLPack's, too. */
  litz_outputs_free(outputs);
  outputs = NULL;
  CHECK(((float *)managed->dl_tensor.data)[95] == 64.0f);
  litz_tensor taken;
  OK(litz_tensor_of_dlpack(managed, &taken));
  managed->dl_tensor.byte_offset = 0;
  OK(litz_model_run(model, &taken, 1, &outputs));
  CHECK(((float *)tensor_at(outputs, 0).data)[0] == 64.0f * 64.0f);
  versioned->dl_tensor.strides = NULL;
  versioned->dl_tensor.byte_offset = 128;
  versioned->dl_tensor.shape[0] = 2;
  OK(litz_tensor_of_dlpack_versioned(versioned, &taken));
  CHECK(taken.data == (char *)versioned->dl_tensor.data + 128 && taken.strides == NULL);
  OK(litz_model_run(model, &taken, 1, &outputs));
  CHECK(tensor_at(outputs, 0).sizes[0] == 2);
  versioned->dl_tensor.dtype.lanes = 2;
  FAILS(litz_tensor_of_dlpack_versioned(versioned, &taken), LITZ_INVALID, "no element type");
  versioned->dl_tensor.dtype.lanes = 1;
  versioned->dl_tensor.device.device_type = 2;
  FAILS(litz_tensor_of_dlpack_versioned(versioned, &taken), LITZ_INVALID, "host's memory");
  versioned->version.major = 2;
  FAILS(litz_tensor_of_dlpack_versioned(versioned, &taken), LITZ_INVALID, "expected version 1");
  FAILS(litz_tensor_of_dlpack(NULL, &taken), LITZ_INVALID, "managed: it is null");
  FAILS(litz_outputs_dlpack(outputs, 2, &managed), LITZ_INVALID, "expected less than 2, found 2");
  managed->deleter(managed);
  versioned->deleter(versioned);

  /* Wrong inputs: the results are gone, the model stays. */
  sizes[1] = 31;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "dimension 1: expected size 32, found 31");
  CHECK(litz_outputs_count(outputs) == 0);
  sizes[1] = 32;
  sizes[0] = 65;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "expected s0 in [0, 64], found 65");
  sizes[0] = -1;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "input 0: a size is -1");
  sizes[0] = INT64_MAX;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "input 0: ");
  sizes[0] = 3;
  strides[0] = -64;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "input 0: an axis runs backwards");
  strides[0] = 64;
  input.dtype = LITZ_F64;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "expected f32, found f64");
  input.dtype = (litz_dtype)12;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "input 0: 12 is no element type");
  input.dtype = LITZ_F32;
  input.rank = 1;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "expected 2 dimensions, found 1");
  input.rank = -1;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "expected 0 to 64 dimensions, found -1");
  input.rank = 65;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "expected 0 to 64 dimensions, found 65");
  input.rank = 2;
  input.data = (char *)x + 1;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "not at a multiple of 4 bytes");
  input.data = NULL;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "input 0: its data is null");
  input.data = x;
  input.sizes = NULL;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "input 0: its sizes are null");
  input.sizes = sizes;
  FAILS(litz_model_run(model, &input, 0, &outputs), LITZ_INVALID, "input_count: expected 1, found 0");
  FAILS(litz_model_run(model, &input, SIZE_MAX, &outputs), LITZ_INVALID, "input_count: expected 1");
  FAILS(litz_model_run(model, NULL, 1, &outputs), LITZ_INVALID, "inputs: it is null");
  FAILS(litz_model_run(model, &input, 1, NULL), LITZ_INVALID, "outputs: it is null");
  FAILS(litz_model_run(NULL, &input, 1, &outputs), LITZ_INVALID, "model: it is null");
  OK(litz_model_run(model, &input, 1, &outputs));
  litz_outputs_free(outputs);

  litz_model *other = NULL;
  OK(litz_model_share(model, 1, &other));
  FAILS(litz_model_share(model, SIZE_MAX, &other), LITZ_INVALID, "threads: expected 1 to 4096");
  litz_model_close(model);
  outputs = NULL;
  OK(litz_model_run(other, &input, 1, &outputs));
  CHECK(((float *)tensor_at(outputs, 0).data)[0] == 64.0f);
  litz_outputs_free(outputs);
  litz_model_close(other);
  free(room);
}

/* Positions of elements that are not 0, the largest element, and literals. */
static void kinds(const char *path) {
  litz_model *model = NULL;
  OK(litz_model_open(path, "threads=1", NULL, &model));
  litz_kind expected[] = {LITZ_KIND_TENSOR, LITZ_KIND_INT,  LITZ_KIND_TEXT,
                          LITZ_KIND_FLOAT,  LITZ_KIND_BOOL, LITZ_KIND_NONE};
  CHECK(litz_model_output_count(model) == 6);
  int64_t x[] = {0, 7, 0, 3}, size = 4;
  litz_tensor input = {x, LITZ_I64, 1, &size, NULL};
  int64_t positions[4];
  litz_memory memories[6] = {{positions, sizeof positions}};
  for (int is_into = 0; is_into < 2; ++is_into) {
    litz_outputs *outputs = NULL;
    if (is_into) {
      OK(litz_model_run_into(model, &input, 1, memories, 6, &outputs));
    } else {
      OK(litz_model_run(model, &input, 1, &outputs));
    }
    for (size_t at = 0; at < 6; ++at) {
      litz_type type;
      OK(litz_model_output(model, at, &type));
      CHECK(type.kind == expected[at] && value_at(outputs, at).kind == expected[at]);
      CHECK(at != 0 || (type.rank == 2 && type.sizes[0] == -1 && type.sizes[1] == 1 && type.dtype == LITZ_I64));
    }
    litz_tensor found = tensor_at(outputs, 0);
    CHECK(found.sizes[0] == 2 && found.sizes[1] == 1);
    CHECK(((int64_t *)found.data)[0] == 1 && ((int64_t *)found.data)[found.strides[0]] == 3);
    CHECK(!is_into || found.data == positions);
    CHECK(value_at(outputs, 1).of.integer == 7);
    CHECK(strcmp(value_at(outputs, 2).of.text, "a text") == 0);
    CHECK(value_at(outputs, 3).of.real == 2.5 && value_at(outputs, 4).of.truth);
    DLManagedTensor *managed = NULL;
    FAILS(litz_outputs_dlpack(outputs, 1, &managed), LITZ_INVALID, "result 1 is no tensor");
    if (is_into) FAILS(litz_outputs_dlpack(outputs, 0, &managed), LITZ_INVALID, "in memory of the caller's");
    litz_outputs_free(outputs);
  }
  /* A size that is out of its range is known when it was computed. */
  x[0] = 101;
  litz_outputs *outputs = NULL;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_INVALID, "found 101");
  CHECK(outputs == NULL);
  litz_model_close(model);
}

/* Adds twice the weight to an input, which it updates, and to its state. */
static void counter(const char *path) {
  litz_model *model = NULL, *shared = NULL;
  OK(litz_model_open(path, NULL, NULL, &model));
  OK(litz_model_share(model, 0, &shared));
  litz_type type;
  CHECK(litz_model_output_count(model) == 2);
  OK(litz_model_output(model, 1, &type));
  CHECK(strcmp(type.name, "x") == 0);
  float x[4] = {0, 1, 2, 3};
  int64_t size = 4;
  litz_tensor input = floats(x, 1, &size);
  litz_outputs *outputs = NULL;
  for (int call = 1; call <= 4; ++call) {
    OK(litz_model_run(call % 2 ? model : shared, &input, 1, &outputs));
    CHECK(((float *)tensor_at(outputs, 0).data)[3] == 2.0f * call);
    CHECK(((float *)tensor_at(outputs, 1).data)[3] == 5.0f && x[3] == 3.0f);
  }
  float state[4];
  OK(litz_model_read_constant(shared, "total", state, sizeof state));
  CHECK(state[0] == 8.0f);
  size_t states = 0;
  for (size_t at = 0; at < litz_model_constant_count(model); ++at) {
    OK(litz_model_constant(model, at, &type));
    states += type.is_state;
  }
  CHECK(states == 1);
  litz_update *update = NULL;
  OK(litz_update_new(model, &update));
  FAILS(litz_update_set(update, "total", &input), LITZ_UNSUPPORTED, "\"total\" is state that calls write");
  OK(litz_update_set(update, "w", &input));
  OK(litz_update_swap(update));
  OK(litz_model_run(shared, &input, 1, &outputs));
  CHECK(((float *)tensor_at(outputs, 0).data)[3] == 8.0f + 2.0f * 3.0f);
  litz_update_free(update);
  litz_outputs_free(outputs);
  litz_model_close(model);
  litz_model_close(shared);
}

static void wrong_files(const char *path) {
  litz_model *model = NULL;
  FAILS(litz_model_open(NULL, NULL, NULL, &model), LITZ_INVALID, "path: it is null");
  FAILS(litz_model_open(path, NULL, NULL, NULL), LITZ_INVALID, "model: it is null");
  FAILS(litz_model_open("/nowhere/at.litzc", NULL, NULL, &model), LITZ_IO, "/nowhere/at.litzc");
  FAILS(litz_model_open(path, "threads", NULL, &model), LITZ_INVALID, "options: expected name=value, found threads");
  FAILS(litz_model_open(path, "colour=red", NULL, &model), LITZ_INVALID, "options: no such option: colour; there are");
  FAILS(litz_model_open(path, "\xff", NULL, &model), LITZ_INVALID, "options: it is no text in UTF-8");
  litz_host host = {NULL, NULL, NULL};
  FAILS(litz_model_open(path, NULL, &host, &model), LITZ_INVALID, "host: its function declaration is null");
  FAILS(litz_model_open(path, "constant_bytes=10", NULL, &model), LITZ_LIMIT, "constant_bytes");
  FAILS(litz_model_open_bytes(NULL, 10, NULL, NULL, &model), LITZ_INVALID, "bytes: it is null");
  FAILS(litz_model_open_bytes("", SIZE_MAX, NULL, NULL, &model), LITZ_INVALID, "size: ");
  CHECK(litz_model_open_bytes("nonsense", 8, NULL, NULL, &model) != LITZ_OK);
  CHECK(litz_model_open_bytes(NULL, 0, NULL, NULL, &model) != LITZ_OK);
  CHECK(model == NULL);
  FILE *file = fopen(path, "rb");
  static char bytes[1 << 20];
  size_t size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  CHECK(size > 0 && size < sizeof bytes);
  OK(litz_model_open_bytes(bytes, size, "threads=2\nbind=false", NULL, &model));
  litz_model_close(model);
  model = NULL;
  bytes[size / 2] ^= 1;
  bytes[size - 1] ^= 1;
  FAILS(litz_model_open_bytes(bytes, size - 1, NULL, NULL, &model), LITZ_INVALID, "damaged");
  /* What takes a handle takes null. */
  CHECK(litz_model_input_count(NULL) == 0 && litz_model_output_count(NULL) == 0);
  CHECK(litz_model_constant_count(NULL) == 0 && litz_outputs_count(NULL) == 0);
  litz_type type;
  FAILS(litz_model_constant(NULL, 0, &type), LITZ_INVALID, "model: it is null");
  FAILS(litz_update_new(NULL, NULL), LITZ_INVALID, "update: it is null");
  FAILS(litz_update_set(NULL, "a", NULL), LITZ_INVALID, "update: it is null");
  FAILS(litz_update_fold(NULL), LITZ_INVALID, "update: it is null");
  FAILS(litz_update_swap(NULL), LITZ_INVALID, "update: it is null");
  FAILS(litz_host_allocate(NULL, NULL, 0, NULL), LITZ_INVALID, "result: it is null");
  litz_model_close(NULL);
  litz_outputs_free(NULL);
  litz_update_free(NULL);
}

/* Each constant is read, given new contents, and swapped in. */
static void updates(const char *path) {
  litz_model *model = NULL;
  OK(litz_model_open(path, "threads=2\nbind=false", NULL, &model));
  CHECK(litz_model_constant_count(model) == 2);
  litz_type type;
  OK(litz_model_constant(model, 0, &type));
  CHECK(strcmp(type.name, "a") == 0 && type.rank == 2 && type.sizes[0] == 32 && !type.is_state);
  static float a[32 * 32], b[32 * 64], x[32];
  OK(litz_model_read_constant(model, "a", a, sizeof a));
  CHECK(a[0] == 2.0f && a[1023] == 2.0f);
  FAILS(litz_model_read_constant(model, "a", a, 7), LITZ_INVALID, "bytes: expected 4096 for constant \"a\", found 7");
  FAILS(litz_model_read_constant(model, "c", a, 7), LITZ_INVALID, "no constant \"c\"");
  FAILS(litz_model_read_constant(model, NULL, a, 7), LITZ_INVALID, "name: it is null");
  FAILS(litz_model_read_constant(model, "a", NULL, sizeof a), LITZ_INVALID, "data: it is null");
  for (int at = 0; at < 32; ++at) x[at] = 1.0f;
  for (int at = 0; at < 32 * 32; ++at) a[at] = 5.0f;
  for (int at = 0; at < 32 * 64; ++at) b[at] = at % 2 ? 100.0f : 3.0f;
  int64_t sizes[] = {32, 32}, strides[] = {64, 2}, one[] = {1, 32};
  litz_tensor input = floats(x, 2, one), contents = floats(a, 2, sizes), strided = floats(b, 2, sizes);
  strided.strides = strides;
  litz_outputs *outputs = NULL;
  litz_update *update = NULL;
  OK(litz_update_new(model, &update));
  OK(litz_update_set(update, "a", &strided));
  OK(litz_update_set(update, "a", &contents)); /* The last one counts. */
  OK(litz_update_set(update, "b", &strided));
  memset(a, 0, sizeof a); /* It was copied. */
  OK(litz_update_fold(update));
  OK(litz_model_run(model, &input, 1, &outputs));
  CHECK(((float *)tensor_at(outputs, 0).data)[31] == 64.0f && ((float *)tensor_at(outputs, 1).data)[31] == 0.0f);
  OK(litz_update_swap(update));
  OK(litz_model_run(model, &input, 1, &outputs));
  CHECK(((float *)tensor_at(outputs, 0).data)[31] == 160.0f && ((float *)tensor_at(outputs, 1).data)[31] == 64.0f);
  /* Some of them, without folding first; the other stays. */
  OK(litz_update_set(update, "a", &contents));
  OK(litz_update_swap(update));
  OK(litz_update_swap(update));
  OK(litz_model_run(model, &input, 1, &outputs));
  CHECK(((float *)tensor_at(outputs, 0).data)[31] == 0.0f && ((float *)tensor_at(outputs, 1).data)[31] == -96.0f);
  OK(litz_model_read_constant(model, "b", a, sizeof a));
  CHECK(a[0] == 3.0f && a[1023] == 3.0f);
  FAILS(litz_update_set(update, "c", &contents), LITZ_INVALID, "no constant \"c\"");
  FAILS(litz_update_set(update, "a", &input), LITZ_INVALID, "\"a\": expected f32[32, 32], found f32[1, 32]");
  FAILS(litz_update_set(update, "a", NULL), LITZ_INVALID, "contents: it is null");
  FAILS(litz_update_set(update, NULL, &contents), LITZ_INVALID, "name: it is null");
  litz_outputs_free(outputs);
  litz_model_close(model);
  OK(litz_update_set(update, "a", &contents)); /* It outlives the model. */
  OK(litz_update_swap(update));
  litz_update_free(update);
}

static void folded(const char *path) {
  litz_model *model = NULL;
  litz_update *update = NULL;
  OK(litz_model_open(path, NULL, NULL, &model));
  OK(litz_update_new(model, &update));
  FAILS(litz_update_fold(update), LITZ_UNSUPPORTED, "saved without its original constants");
  FAILS(litz_update_swap(update), LITZ_UNSUPPORTED, "`litz compile --updatable`");
  litz_update_free(update);
  litz_model_close(model);
}

/* A model that is compiled here, from memory, and another one that shares its constants. */
static void archive(const char *path) {
  static char bytes[1 << 20];
  FILE *file = fopen(path, "rb");
  CHECK(file != NULL);
  size_t size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  CHECK(size > 0 && size < sizeof bytes);
  litz_model *model = NULL, *shared = NULL;
  FAILS(litz_model_open_bytes(bytes, size, "model=none", NULL, &model), LITZ_INVALID, "none");
  FAILS(litz_model_open_bytes(bytes, size, "device=tpu", NULL, &model), LITZ_INVALID, "device: expected one of cpu, ");
  FAILS(litz_model_open_bytes(bytes, size, "statements=1", NULL, &model), LITZ_LIMIT, "statements");
  FAILS(litz_model_open_bytes(bytes, size - 1, NULL, NULL, &model), LITZ_INVALID, "");
  OK(litz_model_open_bytes(bytes, size, "threads=2\nbind=false\nverify=false", NULL, &model));
  memset(bytes, 0, size); /* It was copied. */
  OK(litz_model_share(model, 1, &shared));
  litz_type type;
  OK(litz_model_input(shared, 0, &type));
  CHECK(type.rank == 4 && type.sizes[0] == -1 && type.sizes[3] == 8);
  static float image[64], zeros[1 << 16];
  int64_t sizes[] = {1, 1, 8, 8};
  litz_tensor input = floats(image, 4, sizes);
  litz_outputs *outputs = NULL, *others = NULL;
  OK(litz_model_run(model, &input, 1, &outputs));
  OK(litz_model_run(shared, &input, 1, &others));
  CHECK(memcmp(tensor_at(outputs, 0).data, tensor_at(others, 0).data, 10 * sizeof(float)) == 0);
  CHECK(((float *)tensor_at(others, 0).data)[0] != 0.0f);
  litz_update *update = NULL;
  OK(litz_update_new(model, &update));
  for (size_t at = 0; at < litz_model_constant_count(model); ++at) {
    OK(litz_model_constant(model, at, &type));
    litz_tensor contents = floats(zeros, (int32_t)type.rank, type.sizes);
    OK(litz_update_set(update, type.name, &contents));
  }
  OK(litz_update_swap(update));
  OK(litz_model_run(shared, &input, 1, &others));
  CHECK(((float *)tensor_at(others, 0).data)[0] == 0.0f);
  litz_update_free(update);
  litz_outputs_free(outputs);
  litz_outputs_free(others);
  litz_model_close(shared);
  litz_model_close(model);
}

int main(int argc, char **argv) {
  CHECK(argc == 6);
  CHECK(litz_last_error()[0] == 0);
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", LITZ_VERSION_MAJOR, LITZ_VERSION_MINOR, LITZ_VERSION_PATCH);
  CHECK(strcmp(litz_version(), version) == 0);
  wrong_files(argv[1]);
  pair(argv[1], "threads=2\nbind=false");
  pair(argv[2], NULL);
  updates(argv[1]);
  folded(argv[2]);
  kinds(argv[3]);
  counter(argv[4]);
  archive(argv[5]);
  puts("all is as it should be");
  return 0;
}
