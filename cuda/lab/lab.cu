// lab.cu: the kernel lab. It checks each variant against the host, times it, and compares it with a copy in the same
// run.
#include "lab.h"

#include <algorithm>
#include <cstdio>

namespace hetero::lab {
namespace {

constexpr const char *kUsage = R"(usage: cuda-lab [--check] [--only NAME] [--json]

Tries variants of the CUDA device's kernels on activations of ResNet-50 (224, batch 256; f32, bf16).
  --check      small sizes, values alone, no times
  --only NAME  one experiment
  --json       an object a line
us: median of 21, the level-2 cache filled with other, clean lines before each. GB/s: of what a pass must move at least;
of images little larger than that cache, part of what is written stays there, and is not waited for.
% of copy: of the fastest copy of the largest images. Exit code 1: a variant computes something else; 2: it did not run.
)";

using Pack16 = Pack<float>;

struct Experiment {
  const char *name;
  Trial (*make)(const Input &, void *to);
};
const std::vector<Experiment> kExperiments = {
    {"copy", copy}, {"batchnorm_stats", batchnorm_stats}, {"batchnorm_apply", batchnorm_apply}};

// The first layer is one of the largest. The rate of its copy is the upper limit of the bandwidth.
const std::vector<Images> kLayers = {{256, 112, 64, 0}, {256, 56, 256, 0},  {256, 56, 64, 0},
                                     {256, 28, 512, 0}, {256, 14, 1024, 0}, {256, 7, 2048, 0}};
// Small layers for the check, one for each of these cases, in this order:
//
//   - more packs than threads in a grid
//   - several blocks of rows
//   - threads without channels
//   - fewer rows than a block has
const std::vector<Images> kSmall = {{5, 65, 64, 0}, {3, 5, 24, 0}, {1, 2, 256, 0}, {5, 7, 520, 0}};

template <int K> __global__ void copy_packs(int64_t n, const Pack16 *from, Pack16 *to) {
  const int64_t step = index_stride();
  for (int64_t i = first_index(); i < n; i += K * step) {
    Pack16 p[K];
    for (int k = 0; k < K; k++) p[k] = from[i + k * step < n ? i + k * step : i];
    for (int k = 0; k < K; k++)
      if (i + k * step < n) to[i + k * step] = p[k];
  }
}

template <int K> Variant copy_variant(const Input &input, void *to) {
  const int64_t n = input.images.bytes() / 16;
  auto *from = input.device.as<Pack16>(), *out = static_cast<Pack16 *>(to);
  return {std::to_string(K) + " in flight",
          [=] { launch(copy_packs<K>, over((n + K - 1) / K), nullptr, n, from, out); }};
}

__global__ void sweep(int64_t n, const Pack16 *from, float *sink) {
  float sum = 0;
  for (int64_t i = first_index(); i < n; i += index_stride()) sum += from[i].v[0];
  if (sum == -1) *sink = sum; // never true; the test keeps the compiler from removing the loads
}

struct Options {
  bool check = false, json = false;
  std::string only;
};

// Returns pseudo-random values, the same in every run. Channels differ in mean and spread.
template <class T> std::vector<char> values(const Images &images) {
  std::vector<char> bytes(static_cast<size_t>(images.bytes()));
  T *x = reinterpret_cast<T *>(bytes.data());
  for (uint32_t i = 0, c = 0; i < bytes.size() / sizeof(T); i++, c = c + 1 < images.channels ? c + 1 : 0) {
    const uint32_t h = i * 2654435761u, noise = (h ^ h >> 15) * 2246822519u >> 8;
    const float unit = static_cast<float>(noise) / (1 << 23) - 1; // -1 to 1
    store(x++, unit * (0.5f + static_cast<float>(c % 3)) + static_cast<float>(c % 5) - 2);
  }
  return bytes;
}

// Returns the error of a variant's result. Before the run, the memory of the result is filled with NaN.
double error_of(const Trial &trial, const Variant &variant, void *to) {
  std::vector<char> got(static_cast<size_t>(trial.result));
  check(cudaMemsetAsync(to, 0xff, got.size(), nullptr), "clearing");
  variant.run();
  check(cudaStreamSynchronize(nullptr), variant.name.c_str());
  check(cudaMemcpy(got.data(), to, got.size(), cudaMemcpyDefault), "fetching the result");
  return trial.error(got.data());
}

double median_us(const Variant &variant, const Memory &swept, int64_t packs) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "an event");
  check(cudaEventCreate(&end), "an event");
  std::vector<float> ms(21);
  for (float &t : ms) {
    launch(sweep, over(packs), nullptr, packs, swept.as<Pack16>(), swept.as<float>());
    check(cudaEventRecord(begin, nullptr), "timing");
    variant.run();
    check(cudaEventRecord(end, nullptr), "timing");
    check(cudaEventSynchronize(end), "timing");
    check(cudaEventElapsedTime(&t, begin, end), "timing");
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(ms.begin(), ms.begin() + 10, ms.end());
  return 1e3 * static_cast<double>(ms[10]);
}

