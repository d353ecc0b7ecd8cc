// batchnorm.cc: batch normalisation of images x (N, C, H, W) in four passes, as package device defines them. G is the
// number of statistics groups: groups of samples with statistics of their own. dz is the gradient of z.
//
//     stats        mean, var (G, C)                  one read of x
//     apply        y = ReLU(z [+ residual])          one read, one write
//                  z = (x - mean)·gamma/sqrt(var + eps) + beta
//     diff_reduce  diff_gamma, diff_beta (G, C)      one read of x and diff_y, one write of dz if the op outputs it
//     diff_apply   diff_x                            one read of x and dz, one write
//
// The work is divided into items. Each item is a range of rows (rows.h) of one or more units. The division depends on
// the shape alone, so partial sums and their order do not depend on the number of threads. All passes over a tensor use
// the same division. A later pass therefore finds the data of an earlier pass in a core's cache. The inner loops are in
// batchnorm_simd.h.
#include <cmath>
#include <cstring>

#include "images.h"
#include "layout.h"
#include "ops.h"
#include "rows.h"
#include "simd_table.h"

namespace hetero {
namespace {

constexpr int64_t kWantItems = 64;      // enough items to divide the work evenly among any number of threads
constexpr int64_t kLeastRows = 256;     // smallest number of rows of an item
constexpr int64_t kFarBytes = 16 << 20; // bytes; larger images do not fit into the caches

struct Item {
  int64_t group, part;
  Piece piece;
};

// The state that the four passes have in common: geometry, statistics groups and the division of work.
struct BatchNorm : Kernel {
  ht_batch_norm_params p;
  bool bf16;
  uint32_t layout;
  Rows rows;
  int64_t samples, group_samples, groups;
  int64_t parts, unit_blocks, units_a_block;
  bool threads;

  // Sets the specs. The operands at positions in and out are images with one layout; all other operands are plain.
  BatchNorm(const Request &request, const Positions &in, const Positions &out, int made_for = -1)
      : p(*static_cast<const ht_batch_norm_params *>(request.params)), bf16(is_bf16(request.in[0])) {
    take_plain_but(request, out);
    layout = choose_image_layout(*this, request, in, out, made_for);
    ImageLayout image;
    image_layout(this->in[0], &image);
    rows = rows_of(image);
    samples = image.n;
    group_samples = p.group <= 0 || p.group >= samples ? samples : p.group;
    groups = (samples + group_samples - 1) / group_samples;
    units_a_block = interleaved(rows) ? kMostUnits : 1;
    unit_blocks = (rows.units + units_a_block - 1) / units_a_block;
    const int64_t most = std::max<int64_t>(1, group_samples * rows.rows_per_sample / kLeastRows);
    parts = std::min(most, (kWantItems + groups * unit_blocks - 1) / (groups * unit_blocks));
    threads = worth_threads(this->in[0].bytes);
  }

  int64_t items() const { return groups * parts * unit_blocks; }

  Item item(int64_t i) const {
    const int64_t block = i % unit_blocks, part = i / unit_blocks % parts, group = i / unit_blocks / parts;
    const int64_t begin = group * group_samples * rows.rows_per_sample;
    const int64_t n = std::min(group_samples, samples - group * group_samples) * rows.rows_per_sample;
    const int64_t unit = block * units_a_block, units = std::min(rows.units - unit, units_a_block);
    return {group, part, {unit, units, begin + n * part / parts, begin + n * (part + 1) / parts}};
  }

  // Returns the number of elements per channel in a group. If the op states the total number over all ranks (p.count),
  // a full group has this number.
  double full_count(int64_t group) const {
    const int64_t n = std::min(group_samples, samples - group * group_samples);
    if (p.count > 0 && n == group_samples) return double(p.count);
    return double(n) * double(in[0].dims[2]) * double(in[0].dims[3]);
  }

