// choices.cc: times candidates with events.
//
// Each timed launch starts with a cold level-2 cache. In a training step, all other tensors pass through the cache
// between two runs of a kernel. Cached operands would favour candidates that read operands twice. Overwriting the cache
// also keeps the GPU busy while the host enqueues, so the measured time contains no gap. Candidates alternate, so that
// a change of clocks affects all of them.
#include "choices.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

#include "choice_file.h"
#include "gpu.h"
#include "notes.h"
#include "quiet.h"
#include "status.h"

namespace hetero {
namespace {

constexpr int kTurns = 7;      // timed launches per candidate; the median of their times is compared
constexpr float kHopeless = 3; // a candidate slower than this multiple of the best time is removed

// --- timing ---------------------------------------------------------------------------------------

// The resources for timing. Their memory is freed at quiescence.
class Stopwatch {
public:
  explicit Stopwatch(int64_t bytes) {
    flush_bytes_ = 2 * static_cast<size_t>(std::max(device_facts().l2CacheSize, 1 << 20));
    try {
      check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream for the comparison");
      check(cudaMalloc(&scratch_, static_cast<size_t>(std::max<int64_t>(bytes, 1))),
            "allocate scratch memory for the comparison");
      check(cudaMalloc(&flush_, flush_bytes_), "allocate scratch memory for the comparison");
      check(cudaEventCreate(&begin_), "create an event for the comparison");
      check(cudaEventCreate(&end_), "create an event for the comparison");
      // Fill with small numbers in every float type, because zeros would draw less power than real data and raise the
      // clock.
      check(cudaMemsetAsync(scratch_, 0x3c, static_cast<size_t>(std::max<int64_t>(bytes, 1)), stream_),
            "fill the scratch memory");
    } catch (...) {
      release();
      throw;
    }
  }
  ~Stopwatch() { release(); }
  Stopwatch(const Stopwatch &) = delete;

  float milliseconds(const Attempt &attempt) {
    check(cudaMemsetAsync(flush_, 0, flush_bytes_, stream_), "flush the L2 cache");
    check(cudaEventRecord(begin_, stream_), "measure the elapsed time");
    attempt(scratch_, stream_);
    check(cudaEventRecord(end_, stream_), "measure the elapsed time");
    check(cudaEventSynchronize(end_), "measure the elapsed time");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "measure the elapsed time");
    return ms;
  }

private:
  void release() {
    if (end_) cudaEventDestroy(end_);
    if (begin_) cudaEventDestroy(begin_);
    if (stream_) cudaStreamDestroy(stream_);
    for (void *p : {flush_, scratch_})
      if (p) Quiet::discard(std::shared_ptr<void>(p, [](void *q) { Quiet::freed(cudaFree(q), "scratch memory"); }));
  }

  void *scratch_ = nullptr, *flush_ = nullptr;
  size_t flush_bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

struct Runner {
  size_t index;
  Attempt attempt;
  std::vector<float> ms;
  float median() {
    std::nth_element(ms.begin(), ms.begin() + static_cast<std::ptrdiff_t>(ms.size() / 2), ms.end());
    return ms[ms.size() / 2];
  }
};

// A comparison in progress. The caller calls prepare, then start at quiescence (quiet.h), then finish or first.
class Timing {
public:
  explicit Timing(const Comparison &comparison) : comparison_(comparison) {}

  void prepare() {
    for (size_t i = 0; i < comparison_.candidates.size(); i++)
      attempt(i, [&] { field_.push_back({i, comparison_.candidates[i].prepare(), {}}); });
  }
  // Runs each candidate once without keeping the time, because the first run loads code.
  void start() {
    watch_.emplace(comparison_.bytes);
    std::vector<Runner> started;
    for (Runner &r : field_)
      attempt(r.index, [&] {
        watch_->milliseconds(r.attempt);
        started.push_back(std::move(r));
      });
    field_ = std::move(started);
  }
  // Returns the first candidate that works, in the order of the comparison.
  size_t first() const {
    if (field_.empty()) throw Unsupported(none_works());
    size_t i = field_[0].index;
    for (const Runner &r : field_) i = std::min(i, r.index);
    return i;
  }
  // Returns the index and the time of the fastest candidate.
  std::pair<size_t, float> finish() {
    if (field_.empty()) throw Unsupported(none_works());
    for (Runner &r : field_) r.ms.push_back(watch_->milliseconds(r.attempt));
    const auto quicker = [](const Runner &a, const Runner &b) { return a.ms[0] < b.ms[0]; };
    const float best = std::min_element(field_.begin(), field_.end(), quicker)->ms[0];
    const auto hopeless = [&](const Runner &r) { return r.ms[0] > kHopeless * best; };
    field_.erase(std::remove_if(field_.begin(), field_.end(), hopeless), field_.end());
    for (int turn = 1; turn < kTurns && field_.size() > 1; turn++)
      for (Runner &r : field_) r.ms.push_back(watch_->milliseconds(r.attempt));
    const auto first =
        std::min_element(field_.begin(), field_.end(), [](Runner &a, Runner &b) { return a.median() < b.median(); });
    return {first->index, first->median()};
  }

private:
  std::string none_works() const {
    return "none of " + std::to_string(comparison_.candidates.size()) + " candidates works: " + reason_;
  }
  // Runs work for a candidate. If work throws, the candidate is removed.
  template <class Work> void attempt(size_t candidate, Work work) {
    try {
      work();
    } catch (const OutOfMemory &) {
      throw;
    } catch (const std::exception &e) {
      reason_ = comparison_.candidates[candidate].name + ": " + e.what();
      cudaGetLastError();
    }
  }

