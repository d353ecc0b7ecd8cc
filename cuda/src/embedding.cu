// embedding.cu: lookup of rows in embedding tables, and the gradient of a table.
//
//     dst[n, t] = tokens[ids[n, t]] + by_position[t] + segments[kinds[n, t]]
//
// dst is (N, T, C). ids and kinds are inputs (N, T). The terms of positions and segments are optional.
//
// The gradient of a table with ids needs no atomic additions, so its bits depend on the ids alone. The list of all rows
// of diff_dst is processed in three steps:
//
//   1. Sort: a stable radix sort by id, 4 bits at a time. Each pass counts, scans and moves.
//   2. Sum: a block adds the rows of a piece of the sorted list. It writes the sum of an id to the table if all rows of
//     the id lie within the piece. If an adjacent piece has further rows of the id, it leaves a partial sum.
//   3. Join: adds the partial sums of an id in order.
#include "fault.h"
#include "gpu.h"
#include "ops.h"

namespace hetero {
namespace {

constexpr int kDigits = 16, kBits = 4; // digits and bits of one pass of the sort
constexpr int kItems = 16;             // adjacent elements that a thread sorts
constexpr int kTile = kThreads * kItems;
// Rows of a piece. In a larger piece, the rows of a frequent id are added in a longer chain. Smaller pieces leave more
// partial sums. The number is small on the host, where tests have few rows.
#ifdef __CUDACC__
constexpr int kPiece = 64;
#else
constexpr int kPiece = 8;
#endif

struct Lookup {
  const int32_t *ids; // nullptr: no such table
  const float *table;
  int64_t rows;
  uint64_t *fault;
};

// Adds the row of id ids[r] to sum: V channels from c on.
template <int V> __device__ void add_row(const Lookup &l, int64_t r, int64_t channels, int64_t c, float *sum) {
  const int32_t id = l.ids[r];
  if (id < 0 || id >= l.rows) {
    mark(l.fault, r, id);
    return;
  }
  float x[V];
  load_row<V>(l.table, id * channels + c, x);
  for (int v = 0; v < V; v++) sum[v] += x[v];
}

template <int V, class T>
__global__ void embed(int64_t rows, int64_t positions, int64_t channels, Lookup tokens, const float *by_position,
                      Lookup segments, T *dst) {
  const int64_t packs = channels / V;
  for (int64_t i = first_index(); i < rows * packs; i += index_stride()) {
    const int64_t r = i / packs, c = i % packs * V;
    float sum[V] = {}, x[V];
    add_row<V>(tokens, r, channels, c, sum);
    if (by_position) {
      load_row<V>(by_position, r % positions * channels + c, x);
      for (int v = 0; v < V; v++) sum[v] += x[v];
    }
    if (segments.ids) add_row<V>(segments, r, channels, c, sum);
    store_row<V>(dst, r * channels + c, sum);
  }
}

// Writes the unsorted list. Bad ids become `rows`, which sorts after all valid ids.
__global__ void list_ids(int32_t n, int32_t rows, const int32_t *ids, uint64_t *fault, int32_t *keys, int32_t *order) {
  for (int64_t i = first_index(); i < n; i += index_stride()) {
    const int32_t id = ids[i];
    const bool bad = id < 0 || id >= rows;
    if (bad) mark(fault, i, id);
    keys[i] = bad ? rows : id;
    order[i] = static_cast<int32_t>(i);
  }
}

// Counts how often each digit occurs in this thread's elements, in the thread's own column of part.
__device__ void count_own(int32_t n, int shift, const int32_t *keys, int32_t (*part)[kThreads]) {
  for (int d = 0; d < kDigits; d++) part[d][threadIdx.x] = 0;
  const int64_t from = int64_t{blockIdx.x} * kTile + threadIdx.x * kItems;
  for (int64_t i = from; i < from + kItems && i < n; i++) part[keys[i] >> shift & (kDigits - 1)][threadIdx.x]++;
}

// Computes counts (16, tiles): the number of elements of each tile that have each digit.
__global__ void count_digits(int32_t n, int shift, const int32_t *keys, int32_t *counts) {
  __shared__ int32_t part[kDigits][kThreads];
  count_own(n, shift, keys, part);
  __syncthreads();
  if (threadIdx.x >= kDigits) return;
  int32_t sum = 0;
  for (int t = 0; t < kThreads; t++) sum += part[threadIdx.x][t];
  counts[int64_t{threadIdx.x} * gridDim.x + blockIdx.x] = sum;
}

// Replaces each of the n counts by the sum of all earlier counts (an exclusive scan). Runs in one block.
__global__ void scan_counts(int64_t n, int32_t *counts) {
  __shared__ int32_t part[kThreads];
  const int64_t each = (n + kThreads - 1) / kThreads, from = threadIdx.x * each;
  const int64_t to = from + each < n ? from + each : n;
  int32_t sum = 0;
  for (int64_t i = from; i < to; i++) sum += counts[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t before = 0;
    for (int t = 0; t < kThreads; t++) {
      const int32_t own = part[t];
      part[t] = before;
      before += own;
    }
  }
  __syncthreads();
  int32_t before = part[threadIdx.x];
  for (int64_t i = from; i < to; i++) {
    const int32_t own = counts[i];
    counts[i] = before;
    before += own;
  }
}

__global__ void move_digits(int32_t n, int shift, const int32_t *keys, const int32_t *order, const int32_t *starts,
                            int32_t *to_keys, int32_t *to_order) {
  __shared__ int32_t part[kDigits][kThreads];
  count_own(n, shift, keys, part);
  __syncthreads();
  if (threadIdx.x < kDigits) {
    int32_t before = starts[int64_t{threadIdx.x} * gridDim.x + blockIdx.x];
    for (int t = 0; t < kThreads; t++) {
      const int32_t own = part[threadIdx.x][t];
      part[threadIdx.x][t] = before;
      before += own;
    }
  }
  __syncthreads();
  const int64_t from = int64_t{blockIdx.x} * kTile + threadIdx.x * kItems;
  for (int64_t i = from; i < from + kItems && i < n; i++) {
    const int32_t at = part[keys[i] >> shift & (kDigits - 1)][threadIdx.x]++;
    to_keys[at] = keys[i];
    to_order[at] = order[i];
  }
}

struct Sorted {
  int64_t n, rows, channels;
  const int32_t *keys, *order;
  float *head, *tail; // (pieces, C): partial sums of the first id of a piece, and of the last one
  float *table;
  bool add; // true: adds to the table; false: overwrites it