  // Returns the channel of a lane of a unit; -1 for padding.
  int64_t channel(int64_t unit, int64_t lane) const {
    const int64_t c = unit * rows.unit_channels + lane % rows.unit_channels;
    return c < rows.channels ? c : -1;
  }

  // Returns whether the images do not fit into the caches and their rows are full and contiguous.
  bool far() const {
    return units_a_block == 1 && rows.tail_lanes == 16 && rows.last_unit_lanes == 16 && rows.row_stride == 16 &&
           in[0].bytes > kFarBytes;
  }

  int64_t lanes_bytes() const { return groups * rows.units * int64_t(sizeof(NormLanes)); }

private:
  void take_plain_but(const Request &request, const Positions &images) {
    Request plain = request;
    for (int i : images) plain.out[size_t(i)].layout = HT_LAYOUT_PLAIN;
    take_plain(*this, plain);
  }
};

bool aligned(const void *a) { return reinterpret_cast<uintptr_t>(a) % 64 == 0; }

// Computes the NormLanes of all units of all groups, on several threads if there are many. If `grouped` is true, the
// statistics of group g are row g of in[1] and in[2]; otherwise all groups use the same row.
void fill_lanes(const BatchNorm &k, void *const *in, bool grouped, NormLanes *lanes, const float *diff_gamma = nullptr,
                const float *diff_beta = nullptr) {
  const auto vectors = [&](int64_t g) -> NormVectors {
    const auto row = [&](const void *a) { return static_cast<const float *>(a) + (grouped ? g * k.rows.channels : 0); };
    return {row(in[1]),
            row(in[2]),
            static_cast<const float *>(in[3]),
            static_cast<const float *>(in[4]),
            diff_gamma ? row(diff_gamma) : nullptr,
            diff_beta ? row(diff_beta) : nullptr};
  };
#pragma omp parallel for schedule(static) if (k.groups * k.rows.units > 256)
  for (int64_t i = 0; i < k.groups * k.rows.units; i++) {
    const int64_t g = i / k.rows.units;
    simd().batch_norm.lanes(k.rows, i % k.rows.units, vectors(g), k.p.eps, k.full_count(g), lanes + i);
  }
}

// --- statistics ----------------------------------------------------------------------------------

struct Stats final : BatchNorm {
  explicit Stats(const Request &request) : BatchNorm(request, {0}, {}) {
    workspace = groups * parts * rows.units * int64_t(sizeof(Moments));
  }

  void run(const Args &a) override {
    auto *partial = static_cast<Moments *>(a.workspace);
    const auto stats = simd().batch_norm.stats[bf16][far()];
#pragma omp parallel for schedule(static) if (threads)
    for (int64_t i = 0; i < items(); i++) {
      const Item it = item(i);
      Moments *m = partial + (it.group * parts + it.part) * rows.units;
      std::memset(static_cast<void *>(m + it.piece.unit), 0, size_t(it.piece.units) * sizeof *m);
      stats(rows, it.piece, a.in[0], m + it.piece.unit);
    }
#pragma omp parallel for schedule(static) if (threads)
    for (int64_t i = 0; i < groups * rows.units; i++)
      combine(partial, i / rows.units, i % rows.units, static_cast<float *>(a.out[0]), static_cast<float *>(a.out[1]));
  }

  // Merges the moments of the parts in order, weighted by their counts. The merged squared deviations also contain the
  // differences of the means.
  void combine(const Moments *partial, int64_t group, int64_t unit, float *mean, float *var) const {
    Moments all{};
    for (int64_t part = 0; part < parts; part++) {
      const Moments &m = partial[(group * parts + part) * rows.units + unit];
      if (m.count == 0) continue; // the last group may have fewer rows than parts
      const double total = all.count + m.count;
      for (int64_t l = 0; l < rows.unit_channels; l++) {
        const double delta = m.mean[l] - all.mean[l];
        all.mean[l] += delta * m.count / total;
        all.m2[l] += m.m2[l] + delta * delta * all.count * m.count / total;
      }
      all.count = total;
    }
    for (int64_t l = 0; l < rows.unit_channels; l++) {
      const int64_t c = channel(unit, l);
      if (c < 0) continue;
      mean[group * rows.channels + c] = float(all.mean[l]);
      var[group * rows.channels + c] = float(all.m2[l] > 0 || all.m2[l] != all.m2[l] ? all.m2[l] / all.count : 0);
    }
  }
};

// --- forward -------------------------------------------------------------------------------------

struct Apply final : BatchNorm {
  bool grouped; // whether the statistics belong to groups; false: running statistics