  const Comparison &comparison_;
  std::optional<Stopwatch> watch_;
  std::vector<Runner> field_;
  std::string reason_ = "no candidates";
};

// --- memory of the process and of the disk ----------------------------------------------------------

Notes &notes() {
  static Notes n;
  return n;
}

// Properties of this machine on which choices depend, as part of a file's name.
std::string this_machine() {
  const cudaDeviceProp facts = device_facts();
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "query the driver's version");
  std::ostringstream text;
  text << facts.name << " sm_" << facts.major << facts.minor << ' ' << facts.multiProcessorCount << " SMs driver "
       << driver;
  return file_name_of(text.str());
}

// Returns the index of the candidate with that name, or the number of candidates if there is none.
size_t named(const Comparison &comparison, const std::string &name) {
  size_t i = 0;
  while (i < comparison.candidates.size() && comparison.candidates[i].name != name) i++;
  return i;
}

} // namespace

size_t fastest(const Comparison &comparison) {
  const size_t count = comparison.candidates.size();
  if (count == 1) return 0;
  static std::mutex one_at_a_time;
  static std::map<std::string, Choices> known; // cached choices, by file
  std::unique_lock<std::mutex> hold(one_at_a_time);

  const std::string machine = this_machine(), key = comparison.library + " " + comparison.key;
  Choices &mine = known[machine];
  auto chosen = [&](const Choices &list) {
    const auto found = list.find(key);
    return found == list.end() ? count : named(comparison, found->second.name);
  };
  if (const size_t i = chosen(mine); i < count) return i;

  const std::string folder = choice_folder(), path = folder + "/" + machine + ".tsv";
  static std::set<std::string> refused; // files that cannot be locked or written
  const auto refuse = [&](const std::string &reason) {
    if (refused.insert(path).second)
      notes().add("algorithms are not chosen by timing, because the choices cannot be stored in " + path + ": " +
                  reason);
  };
  auto others = std::make_unique<ChoiceLock>(folder);
  Choices stored;
  auto chosen_by_others = [&] {
    if (!folder.empty()) stored = read_choices(path);
    const size_t i = chosen(stored);
    if (i < count) mine[key] = stored[key];
    return i;
  };
  if (const size_t i = chosen_by_others(); i < count) return i;
  if (folder.empty())
    refuse("neither XDG_CACHE_HOME nor HOME is set");
  else if (!others->held())
    refuse(others->failure());
  else if (!write_choices(path, stored))
    refuse("the file cannot be written");
  try {
    Timing timing(comparison);
    timing.prepare();
    if (!Quiet::now([&] { timing.start(); })) {
      // Release the locks first, because the stream may be blocked on a rank that waits for this lock.
      others.reset();
      hold.unlock();
      Quiet::moment([&] { timing.start(); });
      hold.lock();
      if (const size_t i = chosen(mine); i < count) return i; // another thread has made the choice in the meantime
      others = std::make_unique<ChoiceLock>(folder);
      if (const size_t i = chosen_by_others(); i < count) return i;
      if (!folder.empty() && !others->held()) refuse(others->failure());
    }
    if (!refused.count(path)) {
      const auto [i, ms] = timing.finish();
      stored[key] = {comparison.candidates[i].name, std::to_string(1000 * ms)};
      if (write_choices(path, stored)) {
        mine[key] = stored[key];
        return i;
      }
      refuse("the file cannot be written");
    }
    // The choice cannot be stored, so every process takes the same candidate without timing.
    const size_t i = timing.first();
    mine[key] = {comparison.candidates[i].name, "not timed"};
    return i;
  } catch (const OutOfMemory &) {
    cudaGetLastError();
    return 0;
  }
}

std::string choice_notes() { return notes().text(); }

} // namespace hetero
