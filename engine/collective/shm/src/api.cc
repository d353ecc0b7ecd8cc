// api.cc: the function table.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <system_error>

#include "group.h"
#include "isa.h"

struct hetero_shm_group {
  hetero::Group impl;
};

namespace {

using hetero::isa_name;

// guarded calls f. It returns 0, or the errno of an exception.
template <class F> int32_t guarded(char *error, F f) {
  try {
    f();
    return 0;
  } catch (const std::system_error &e) {
    std::snprintf(error, HETERO_SHM_TEXT, "%s", e.what());
    return e.code().value() ? e.code().value() : EIO;
  } catch (const std::exception &e) {
    std::snprintf(error, HETERO_SHM_TEXT, "%s", e.what());
    return ENOMEM;
  }
}

int32_t create(int32_t size, int64_t stage_bytes, int32_t *fd, char *error) {
  return guarded(error, [&] { *fd = hetero::Segment::create(size, stage_bytes); });
}

int32_t attach(int32_t fd, int32_t rank, int32_t size, hetero_shm_group **group, char *error) {
  return guarded(error, [&] { *group = new hetero_shm_group{{fd, rank, size}}; });
}

void detach(hetero_shm_group *g) { delete g; }

int32_t run(hetero_shm_group *g, hetero_shm_call *call, void *buffer, const int64_t *counts) {
  return g->impl.run(*call, static_cast<std::byte *>(buffer), counts);
}

void stop(hetero_shm_group *g) { g->impl.stop(); }

void set_state(hetero_shm_group *g, int32_t rank, int32_t state, const char *text) {
  g->impl.segment.set_state(rank, static_cast<uint32_t>(state), text);
}

int32_t get_state(hetero_shm_group *g, int32_t rank, char *text) {
  hetero::RankHead &r = g->impl.segment.rank_head(rank);
  uint32_t state = r.state.load();
  if (state != HETERO_SHM_ALIVE) std::memcpy(text, r.text, sizeof r.text);
  text[state == HETERO_SHM_ALIVE ? 0 : HETERO_SHM_TEXT - 1] = 0;
  return static_cast<int32_t>(state);
}

int32_t failed(hetero_shm_group *g) { return g->impl.segment.failed(); }

uint32_t steps(const hetero::RankHead &r) { return r.staged.value.load() + r.reduced.value.load(); }

void progress(hetero_shm_group *g, int32_t rank, hetero_shm_progress *p) {
  hetero::Segment &segment = g->impl.segment;
  hetero::RankHead &r = segment.rank_head(rank);
  p->steps = static_cast<int32_t>(steps(r) - steps(segment.rank_head(segment.rank())));
  p->finished = r.finished.load();
  p->entered = r.entered.load();
  std::memcpy(p->name, r.name[p->entered % 2],
              sizeof p->name); // the entry may be overwritten by the name of the operation after the next one
  p->name[sizeof p->name - 1] = 0;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const hetero_shm_api *hetero_shm_get_api(uint32_t version) {
  static const hetero_shm_api api = {HETERO_SHM_VERSION, isa_name,  create, attach,  detach, run, stop,
                                     set_state,          get_state, failed, progress};
  return version == HETERO_SHM_VERSION ? &api : nullptr;
}
