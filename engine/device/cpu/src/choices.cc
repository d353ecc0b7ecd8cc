// choices.cc: times candidates, and keeps the choices.
#include "choices.h"

#include <algorithm>
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
#include "isa.h"
#include "machine.h"
#include "memory.h"
#include "notes.h"
#include "status.h"
#include "team.h"
#if HT_HAVE_ONEDNN
#include "onednn.h"
#endif

namespace hetero {
namespace {

constexpr int kVersion = 1;        // of this library's candidates: a change of their speed increases it
constexpr double kFlops = 1e7;     // an op with less work takes microseconds, so that its kernel hardly matters
constexpr int kLeastTurns = 3;     // timed launches of each candidate, at least
constexpr int kMostTurns = 9;      // and at most
constexpr double kBudget = 20'000; // us: time of the launches of a comparison, unless kLeastTurns take longer
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
  ~Bench() {
    for (const auto &[p, bytes] : memory_) release(p, bytes);
  }
  Bench(const Bench &) = delete;
  Bench &operator=(const Bench &) = delete;

  double microseconds() {
    Meter meter;
    kernel_->run({in_.data(), out_.data(), workspace_, nullptr});
    return 1e-3 * double(meter.stop());
  }

  const char *const name;
  double least = std::numeric_limits<double>::infinity(); // us: other programs only lengthen a launch

private:
  void *take(int64_t bytes) {
    bytes = std::max<int64_t>(bytes, 64);
    void *p = allocate(bytes);
    if (!p) throw OutOfMemory("the system could not allocate " + std::to_string(bytes) + " bytes");
    memory_.emplace_back(p, bytes);
    return p;
  }

  std::unique_ptr<Kernel> kernel_;
  std::vector<std::pair<void *, int64_t>> memory_;
  std::vector<void *> in_, out_;
  void *workspace_ = nullptr;
};

using Benches = std::vector<std::unique_ptr<Bench>>;

// The times in HETERO_CPU_TIMES, by name; empty if the variable is not set.
std::map<std::string, double> given_times() {
  std::map<std::string, double> times;
  const char *text = std::getenv("HETERO_CPU_TIMES");
  std::istringstream list(text ? text : "");
  for (std::string part; std::getline(list, part, ',');)
    if (const size_t at = part.find('='); at != std::string::npos)
      times[part.substr(0, at)] = std::strtod(part.c_str() + at + 1, nullptr);
  return times;
}

// Sets the least time of each candidate. The candidates alternate, so that a change of load or clock affects all. The
// first launch touches the memory and is not timed.
void time_all(const Benches &benches) {
  if (const auto given = given_times(); !given.empty()) {
    for (const auto &b : benches)
      if (const auto t = given.find(b->name); t != given.end()) b->least = t->second;
    return;
  }
  for (const auto &b : benches) b->microseconds();
  double spent = 0;
  for (int turn = 0; turn < kMostTurns && (turn < kLeastTurns || spent < kBudget); turn++)
    for (const auto &b : benches) {
      const double us = b->microseconds();
      b->least = std::min(b->least, us);
      spent += us;
    }
}

// Returns the candidate with the least time; the first one if it is about as fast.
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
  for (const auto &b : benches) text << (b == benches.front() ? "" : ", ") << b->name << ' ' << b->least << " us";
  return text.str();
}

// --- choices of this process and of the machine -----------------------------------------------------

std::string this_machine() {
  static const std::string model = cpu_model();
  return file_name_of("cpu " + model + " " + isa_name() + (expects_amx() ? " amx" : ""));
}

std::string key_of(const Sample &sample) {
  std::string key = "tiles " + std::to_string(kVersion);
#if HT_HAVE_ONEDNN
  const dnnl_version_t *v = dnnl_version();
  key += ", oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
#endif
  return key + ": " + describe(sample);
}

Notes &notes() {
  static Notes n;
  return n;
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

// Returns the kernel of candidate i, or of the first other candidate that has one.
std::unique_ptr<Kernel> make_from(const Request &r, const std::vector<Candidate> &candidates, size_t i) {
  if (auto k = candidates[i].make(r)) return k;
  for (size_t j = 0; j < candidates.size(); j++)
    if (j != i)
      if (auto k = candidates[j].make(r)) return k;
  return nullptr;
}

size_t index_of(const std::vector<Candidate> &candidates, const std::string &name) {
  size_t i = 0;
  while (i < candidates.size() && name != candidates[i].name) i++;
  return i;
}

// Returns the candidates that support the sample, with their operands.
Benches benches_of(const Sample &sample, const std::vector<Candidate> &candidates) {
  Benches benches;
  for (const Candidate &c : candidates) {
    try {
      if (auto k = c.make(sample.request)) benches.push_back(std::make_unique<Bench>(c.name, std::move(k), sample));
    } catch (const Unsupported &) {
      continue; // one candidate less
    }
  }
  return benches;
}

// Returns the name of the fastest candidate.
std::string choose(const Sample &sample, const std::vector<Candidate> &candidates) {
  static std::mutex one_at_a_time;
  static std::map<std::string, Choices> known; // choices that this process has read or made, by file
  static std::set<std::string> refused;        // files that cannot be written
  const std::lock_guard<std::mutex> hold(one_at_a_time);

  const std::string guess = candidates.front().name, folder = choice_folder(), key = key_of(sample);
  if (folder.empty()) {
    notes().add("kernels are not chosen by timing, because there is no folder for the choices: neither XDG_CACHE_HOME "
                "nor HOME is set");
    return guess;
  }
  const std::string path = folder + "/" + this_machine() + ".tsv";
  Choices &mine = known[path];
  const auto chosen = [&] {
    const auto found = mine.find(key);
    return found != mine.end() && index_of(candidates, found->second.name) < candidates.size() ? found->second.name
                                                                                               : "";
  };
  if (const std::string name = chosen(); !name.empty()) return name;
  // A choice that is not stored could be another one in the next run.
  const auto refuse = [&] {
    refused.insert(path);
    notes().add("kernels are not chosen by timing, because the choices cannot be stored in " + path);
    return guess;
  };
  const auto without_memory = [&] {
    notes().add("a kernel is not chosen by timing, because there is not enough memory: " + key);
    mine[key] = {guess, "not timed"};
    return guess;
  };
  if (refused.count(path)) return guess;
  try {
    const ChoiceLock others(folder);
    // Own choices win, because a user may have deleted the file: within a process, equal ops have equal kernels.
    const Choices stored = read_choices(path);
    mine.insert(stored.begin(), stored.end());
    if (const std::string name = chosen(); !name.empty()) return name;
    if (!write_choices(path, mine)) return refuse();
    const Benches benches = benches_of(sample, candidates);
    if (benches.size() < 2) return benches.empty() ? guess : benches.front()->name;
    time_all(benches);
    Choices all = mine;
    all[key] = {winner(benches).name, times_text(benches)};
    if (!write_choices(path, all)) return refuse();
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
  const std::vector<Candidate> candidates = {own, other};
  const Preference p = preference();
  for (const std::string &name : p.names)
    if (const size_t i = index_of(candidates, name); i < candidates.size())
      if (auto k = candidates[i].make(r)) return k;
  if (p.guess) return make_from(r, candidates, 0);
  const Sample sample = sample_of(r);
  if (sample.flops < kFlops) return make_from(r, candidates, 0);
  return make_from(r, candidates, index_of(candidates, choose(sample, candidates)));
}

std::string choice_notes() { return notes().text(); }

} // namespace hetero