void print(const Options &o, const char *experiment, const std::string &name, const Images &i, double us, double rate,
           double roof, double error, bool ok) {
  const std::string side = "x" + std::to_string(i.side), type = i.dtype == HT_F32 ? "f32" : "bf16";
  const std::string size = std::to_string(i.batch) + side + side + "x" + std::to_string(i.channels);
  char times[160] = "", text[32];
  std::snprintf(text, sizeof text, "%.2g", error);
  if (!o.check)
    std::snprintf(times, sizeof times,
                  o.json ? R"("us": %.2f, "gb_per_second": %.1f, "percent_of_copy": %.1f, )"
                         : "%9.2f us %7.1f GB/s %6.1f %% of copy  ",
                  us, rate, 100 * rate / roof);
  if (o.json)
    std::printf(R"({"experiment": "%s", "variant": "%s", "size": "%s", "type": "%s", %s"max_error": %s, "ok": %s})"
                "\n",
                experiment, name.c_str(), size.c_str(), type.c_str(), times, std::isfinite(error) ? text : "null",
                ok ? "true" : "false");
  else
    std::printf("%-15s %-22s %-16s %-4s %smax error %-8s %s\n", experiment, name.c_str(), size.c_str(), type.c_str(),
                times, text, ok ? "ok" : "WRONG");
  std::fflush(stdout);
}

// Runs all trials, and returns whether all variants compute the right results.
bool run(const Options &o) {
  cudaDeviceProp facts{};
  check(cudaGetDeviceProperties(&facts, 0), "the GPU");
  if (!o.json) std::printf("%s\n", facts.name);
  const int64_t packs = 2 * int64_t{facts.l2CacheSize} / 16; // twice the size of the level-2 cache
  const Memory swept(std::vector<Pack16>(static_cast<size_t>(packs)));
  bool right = true;
  double roof = 0; // GB/s
  for (Images images : o.check ? kSmall : kLayers)
    for (int32_t dtype : {HT_F32, HT_BF16}) {
      images.dtype = dtype;
      const auto host = with_type(images, [&](auto type) { return values<decltype(type)>(images); });
      const Input input{images, host, Memory(host)};
      const Memory to(std::max(images.bytes(), 8 * images.channels));
      auto rate = [&](const Trial &t, double us) { return 1e-3 * static_cast<double>(t.moves) / us; };
      const Trial copied = copy(input, to.as<void>());
      if (!o.check && roof == 0)
        for (const Variant &v : copied.variants) roof = std::max(roof, rate(copied, median_us(v, swept, packs)));
      for (const Experiment &e : kExperiments) {
        if (!o.only.empty() && o.only != e.name) continue;
        const Trial t = e.make(input, to.as<void>());
        for (const Variant &v : t.variants) {
          const double error = error_of(t, v, to.as<void>()), us = o.check ? 0 : median_us(v, swept, packs);
          const bool ok = error <= t.allowed; // false if error is NaN
          print(o, e.name, v.name, images, us, rate(t, us), roof, error, ok);
          right = right && ok;
        }
      }
    }
  return right;
}

Options parse(const std::vector<std::string> &words) {
  Options o;
  for (size_t i = 0; i < words.size(); i++) {
    if (words[i] == "--check")
      o.check = true;
    else if (words[i] == "--json")
      o.json = true;
    else if (words[i] == "--only" && i + 1 < words.size())
      o.only = words[++i];
    else
      throw Invalid("got " + words[i] + "\n" + kUsage);
  }
  bool found = o.only.empty();
  std::string names;
  for (const Experiment &e : kExperiments) names += std::string(" ") + e.name, found = found || o.only == e.name;
  if (!found) throw Invalid("--only: got " + o.only + ", want one of" + names);
#ifndef __CUDACC__
  if (!o.check) throw Invalid("built for the host, where times mean nothing: want --check");
#endif
  return o;
}

} // namespace

Trial copy(const Input &input, void *to) {
  auto error = [&input](const char *got) {
    double bytes = 0; // number of bytes that differ
    for (size_t i = 0; i < input.host.size(); i++) bytes += got[i] != input.host[i];
    return bytes;
  };
  const int64_t bytes = input.images.bytes();
  return {
      2 * bytes,
      bytes,
      0,
      {copy_variant<1>(input, to), copy_variant<2>(input, to), copy_variant<4>(input, to), copy_variant<8>(input, to)},
      error};
}

} // namespace hetero::lab

int main(int count, char **words) {
  const std::vector<std::string> rest(words + 1, words + count);
  if (rest == std::vector<std::string>{"--help"}) return std::fputs(hetero::lab::kUsage, stdout), 0;
  try {
    return hetero::lab::run(hetero::lab::parse(rest)) ? 0 : 1;
  } catch (const std::exception &e) {
    std::fprintf(stderr, "cuda-lab: %s\n", e.what());
    return 2;
  }
}
