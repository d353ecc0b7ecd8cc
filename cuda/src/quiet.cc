// quiet.cc
#include "quiet.h"

#include <chrono>

#include "clock.h"

namespace hetero {
namespace {

constexpr auto kLook = std::chrono::microseconds(50); // interval of checks of a blocked stream
constexpr int64_t kPatience = 5'000'000'000;          // ns; limit of the wait when a device closes

thread_local Quiet *chosen_by_thread = nullptr;

} // namespace

void Quiet::choose(Quiet *of_device) { chosen_by_thread = of_device; }
Quiet *Quiet::chosen() { return chosen_by_thread; }

void Quiet::freed(cudaError_t answer, const char *what) {
  if (answer == cudaSuccess) return;
  if (chosen_by_thread)
    chosen_by_thread->notes_.add(std::string("not freed: ") + what + ": " + cudaGetErrorString(answer));
  cudaGetLastError();
}

void Quiet::enter() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return keepers_ == 0; });
  entering_++;
}

// If the GPU returns an error, its stream no longer counts as blocked: the thread that waits for the stream receives
// this error.
void Quiet::left(cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  cudaEvent_t e = nullptr;
  if (!spare_.empty()) {
    e = spare_.back();
    spare_.pop_back();
  } else if (cudaEventCreateWithFlags(&e, cudaEventDisableTiming) != cudaSuccess) {
    e = nullptr;
  }
  if (e) (cudaEventRecord(e, stream) == cudaSuccess ? standing_ : spare_).push_back(e);
  entering_--;
  changed_.notify_all();
}

bool Quiet::stands() {
  for (size_t i = 0; i < standing_.size();) {
    if (cudaEventQuery(standing_[i]) == cudaErrorNotReady) {
      i++;
      continue;
    }
    spare_.push_back(standing_[i]);
    standing_[i] = standing_.back();
    standing_.pop_back();
  }
  cudaGetLastError(); // clear "not ready", which the next launch would report as its error
  return entering_ > 0 || !standing_.empty();
}

void Quiet::begin() {
  std::unique_lock<std::mutex> lock(mutex_);
  keepers_++; // no stream may become blocked from now on
  while (stands()) changed_.wait_for(lock, kLook);
  free_kept(lock);
}

bool Quiet::begun() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stands()) return false;
  keepers_++;
  free_kept(lock);
  return true;
}

void Quiet::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  keepers_--;
  changed_.notify_all();
}

void Quiet::free_kept(std::unique_lock<std::mutex> &lock) {
  while (!kept_.empty()) {
    std::vector<std::function<void()>> list;
    list.swap(kept_);
    lock.unlock();
    for (auto &free : list) free();
    list.clear();
    lock.lock();
  }
}

void Quiet::later(std::function<void()> free) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_back(std::move(free));
  }
  sweep();
}

void Quiet::sweep() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kept_.empty()) return;
  }
  if (begun()) end();
}

Quiet::~Quiet() {
  const int64_t begun = now_ns();
  std::unique_lock<std::mutex> lock(mutex_);
  while (stands() && now_ns() - begun < kPatience) changed_.wait_for(lock, kLook);
  if (stands())
    new std::vector<std::function<void()>>(std::move(kept_)); // leaked: its destructor would free
  else
    free_kept(lock);
  for (cudaEvent_t e : spare_) cudaEventDestroy(e);
  for (cudaEvent_t e : standing_) cudaEventDestroy(e);
}

} // namespace hetero