  __device__ void write(int64_t key, int64_t c, float sum) const {
    float *to = table + key * channels + c;
    *to = add ? *to + sum : sum;
  }
  __device__ bool continues(int64_t i) const { return i > 0 && i < n && keys[i - 1] == keys[i]; }
};

template <class T> __global__ void sum_rows_of_ids(Sorted s, const T *diff) {
  const int64_t c = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (c >= s.channels) return;
  const int64_t piece = blockIdx.x, begin = piece * kPiece, end = begin + kPiece < s.n ? begin + kPiece : s.n;
  bool from_before = s.continues(begin);
  float sum = 0;
  for (int64_t i = begin; i < end; i++) {
    sum += load(diff + s.order[i] * s.channels + c);
    if (i + 1 < end && s.continues(i + 1)) continue;
    const int32_t key = s.keys[i];
    if (from_before)
      s.head[piece * s.channels + c] = sum;
    else if (s.continues(i + 1))
      s.tail[piece * s.channels + c] = sum;
    else if (key < s.rows)
      s.write(key, c, sum);
    from_before = false;
    sum = 0;
  }
}

// Adds the partial sums of the id that begins in this piece and continues after it, if there is such an id.
__global__ void join_pieces(Sorted s) {
  const int64_t c = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (c >= s.channels) return;
  const int64_t piece = blockIdx.x, begin = piece * kPiece, end = begin + kPiece;
  if (!s.continues(end)) return;
  const int32_t key = s.keys[end];
  if (key >= s.rows || (begin > 0 && s.keys[begin - 1] == key)) return;
  float sum = s.tail[piece * s.channels + c];
  for (int64_t p = piece + 1; p * kPiece < s.n && s.keys[p * kPiece] == key; p++) sum += s.head[p * s.channels + c];
  s.write(key, c, sum);
}

// Computes the gradient of a table of positions: row t is the sum of diff_dst at position t over all samples.
template <class T>
__global__ void sum_positions(int64_t samples, int64_t positions, int64_t rows, int64_t channels, bool add,
                              const T *diff, float *table) {
  for (int64_t i = first_index(); i < rows * channels; i += index_stride()) {
    float sum = 0;
    if (i < positions * channels)
      for (int64_t n = 0; n < samples; n++) sum += load(diff + n * positions * channels + i);
    table[i] = add ? table[i] + sum : sum;
  }
}

void want_i32(const char *name, const ht_spec &s) {
  if (s.dtype != HT_I32) throw Invalid(std::string(name) + ": got " + describe(s) + ", want i32");
}

int64_t up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

} // namespace

std::unique_ptr<Kernel> make_embedding(const Request &request) {
  Specced k;
  take_plain(k, request);
  want_i32("tokens", k.in[0]);
  if (k.in.size() > 3) want_i32("segments", k.in[3]);
  for (size_t i : {1, 2, 4})
    if (i < k.in.size()) want_f32(k.in[i]);
  const int64_t rows = elements(k.in[0]), positions = k.in[0].dims[1], channels = k.in[1].dims[1];
  if (rows > INT32_MAX) throw Unsupported("rows: got " + std::to_string(rows) + ", want at most 2147483647");
  const bool placed = k.in.size() > 2, kinds = k.in.size() > 3;
  const int64_t vocabulary = k.in[1].dims[0], segments = kinds ? k.in[4].dims[0] : 0;
  const Fault bad_token(bad_id("embedding: tokens", vocabulary)), bad_segment(bad_id("embedding: segments", segments));
  return with_float(k.out[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [=](const Args &x) {
      const auto ids = [&](size_t i) { return static_cast<const int32_t *>(x.in[i]); };
      const auto table = [&](size_t i) { return static_cast<const float *>(x.in[i]); };
      const Lookup tokens{ids(0), table(1), vocabulary, bad_token.word()};
      const Lookup others = kinds ? Lookup{ids(3), table(4), segments, bad_segment.word()} : Lookup{};
      const float *by_position = placed ? table(2) : nullptr;
      const bool wide = channels % 4 == 0 && aligned({tokens.table, by_position, others.table, x.out[0]});
      launch(wide ? embed<4, T> : embed<1, T>, over(rows * channels / (wide ? 4 : 1)), x.queue, rows, positions,
             channels, tokens, by_position, others, static_cast<T *>(x.out[0]));
    });
  });
}

