/* Gives a program two operators of the host's: one that doubles, and one that decides the size of its result. */
#include "check.h"

static const char *declaration(void *context, const char *op) {
  CHECK(*(int *)context >= 0);
  if (strcmp(op, "mylib.foo.default") == 0) return "mylib.foo.default(Tensor x, int n, str mode) -> Tensor contiguous";
  if (strcmp(op, "mylib.keep.default") == 0) return "mylib.keep.default(Tensor x) -> Tensor contiguous";
  return NULL;
}

/* Where context says 1, fails; 2: with a message. 3: leaves the result as it is. */
static int call(void *context, const char *op, litz_host_arg *args, size_t arg_count, litz_host_result *results,
                size_t result_count, const char **message) {
  int how = *(int *)context;
  if (how == 2) *message = "it rains";
  if (how == 1 || how == 2) return -7;
  if (how == 3) return 0;
  CHECK(arg_count >= 1 && result_count == 1 && results[0].is_wanted);
  CHECK(args[0].kind == LITZ_HOST_TENSOR);
  litz_host_tensor x = args[0].of.tensor;
  CHECK(x.dtype == LITZ_F32 && x.rank == 1 && x.strides[0] == 1 && !x.is_writable && !x.is_shared);
  CHECK(x.bytes == x.sizes[0] * sizeof(float));
  const float *from = x.data;
  if (strcmp(op, "mylib.foo.default") == 0) {
    CHECK(arg_count == 3 && args[1].kind == LITZ_HOST_INT && args[1].of.integer == 3);
    CHECK(args[2].kind == LITZ_HOST_TEXT && args[2].of.text.bytes == 4 && memcmp(args[2].of.text.data, "mode", 4) == 0);
    CHECK(results[0].decided == UINT32_MAX && results[0].tensor.is_writable && results[0].tensor.dtype == LITZ_F32);
    float *to = results[0].tensor.data;
    for (size_t at = 0; at < x.sizes[0]; ++at) to[at] = 2.0f * from[at];
    results[0].written = x.sizes[0];
    return 0;
  }
  CHECK(strcmp(op, "mylib.keep.default") == 0 && results[0].decided == LITZ_F32);
  int64_t count = 0;
  for (size_t at = 0; at < x.sizes[0]; ++at) count += from[at] > 0;
  void *data = NULL;
  int64_t wrong[] = {-1, 2};
  FAILS(litz_host_allocate(&results[0], wrong, 1, &data), LITZ_INVALID, "sizes: a size is -1");
  FAILS(litz_host_allocate(&results[0], wrong, 0, &data), LITZ_INVALID, "expected 1 dimensions, found 0");
  FAILS(litz_host_allocate(&results[0], NULL, 1, &data), LITZ_INVALID, "sizes: it is null");
  OK(litz_host_allocate(&results[0], &count, 1, &data));
  float *to = data;
  for (size_t at = 0; at < x.sizes[0]; ++at)
    if (from[at] > 0) *to++ = from[at];
  return 0;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  litz_model *model = NULL;
  FAILS(litz_model_open(argv[1], NULL, NULL, &model), LITZ_UNSUPPORTED, "mylib.foo.default, mylib.keep.default");
  int how = 0;
  litz_host host = {&how, declaration, call};
  OK(litz_model_open(argv[1], NULL, &host, &model));
  memset(&host, 0, sizeof host); /* It was copied. */
  float x[] = {1, -2, 3, -4};
  int64_t size = 4;
  litz_tensor input = floats(x, 1, &size);
  litz_outputs *outputs = NULL;
  OK(litz_model_run(model, &input, 1, &outputs));
  litz_tensor doubled = tensor_at(outputs, 0), kept = tensor_at(outputs, 1);
  CHECK(((float *)doubled.data)[0] == 4.0f && ((float *)doubled.data)[3] == -6.0f);
  CHECK(kept.sizes[0] == 2 && ((float *)kept.data)[0] == 4.0f && ((float *)kept.data)[1] == 8.0f);
  how = 1;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_RUN, "operator mylib.foo.default: it returned -7");
  how = 2;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_RUN, "operator mylib.foo.default: it rains");
  how = 3;
  FAILS(litz_model_run(model, &input, 1, &outputs), LITZ_RUN, "it was not set");
  how = 0;
  OK(litz_model_run(model, &input, 1, &outputs));
  litz_outputs_free(outputs);
  litz_model_close(model);
  puts("the host was called");
  return 0;
}