  explicit Apply(const Request &request)
      : BatchNorm(request, params_of(request).add ? Positions{0, 5} : Positions{0}, {0}),
        grouped(request.in[1].ndim == 2) {
    workspace = lanes_bytes();
    inplace = {{0, 0}};
    if (p.add) inplace.push_back({0, 5});
    if (!(p.add && p.relu)) return;
    out[1] = opaque_spec(rows.words * 2);
    out[1].layout = layout;
  }

  static const ht_batch_norm_params &params_of(const Request &request) {
    return *static_cast<const ht_batch_norm_params *>(request.params);
  }

  void run(const Args &a) override {
    auto *lanes = static_cast<NormLanes *>(a.workspace);
    const void *residual = p.add ? a.in[5] : nullptr;
    auto *mask = p.add && p.relu ? static_cast<uint16_t *>(a.out[1]) : nullptr;
    const bool stream = far() && aligned(a.out[0]) && a.out[0] != a.in[0] && a.out[0] != residual;
    const auto apply = simd().batch_norm.apply[bf16][p.relu != 0][p.add != 0][stream];
    fill_lanes(*this, a.in, grouped, lanes);
#pragma omp parallel for schedule(static) if (threads)
    for (int64_t i = 0; i < items(); i++) {
      const Item it = item(i);
      const NormLanes *own = lanes + it.group * rows.units + it.piece.unit;
      apply(rows, it.piece, own, a.in[0], residual, a.out[0], mask);
    }
  }
};

// --- backward ------------------------------------------------------------------------------------

struct DiffReduce final : BatchNorm {
  bool keep_dz;
  ReluMask relu;

  explicit DiffReduce(const Request &request)
      : BatchNorm(request, two(request) ? Positions{0, 5, 6} : Positions{0, 5},
                  request.out.size() == 3 ? Positions{2} : Positions{}, mask_at(request)),
        keep_dz(p.add || p.two), relu(!p.relu ? kNoRelu
                                      : p.add ? kStored
                                              : kRecomputed) {
    lanes_at = groups * parts * rows.units * int64_t(sizeof(DiffSums));
    workspace = lanes_at + lanes_bytes();
    if (relu == kStored && in.back().bytes && in.back().bytes != rows.words * 2)
      throw Invalid("mask: got " + std::to_string(in.back().bytes) + " bytes, want " + std::to_string(rows.words * 2));
    if (relu == kStored) in.back().bytes = rows.words * 2;
    if (!keep_dz) return;
    inplace = {{2, 5}};
    if (p.two) inplace.push_back({2, 6});
  }

  static bool two(const Request &r) { return static_cast<const ht_batch_norm_params *>(r.params)->two; }
  static int mask_at(const Request &r) {
    const auto *p = static_cast<const ht_batch_norm_params *>(r.params);
    return p->relu && p->add ? int(r.in.size()) - 1 : -1;
  }