std::unique_ptr<Kernel> make_embedding_diff(const Request &request) {
  const auto p = *static_cast<const ht_embedding_params *>(request.params);
  Specced k;
  take_plain(k, request);
  want_f32(k.out[0]);
  const int64_t samples = k.in[0].dims[0], positions = k.in[0].dims[1], channels = k.in[0].dims[2], rows = p.rows;
  const int64_t n = samples * positions, columns = (channels + kThreads - 1) / kThreads;
  const bool add = p.accumulate;
  if (add) k.inplace = {{0, static_cast<int32_t>(k.in.size() - 1)}};
  if (p.positions)
    return with_float(k.in[0], [&](auto type) {
      using T = decltype(type);
      return launcher(k, [=](const Args &x) {
        launch(sum_positions<T>, over(rows * channels), x.queue, samples, positions, rows, channels, add,
               static_cast<const T *>(x.in[0]), static_cast<float *>(x.out[0]));
      });
    });
  want_i32("ids", k.in[1]);
  if (n > INT32_MAX - kTile || rows >= INT32_MAX)
    throw Unsupported("rows: got " + std::to_string(n) + " gradients of a table of " + std::to_string(rows) +
                      ", want at most " + std::to_string(INT32_MAX - kTile) + " and 2147483646");
  if (columns > 65535)
    throw Unsupported("channels: got " + std::to_string(channels) + ", want at most " +
                      std::to_string(int64_t{65535} * kThreads));
  int bits = 1;
  while (rows >> bits) bits++;
  const int passes = (bits + kBits - 1) / kBits;
  const int64_t tiles = (n + kTile - 1) / kTile, pieces = (n + kPiece - 1) / kPiece;
  const int64_t list = up(n * 4), counts = up(kDigits * tiles * 4), partial = up(pieces * channels * 4);
  k.workspace = 4 * list + counts + 2 * partial;
  const Fault bad(bad_id("embedding_diff: ids", rows));
  return with_float(k.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [=](const Args &x) {
      char *space = static_cast<char *>(x.workspace);
      int32_t *keys[2], *order[2];
      for (int i = 0; i < 2; i++) {
        keys[i] = reinterpret_cast<int32_t *>(space + 2 * i * list);
        order[i] = reinterpret_cast<int32_t *>(space + (2 * i + 1) * list);
      }
      auto *starts = reinterpret_cast<int32_t *>(space + 4 * list);
      auto *head = reinterpret_cast<float *>(space + 4 * list + counts);
      auto *tail = reinterpret_cast<float *>(space + 4 * list + counts + partial);
      const auto count = static_cast<int32_t>(n);
      launch(list_ids, over(n), x.queue, count, static_cast<int32_t>(rows), static_cast<const int32_t *>(x.in[1]),
             bad.word(), keys[0], order[0]);
      int at = 0;
      for (int pass = 0; pass < passes; pass++, at = 1 - at) {
        const int shift = pass * kBits;
        launch(count_digits, Grid{tiles}, x.queue, count, shift, keys[at], starts);
        launch(scan_counts, Grid{1}, x.queue, kDigits * tiles, starts);
        launch(move_digits, Grid{tiles}, x.queue, count, shift, keys[at], order[at], starts, keys[1 - at],
               order[1 - at]);
      }
      auto *table = static_cast<float *>(x.out[0]);
      if (!add)
        check(cudaMemsetAsync(table, 0, static_cast<size_t>(rows * channels) * sizeof(float),
                              static_cast<cudaStream_t>(x.queue)),
              "clearing the gradient of a table");
      const Sorted s{n, rows, channels, keys[at], order[at], head, tail, table, add};
      launch(sum_rows_of_ids<T>, Grid{pieces, columns}, x.queue, s, static_cast<const T *>(x.in[0]));
      launch(join_pieces, Grid{pieces, columns}, x.queue, s);
    });
  });
}

} // namespace hetero
