// Reads a handwritten digit, from C++: handles that release themselves, errors as exceptions, results in memory of the caller's.
//
//     cargo xtask c-library
//     cmake -S examples/cpp -B target/cpp -DCMAKE_PREFIX_PATH=$PWD/target/c && cmake --build target/cpp
//     target/cpp/digits examples/digits.pt2
#include <litz.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

void expect(litz_status status) {
  if (status != LITZ_OK) throw std::runtime_error(litz_last_error());
}

struct Close {
  void operator()(litz_model *model) const { litz_model_close(model); }
};

using Model = std::unique_ptr<litz_model, Close>;

Model open(const std::string &path) {
  litz_model *model = nullptr;
  expect(litz_model_open(path.c_str(), "threads=2", nullptr, &model));
  return Model(model);
}

// Eight rows of eight pixels, from 0 to 16; the model takes 0 to 1.
std::array<float, 64> image = {
    0, 0, 5,  13, 9,  1,  0, 0, 0, 0, 13, 15, 10, 15, 5, 0, 0, 3, 15, 2,  0,  11, 8, 0, 0, 4, 12, 0,  0,  8, 8, 0,
    0, 5, 8,  0,  0,  9,  8, 0, 0, 4, 11, 0,  1,  12, 7, 0, 0, 2, 14, 5,  10, 12, 0, 0, 0, 0, 6,  13, 10, 0, 0, 0,
};

}  // namespace

int main(int argc, char **argv) try {
  const Model model = open(argc > 1 ? argv[1] : "examples/digits.pt2");
  for (float &pixel : image) pixel /= 16;
  const std::array<int64_t, 4> sizes = {1, 1, 8, 8};
  const litz_tensor input = {image.data(), LITZ_F32, 4, sizes.data(), nullptr};
  alignas(64) std::array<float, 10> scores{};
  const litz_memory memory = {scores.data(), sizeof scores};
  expect(litz_model_run_into(model.get(), &input, 1, &memory, 1, nullptr));
  std::printf("it is a %d\n", static_cast<int>(std::max_element(scores.begin(), scores.end()) - scores.begin()));
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
