// driver.cc: a fake libcuda.so.1 for tests of code that queries the driver. HETERO_FAKE_DRIVER sets its state, words
// with numbers, for example "init=999 version=12080 gpus=2 mode=2 lost=46":
//
//     init       result of cuInit
//     version    version of the driver
//     gpus       number of GPUs
//     mode       compute mode of all GPUs
//     lost       result of every query about a GPU
//
// The first retained context creates the file that HETERO_FAKE_CONTEXTS names.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

int setting(const char *name, int otherwise) {
  const char *all = std::getenv("HETERO_FAKE_DRIVER");
  std::stringstream words(all ? all : "");
  const std::string wanted = std::string(name) + "=";
  for (std::string word; words >> word;)
    if (word.rfind(wanted, 0) == 0) return std::atoi(word.c_str() + wanted.size());
  return otherwise;
}

constexpr int kComputeMode = 20;

} // namespace

extern "C" {

int cuInit(unsigned) { return setting("init", 0); }
int cuDriverGetVersion(int *v) { return *v = setting("version", 13000), 0; }
int cuDeviceGetCount(int *n) { return *n = setting("gpus", 1), 0; }
int cuDeviceGet(int *device, int index) {
  *device = index;
  return index < setting("gpus", 1) ? setting("lost", 0) : 101;
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
  *value = attribute == kComputeMode ? setting("mode", 0) : 0;
  return setting("lost", 0);
}
int cuDevicePrimaryCtxRetain(void **context, int) {
  *context = nullptr;
  if (const char *file = std::getenv("HETERO_FAKE_CONTEXTS"))
    if (std::FILE *f = std::fopen(file, "a")) std::fclose(f);
  return setting("mode", 0) == 3 ? 46 : setting("lost", 0);
}
int cuDevicePrimaryCtxRelease_v2(int) { return setting("lost", 0); }
}
