// choices.cc: times candidates, and stores the choices.
#include "choices.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>

#include "choice_file.h"
#include "choice_sample.h"
#include "headroom.h"
#include "isa.h"
#include "machine.h"
#include "memory.h"
#include "notes.h"
#include "requests.h"
#include "status.h"
#include "team.h"
#if HT_HAVE_ONEDNN
#include "onednn.h"
#endif

namespace hetero {
namespace {

constexpr int kVersion = 1;        // increase it if the speed of this library's kernels changes
constexpr double kFlops = 1e7;     // an op with less work takes microseconds, so its kernel hardly matters
constexpr int kLeastTurns = 3;     // minimum number of timed launches of each candidate
constexpr int kMostTurns = 9;      // maximum number
constexpr double kBudget = 20'000; // us: time for all launches of a comparison; exceeded if kLeastTurns take longer
constexpr double kFar = 8;         // a candidate that is slower than another by this factor is not timed again
constexpr double kMargin = 0.9;    // another candidate must take at most this fraction of the first one's time

// --- timing ---------------------------------------------------------------------------------------

// A kernel with its operands.
class Bench {
public:
  Bench(const char *name, std::unique_ptr<Kernel> kernel, const Sample &sample)
      : name(name), kernel_(std::move(kernel)) {
    for (size_t i = 0; i < kernel_->in.size(); i++) {
      in_.push_back(take(kernel_->in[i].bytes));
      fill_input(sample, i, kernel_->in[i], in_.back());
    }
    for (const ht_spec &spec : kernel_->out) out_.push_back(take(spec.bytes));
    workspace_ = take(kernel_->workspace);
  }

  double microseconds() {
    Meter meter;
    kernel_->run({in_.data(), out_.data(), workspace_, nullptr});
    return 1e-3 * double(meter.stop());
  }

  const char *const name;
  // us; the minimum counts, because other programs can only lengthen a launch.
  double least = std::numeric_limits<double>::infinity();

private:
  void *take(int64_t bytes) {
    bytes = std::max<int64_t>(bytes, 64);
    void *p = allocate(bytes);
    if (!p) throw OutOfMemory(refusal_of(bytes));
    memory_.emplace_back(p, Release{bytes});
    return p;
  }