  void run(const Args &a) override {
    auto *partial = static_cast<DiffSums *>(a.workspace);
    auto *lanes = reinterpret_cast<NormLanes *>(static_cast<char *>(a.workspace) + lanes_at);
    const void *diff_y2 = p.two ? a.in[6] : nullptr;
    const auto *mask = relu == kStored ? static_cast<const uint16_t *>(a.in[in.size() - 1]) : nullptr;
    void *dz = keep_dz ? a.out[2] : nullptr;
    const auto reduce = simd().batch_norm.reduce[bf16][relu][p.two != 0][keep_dz][far()];
    fill_lanes(*this, a.in, true, lanes);
#pragma omp parallel for schedule(static) if (threads)
    for (int64_t i = 0; i < items(); i++) {
      const Item it = item(i);
      DiffSums *sums = partial + (it.group * parts + it.part) * rows.units;
      const NormLanes *own = lanes + it.group * rows.units + it.piece.unit;
      std::memset(static_cast<void *>(sums + it.piece.unit), 0, size_t(it.piece.units) * sizeof *sums);
      reduce(rows, it.piece, own, a.in[0], a.in[5], diff_y2, mask, dz, sums + it.piece.unit);
    }
#pragma omp parallel for schedule(static) if (threads)
    for (int64_t i = 0; i < groups * rows.units; i++) combine(partial, lanes[i], i / rows.units, i % rows.units, a);
  }

  // Sums over the parts, and over the lanes of a channel:
  //
  //     diff_gamma = sum(dz·(x - mean))/sqrt(var + eps)
  //     diff_beta = sum(dz)
  void combine(const DiffSums *partial, const NormLanes &lanes, int64_t group, int64_t unit, const Args &a) const {
    auto *diff_gamma = static_cast<float *>(a.out[0]), *diff_beta = static_cast<float *>(a.out[1]);
    for (int64_t first = 0; first < rows.unit_channels; first++) {
      const int64_t c = channel(unit, first), at = group * rows.channels + c;
      if (c < 0) continue;
      double dz = 0, dz_x = 0;
      for (int64_t part = 0; part < parts; part++) {
        const DiffSums &s = partial[(group * parts + part) * rows.units + unit];
        for (int64_t l = first; l < 16; l += rows.unit_channels) {
          dz += s.dz[l];
          dz_x += s.dz_x[l];
        }
      }
      diff_gamma[at] = float(dz_x * lanes.inverse[first]);
      diff_beta[at] = float(dz);
    }
  }

  int64_t lanes_at;
};

struct DiffApply final : BatchNorm {
  explicit DiffApply(const Request &request) : BatchNorm(request, {0, 5}, {0}) {
    workspace = lanes_bytes();
    inplace = {{0, 5}, {0, 0}};
  }

  void run(const Args &a) override {
    auto *lanes = static_cast<NormLanes *>(a.workspace);
    const bool stream = far() && aligned(a.out[0]) && a.out[0] != a.in[0] && a.out[0] != a.in[5];
    const auto apply = simd().batch_norm.diff_apply[bf16][p.relu != 0][stream];
    fill_lanes(*this, a.in, true, lanes, static_cast<const float *>(a.in[6]), static_cast<const float *>(a.in[7]));
#pragma omp parallel for schedule(static) if (threads)
    for (int64_t i = 0; i < items(); i++) {
      const Item it = item(i);
      const NormLanes *own = lanes + it.group * rows.units + it.piece.unit;
      apply(rows, it.piece, own, a.in[0], a.in[5], a.out[0]);
    }
  }
};

// --- the statistics of several ranks -------------------------------------------------------------

// Merges the statistics of several ranks. The definition of the op fixes the order of operations, because results must
// be bit-equal on all ranks.
struct Merge final : Kernel {
  explicit Merge(const Request &request) {
    want_operands(request, 2, 2);
    want_f32(request.in[0]);
    take_plain(*this, request);
  }

