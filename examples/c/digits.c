/* Reads a handwritten digit, from C: opens a model, says what it takes, calls it, and prints the answer.
 *
 *     cargo xtask c-library
 *     cc examples/c/digits.c -o digits $(PKG_CONFIG_PATH=target/c/lib/pkgconfig pkg-config --cflags --libs litz)
 *     LD_LIBRARY_PATH=target/c/lib ./digits examples/digits.pt2
 */
#include <litz.h>
#include <stdio.h>

/* Eight rows of eight pixels, from 0 to 16; the model takes 0 to 1. */
static float image[64] = {
    0, 0, 5,  13, 9,  1,  0, 0, 0, 0, 13, 15, 10, 15, 5, 0, 0, 3, 15, 2,  0,  11, 8, 0, 0, 4, 12, 0,  0,  8, 8, 0,
    0, 5, 8,  0,  0,  9,  8, 0, 0, 4, 11, 0,  1,  12, 7, 0, 0, 2, 14, 5,  10, 12, 0, 0, 0, 0, 6,  13, 10, 0, 0, 0,
};

static int failed(const char *what) {
  fprintf(stderr, "%s: %s\n", what, litz_last_error());
  return 1;
}

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : "examples/digits.pt2";
  litz_model *model = NULL;
  if (litz_model_open(path, "threads=2", NULL, &model) != LITZ_OK) return failed("cannot open the model");

  litz_type type;
  if (litz_model_input(model, 0, &type) != LITZ_OK) return failed("cannot describe the input");
  printf("Litz %s, input %s: [", litz_version(), type.name);
  for (size_t dim = 0; dim < type.rank; ++dim) printf("%s%s", dim ? ", " : "", type.size_texts[dim]);
  puts("]");

  for (int at = 0; at < 64; ++at) image[at] /= 16;
  int64_t sizes[] = {1, 1, 8, 8};
  litz_tensor input = {image, LITZ_F32, 4, sizes, NULL};
  litz_outputs *outputs = NULL;
  litz_value value;
  if (litz_model_run(model, &input, 1, &outputs) != LITZ_OK) return failed("cannot run the model");
  if (litz_outputs_get(outputs, 0, &value) != LITZ_OK) return failed("there is no result");

  const float *scores = value.of.tensor.data;
  int best = 0;
  for (int digit = 1; digit < 10; ++digit)
    if (scores[digit] > scores[best]) best = digit;
  printf("it is a %d\n", best);

  litz_outputs_free(outputs);
  litz_model_close(model);
  return 0;
}