  struct Release {
    int64_t bytes;
    void operator()(void *p) const { release(p, bytes); }
  };
  std::unique_ptr<Kernel> kernel_;
  std::vector<std::unique_ptr<void, Release>> memory_;
  std::vector<void *> in_, out_;
  void *workspace_ = nullptr;
};

using Benches = std::vector<std::unique_ptr<Bench>>;

Notes &notes() {
  static Notes n;
  return n;
}

enum class Outcome { done, unsupported, failed };

// Calls work, which runs a candidate. The candidate is removed if it does not support the op, or if it fails. A failure
// is noted once. Lack of memory does not count as a failure of the candidate.
template <class Work> Outcome attempt(ht_op op, const char *name, Work work) {
  try {
    work();
    return Outcome::done;
  } catch (const Unsupported &) {
    return Outcome::unsupported;
  } catch (const OutOfMemory &) {
    throw;
  } catch (const std::bad_alloc &) {
    throw;
  } catch (const std::exception &e) {
    notes().add("the kernel " + std::string(name) + " of " + op_name(op) +
                " is not used, because it fails: " + e.what());
    return Outcome::failed;
  }
}

// Returns the times in HETERO_CPU_TIMES, by name. The result is empty if the variable is not set.
std::map<std::string, double> given_times() {
  std::map<std::string, double> times;
  const char *text = std::getenv("HETERO_CPU_TIMES");
  std::istringstream list(text ? text : "");
  for (std::string part; std::getline(list, part, ',');)
    if (const size_t at = part.find('='); at != std::string::npos)
      times[part.substr(0, at)] = std::strtod(part.c_str() + at + 1, nullptr);
  return times;
}

// Sets the least time of each candidate, and removes candidates that do not support the op or that fail. Returns
// whether a candidate failed. The candidates alternate, so that a change of load or clock affects all of them. The
// first launch of each candidate also touches the memory. A candidate that is far slower than the others is not timed
// again.
bool time_all(Benches &benches, ht_op op) {
  if (const auto given = given_times(); !given.empty()) {
    for (const auto &b : benches)
      if (const auto t = given.find(b->name); t != given.end()) b->least = t->second;
    return false;
  }
  bool failed = false;
  double spent = 0;
  for (int turn = -1; turn < kMostTurns && (turn < kLeastTurns || spent < kBudget) && benches.size() > 1; turn++) {
    double least = std::numeric_limits<double>::infinity();
    for (const auto &b : benches) least = std::min(least, b->least);
    const auto drops_out = [&](const std::unique_ptr<Bench> &b) {
      if (turn >= 0 && b->least > kFar * least) return false; // other load cannot explain such a difference
      const Outcome outcome = attempt(op, b->name, [&] {
        const double us = b->microseconds();
        b->least = std::min(b->least, us);
        if (turn >= 0) spent += us;
      });
      failed |= outcome == Outcome::failed;
      return outcome != Outcome::done;
    };
    benches.erase(std::remove_if(benches.begin(), benches.end(), drops_out), benches.end());
  }
  return failed;
}

// Returns the candidate with the least time, or the first candidate if it is about as fast.
const Bench &winner(const Benches &benches) {
  const Bench *best = benches.front().get();
  const double limit = kMargin * best->least;
  for (const auto &b : benches)
    if (b->least < limit && b->least < best->least) best = b.get();
  return *best;
}

std::string times_text(const Benches &benches) {
  std::ostringstream text;
  text.setf(std::ios::fixed);
  text.precision(1);
  for (const auto &b : benches) {
    text << (b == benches.front() ? "" : ", ") << b->name << ' ';
    if (b->least < std::numeric_limits<double>::infinity())
      text << b->least << " us";
    else
      text << "not timed";
  }
  return text.str();
}

// --- choices of this process and of the machine -----------------------------------------------------

// Returns the name of the file of choices, without its suffix.
std::string this_machine() {
  static const std::string model = cpu_model();
  return file_name_of("cpu " + model + " " + isa_name() + (expects_amx() ? " amx" : "") +
                      (given_times().empty() ? "" : " given times"));
}

std::string key_of(const Sample &sample) {
  std::string key = "tiles " + std::to_string(kVersion);
#if HT_HAVE_ONEDNN
  const dnnl_version_t *v = dnnl_version();
  key += ", oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
#endif
  return key + ": " + describe(sample);
}

// The value of HETERO_CPU_KERNELS.
struct Preference {
  std::vector<std::string> names;
  bool guess = false;
};

Preference preference() {
  Preference p;
  const char *text = std::getenv("HETERO_CPU_KERNELS");
  std::istringstream list(text ? text : "");
  for (std::string name; std::getline(list, name, ',');) {
    if (name == "guess")
      p.guess = true;
    else
      p.names.push_back(name);
  }
  return p;
}

using Candidates = std::array<Candidate, 2>;

// Returns the kernel of candidate i. If candidate i has no kernel, or if it fails, returns the kernel of the other
// candidate.
std::unique_ptr<Kernel> make_from(const Request &r, const Candidates &candidates, size_t i) {
  std::unique_ptr<Kernel> kernel;
  if (attempt(r.op, candidates[i].name, [&] { kernel = candidates[i].make(r); }) == Outcome::done && kernel)
    return kernel;
  return candidates[1 - i].make(r);
}

size_t index_of(const Candidates &candidates, const std::string &name) {
  size_t i = 0;
  while (i < candidates.size() && name != candidates[i].name) i++;
  return i;
}

// Appends the candidates that support the sample, with their operands. Returns whether one of them failed.
bool prepare(const Sample &sample, const Candidates &candidates, Benches &benches) {
  bool failed = false;
  for (const Candidate &c : candidates) {
    const Outcome outcome = attempt(sample.request.op, c.name, [&] {
      if (auto k = c.make(sample.request)) benches.push_back(std::make_unique<Bench>(c.name, std::move(k), sample));
    });
    failed |= outcome == Outcome::failed;
  }
  return failed;
}

// Returns the name of the fastest candidate. If a candidate failed or there was not enough memory, the choice is not
// stored in the file. It applies only to this process, so that equal ops have equal kernels.
std::string choose(const Sample &sample, const Candidates &candidates) {
  static std::mutex one_at_a_time;
  static std::map<std::string, Choices> known; // choices that this process has read or stored, by file
  static std::map<std::string, std::map<std::string, std::string>> unstored; // choices not in a file, by file and key
  static std::set<std::string> refused;                                      // files that cannot be written
  const std::lock_guard<std::mutex> hold(one_at_a_time);

  const std::string guess = candidates.front().name, folder = choice_folder(), key = key_of(sample);
  if (folder.empty()) {
    notes().add("kernels are not chosen by timing, because there is no folder for the choices: neither XDG_CACHE_HOME "
                "nor HOME is set");
    return guess;
  }
  const std::string path = folder + "/" + this_machine() + ".tsv";
  Choices &mine = known[path];
  auto &own = unstored[path];
  if (const auto found = own.find(key); found != own.end()) return found->second;
  const auto chosen = [&] {
    const auto found = mine.find(key);
    return found != mine.end() && index_of(candidates, found->second.name) < candidates.size() ? found->second.name
                                                                                               : "";
  };
  if (const std::string name = chosen(); !name.empty()) return name;
  if (refused.count(path)) return guess;
  // Without a stored choice, the next run could choose another kernel.
  const auto refuse = [&](const std::string &reason) {
    refused.insert(path);
    notes().add("kernels are not chosen by timing, because the choices cannot be stored in " + path + ": " + reason);
    return guess;
  };
  const auto without_memory = [&] {
    notes().add("a kernel is not chosen by timing, because there is not enough memory: " + key);
    return own[key] = guess;
  };
  // Choices of this process take precedence: a user may have deleted the file, but equal ops in a process must have
  // equal kernels.
  const auto read_stored = [&] {
    const Choices stored = read_choices(path);
    mine.insert(stored.begin(), stored.end());
    return chosen();
  };
  if (!given_times().empty()) notes().add("kernels are chosen by the times in HETERO_CPU_TIMES");
  try {
    if (const std::string name = read_stored(); !name.empty()) return name;
    const ChoiceLock others(folder);
    if (const std::string name = read_stored(); !name.empty()) return name;
    if (!others.held()) return refuse(others.failure());
    if (!write_choices(path, mine)) return refuse("the file cannot be written");
    Benches benches;
    bool failed = prepare(sample, candidates, benches);
    failed |= time_all(benches, sample.request.op);
    if (benches.empty()) return guess; // the creation of the requested kernel reports the failure
    if (failed) {
      notes().add("a choice after a failure is not stored, so another process can make another one: " + key);
      return own[key] = winner(benches).name;
    }
    Choices all = mine;
    all[key] = {winner(benches).name, times_text(benches)};
    if (!write_choices(path, all)) return refuse("the file cannot be written");
    mine = all;
    return mine[key].name;
  } catch (const OutOfMemory &) {
    return without_memory();
  } catch (const std::bad_alloc &) {
    return without_memory();
  }
}

} // namespace

std::unique_ptr<Kernel> fastest(const Request &r, Candidate own, Candidate other, bool other_first) {
  if (!own.make(r)) return other.make(r);
  if (other_first) std::swap(own, other);
  const Candidates candidates = {own, other};
  const Preference p = preference();
  for (const std::string &name : p.names)
    if (const size_t i = index_of(candidates, name); i < candidates.size())
      if (auto k = candidates[i].make(r)) return k;
  if (p.guess) return make_from(r, candidates, 0);
  const Sample sample = sample_of(r);
  if (sample.flops < kFlops) return make_from(r, candidates, 0);
  return make_from(r, candidates, index_of(candidates, choose(sample, candidates)));
}

bool library_has_amx(const Request &r) { return expects_amx() && r.in[0].dtype == HT_BF16; }

std::string choice_notes() { return notes().text(); }

} // namespace hetero
