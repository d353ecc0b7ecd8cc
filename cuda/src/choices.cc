// choices.cc: times candidates with events.
//
// Each timed launch starts with a cold level-2 cache. In a step all other tensors pass through the cache between two
// runs of a kernel; cached operands would favour candidates that read them twice. Overwriting the cache also keeps the
// GPU busy while the host enqueues, so the measured time contains no gap. Candidates alternate, so that a change of
// clocks affects all of them.
#include "choices.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>

#include "gpu.h"
#include "quiet.h"
#include "status.h"

namespace hetero {
namespace {

constexpr int kTurns = 7;                      // timed launches per candidate; the median of their times is compared
constexpr float kHopeless = 3;                 // a candidate slower than this multiple of the best time drops out
constexpr size_t kMostBytes = size_t{1} << 20; // largest size of a file: a few thousand choices
constexpr int kLockSeconds = 120;              // limit of the wait for the lock; longer than any comparison
const char *const kHeader = "hetero-train choices 1";

// --- timing ---------------------------------------------------------------------------------------

// The resources for timing. Their memory is freed at quiescence.
class Stopwatch {
public:
  explicit Stopwatch(int64_t bytes) {
    cudaDeviceProp facts{};
    int device = 0;
    check(cudaGetDevice(&device), "query the current device");
    check(cudaGetDeviceProperties(&facts, device), "query the device's properties");
    flush_bytes_ = 2 * static_cast<size_t>(std::max(facts.l2CacheSize, 1 << 20));
    try {
      check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream for the comparison");
      check(cudaMalloc(&scratch_, static_cast<size_t>(std::max<int64_t>(bytes, 1))),
            "allocate scratch memory for the comparison");
      check(cudaMalloc(&flush_, flush_bytes_), "allocate scratch memory for the comparison");
      check(cudaEventCreate(&begin_), "create an event for the comparison");
      check(cudaEventCreate(&end_), "create an event for the comparison");
      // Small numbers in every float type: zeros would draw less power than real data and raise the clock.
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

// A comparison in progress: prepare, then start at quiescence, then finish.
class Timing {
public:
  explicit Timing(const Comparison &comparison) : comparison_(comparison) {}

  void prepare() {
    for (size_t i = 0; i < comparison_.candidates.size(); i++)
      attempt(i, [&] { field_.push_back({i, comparison_.candidates[i].prepare(), {}}); });
  }
  // The first run loads code, and is not timed.
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
  // Returns the index and the time of the fastest candidate.
  std::pair<size_t, float> finish() {
    if (field_.empty())
      throw Unsupported("none of " + std::to_string(comparison_.candidates.size()) + " candidates works: " + reason_);
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
  // Runs work for a candidate, which drops out if work throws.
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

// One line per choice: key, name, microseconds, separated by tabs.
using Choices = std::map<std::string, std::pair<std::string, std::string>>; // key -> name, microseconds

// The folder of the user's caches; "" if unknown.
std::string cache_folder() {
  const char *xdg = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (xdg && *xdg == '/') return xdg;
  return home && *home ? std::string(home) + "/.cache" : "";
}

std::string make_folders() {
  std::string folder = cache_folder();
  if (folder.empty()) return folder;
  mkdir(folder.c_str(), 0755);
  for (const char *part : {"/hetero-train", "/choices"}) mkdir((folder += part).c_str(), 0755);
  return folder;
}

// Properties of this machine on which choices depend, as part of a file's name. Queried once per device, because the
// query takes milliseconds.
const std::string &this_machine() {
  static std::map<int, std::string> names; // guarded by the lock of fastest()
  cudaDeviceProp facts{};
  int device = 0, driver = 0;
  check(cudaGetDevice(&device), "query the current device");
  if (const auto known = names.find(device); known != names.end()) return known->second;
  check(cudaGetDeviceProperties(&facts, device), "query the device's properties");
  check(cudaDriverGetVersion(&driver), "query the driver's version");
  std::ostringstream text;
  text << facts.name << " sm_" << facts.major << facts.minor << ' ' << facts.multiProcessorCount << " SMs driver "
       << driver;
  std::string name = text.str();
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  return names[device] = name;
}

// A file that is damaged or of another version counts as empty, and the next choice replaces it. Damaged lines are
// ignored.
Choices read(const std::string &path) {
  Choices list;
  std::ifstream in(path, std::ios::binary);
  std::string text(kMostBytes, 0);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (!in.eof()) return list;
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n')); // a last line without an end is truncated
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kHeader) return list;
  while (std::getline(lines, line)) {
    const size_t a = line.find('\t'), b = a == std::string::npos ? a : line.find('\t', a + 1);
    if (b == std::string::npos || line.find('\t', b + 1) != std::string::npos) continue;
    list[line.substr(0, a)] = {line.substr(a + 1, b - a - 1), line.substr(b + 1)};
  }
  return list;
}

// Replaces the file as a whole. Failures are ignored: the next process makes the choice again.
void write(const std::string &path, const Choices &list) {
  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out << kHeader << '\n';
    for (const auto &[key, choice] : list) out << key << '\t' << choice.first << '\t' << choice.second << '\n';
    out.flush();
    if (!out) {
      unlink(temporary.c_str());
      return;
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) unlink(temporary.c_str());
}

// Prevents other processes of this machine from timing at the same time. The wait for the lock is limited, so a process
// that hangs does not block other processes for ever.
class Lock {
public:
  explicit Lock(const std::string &path) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    const timespec nap{0, 10'000'000};
    for (int i = 0; file_ >= 0 && i < kLockSeconds * 100 && flock(file_, LOCK_EX | LOCK_NB) != 0; i++)
      nanosleep(&nap, nullptr);
  }
  ~Lock() {
    if (file_ >= 0) close(file_);
  }
  Lock(const Lock &) = delete;

private:
  int file_;
};

// The index of the candidate with that name; the number of candidates if there is none.
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
    return found == list.end() ? count : named(comparison, found->second.first);
  };
  if (const size_t i = chosen(mine); i < count) return i;

  const std::string folder = make_folders(), path = folder + "/" + machine + ".tsv";
  const std::string lock = folder.empty() ? "" : folder + "/lock";
  auto others = std::make_unique<Lock>(lock);
  Choices stored;
  auto chosen_by_others = [&] {
    if (!folder.empty()) stored = read(path);
    const size_t i = chosen(stored);
    if (i < count) mine[key] = stored[key];
    return i;
  };
  if (const size_t i = chosen_by_others(); i < count) return i;
  try {
    Timing timing(comparison);
    timing.prepare();
    if (!Quiet::now([&] { timing.start(); })) {
      // Release the locks first: the stream may be blocked on a rank that waits for this lock.
      others.reset();
      hold.unlock();
      Quiet::moment([&] { timing.start(); });
      hold.lock();
      if (const size_t i = chosen(mine); i < count) return i; // another thread has made the choice in the meantime
      others = std::make_unique<Lock>(lock);
      if (const size_t i = chosen_by_others(); i < count) return i;
    }
    const auto [i, ms] = timing.finish();
    stored[key] = mine[key] = {comparison.candidates[i].name, std::to_string(1000 * ms)};
    if (!folder.empty()) write(path, stored);
    return i;
  } catch (const OutOfMemory &) {
    cudaGetLastError();
    return 0;
  }
}

} // namespace hetero
