// functions.cc: opens NCCL and looks up its functions.
#include "functions.h"

#include "status.h"

namespace hetero {

namespace {

// ncclCommInitRankConfig and non-blocking communicators exist since 2.14, maxCTAs since 2.17.
constexpr int kOldest = NCCL_VERSION(2, 18, 0);

std::string version_text(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." + std::to_string(code % 100);
}

Functions opened() {
  Functions f;
  const ncclResult_t r = f.GetVersion(&f.version);
  if (r != ncclSuccess) throw Unavailable("nccl: " + f.library.path() + ": ncclGetVersion: " + f.GetErrorString(r));
  if (f.version < kOldest)
    throw Unavailable("nccl: " + f.library.path() + " is NCCL " + version_text(f.version) + ", want " +
                      version_text(kOldest) + " or later: pip install " + f.library.package());
  return f;
}

} // namespace

const Functions &nccl() {
  static const Functions f = opened();
  return f;
}

} // namespace hetero