  void run(const Args &a) override {
    const auto *stats = static_cast<const float *>(a.in[0]);
    const auto *samples = static_cast<const int32_t *>(a.in[1]);
    auto *mean = static_cast<float *>(a.out[0]), *var = static_cast<float *>(a.out[1]);
    const int64_t ranks = in[0].dims[0], channels = in[0].dims[2];
    for (int64_t c = 0; c < channels; c++) {
      double n = 0, m = 0, m2 = 0;
      for (int64_t r = 0; r < ranks; r++) {
        if (samples[r] == 0) continue; // ignore the rows of a rank without samples
        const double k = samples[r], t = n + k, d = stats[2 * r * channels + c] - m;
        m += d * k / t;
        m2 += stats[(2 * r + 1) * channels + c] * k;
        m2 += d * d * n * k / t;
        n = t;
      }
      mean[c] = float(m);
      var[c] = float(m2 / n);
    }
  }
};

// --- running statistics --------------------------------------------------------------------------

struct Running final : Kernel {
  double momentum;
  std::vector<int64_t> counts;

  explicit Running(const Request &request) {
    const auto &p = *static_cast<const ht_batch_norm_running_params *>(request.params);
    want_operands(request, 4, 2);
    for (const ht_spec &s : request.in) want_f32(s);
    take_plain(*this, request);
    momentum = p.momentum;
    counts.assign(p.counts, p.counts + p.groups);
    if (p.groups != request.in[2].dims[0])
      throw Invalid("counts: got " + std::to_string(p.groups) + ", want " + std::to_string(request.in[2].dims[0]) +
                    " (one per group of the mean " + describe(request.in[2]) + ")");
  }

  void run(const Args &a) override {
    const auto *mean = static_cast<const float *>(a.in[2]), *var = static_cast<const float *>(a.in[3]);
    const auto *old_mean = static_cast<const float *>(a.in[0]), *old_var = static_cast<const float *>(a.in[1]);
    auto *running_mean = static_cast<float *>(a.out[0]), *running_var = static_cast<float *>(a.out[1]);
    const int64_t channels = in[0].dims[0], groups = int64_t(counts.size());
    for (int64_t c = 0; c < channels; c++) {
      double m = 0, v = 0;
      for (int64_t g = 0; g < groups; g++) {
        const double n = double(counts[size_t(g)]);
        m += mean[g * channels + c];
        v += var[g * channels + c] * (n > 1 ? n / (n - 1) : 1);
      }
      if (!std::isfinite(m) || !std::isfinite(v))
        continue; // the trainer skips a step with non-finite statistics, so running statistics must not change
      running_mean[c] = float(old_mean[c] + momentum * (m / double(groups) - old_mean[c]));
      running_var[c] = float(old_var[c] + momentum * (v / double(groups) - old_var[c]));
    }
  }
};

void check_operands(const Request &request, size_t inputs, size_t outputs) {
  want_operands(request, inputs, outputs);
  for (size_t i = 1; i < 5 && i < inputs; i++) want_f32(request.in[i]);
}

} // namespace

std::unique_ptr<Kernel> make_batch_norm_stats(const Request &request) {
  check_operands(request, 1, 2);
  return std::make_unique<Stats>(request);
}

std::unique_ptr<Kernel> make_batch_norm_merge(const Request &request) { return std::make_unique<Merge>(request); }

std::unique_ptr<Kernel> make_batch_norm_apply(const Request &request) {
  const auto &p = Apply::params_of(request);
  check_operands(request, p.add ? 6 : 5, p.add && p.relu ? 2 : 1);
  return std::make_unique<Apply>(request);
}

std::unique_ptr<Kernel> make_batch_norm_diff_reduce(const Request &request) {
  const auto &p = *static_cast<const ht_batch_norm_params *>(request.params);
  check_operands(request, 6 + (p.two != 0) + (p.relu && p.add), p.add || p.two ? 3 : 2);
  return std::make_unique<DiffReduce>(request);
}

std::unique_ptr<Kernel> make_batch_norm_diff_apply(const Request &request) {
  check_operands(request, 8, 1);
  return std::make_unique<DiffApply>(request);
}

std::unique_ptr<Kernel> make_batch_norm_running(const Request &request) { return std::make_unique<Running>(request); }

} // namespace hetero
