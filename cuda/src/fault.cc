// fault.cc
#include "fault.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "gpu.h"
#include "quiet.h"

namespace hetero {

struct Fault::State {
  Text text;
  int device = 0;
  uint64_t *word = nullptr;
};

namespace {

std::mutex mutex;
std::vector<Fault::State *> all; // states of live kernels

} // namespace

Fault::Fault(Text text) {
  auto state = std::make_unique<State>();
  state->text = std::move(text);
  check(cudaGetDevice(&state->device), "query the current device");
  void *p = nullptr;
  check(cudaHostAlloc(&p, sizeof(uint64_t), cudaHostAllocMapped | cudaHostAllocPortable),
        "allocate a kernel's fault flag");
  state->word = static_cast<uint64_t *>(p);
  *state->word = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    all.push_back(state.get());
  }
  state_ = std::shared_ptr<State>(state.release(), [](State *s) { // also runs if the creation of the kernel fails
    {
      const std::lock_guard<std::mutex> lock(mutex);
      all.erase(std::find(all.begin(), all.end(), s));
    }
    Quiet::discard(
        std::shared_ptr<void>(s->word, [](void *word) { Quiet::freed(cudaFreeHost(word), "a kernel's fault flag"); }));
    delete s;
  });
}

uint64_t *Fault::word() const { return state_->word; }

void check_faults(int device) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (Fault::State *s : all) {
    if (s->device != device) continue;
    const uint64_t bits = __atomic_exchange_n(s->word, 0, __ATOMIC_ACQ_REL);
    if (bits) throw std::runtime_error(s->text(int64_t(bits >> 32) - 1, static_cast<int32_t>(bits)));
  }
}

Fault::Text bad_id(const char *operand, int64_t rows) {
  return [=](int64_t element, int64_t got) {
    return std::string(operand) + ": element " + std::to_string(element) + ": got " + std::to_string(got) +
           ", want 0 to " + std::to_string(rows - 1);
  };
}

} // namespace hetero
