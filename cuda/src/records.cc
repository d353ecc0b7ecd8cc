// records.cc
#if HETERO_CUPTI
#include "records.h"

#include <cstdlib>
#include <cxxabi.h>

#include "cupti_library.h"
#include "kernel.h"

namespace hetero {
namespace {

// CUPTI returns its latest version of a record. Each version begins like the previous version, so the structures of
// CUDA 12.5 work with all later versions.
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
using FillRecord = CUpti_ActivityMemset4;

#if CUPTI_API_VERSION >= 130000 && !defined(HETERO_CUDA_SHIM)
static_assert(offsetof(CUpti_ActivityKernel10, graphNodeId) == offsetof(KernelRecord, graphNodeId), "a form goes on");
static_assert(offsetof(CUpti_ActivityMemcpy6, graphNodeId) == offsetof(CopyRecord, graphNodeId), "a form goes on");
#endif

// "void hetero::(anonymous namespace)::pool<float, 4>(float const*, long)" becomes "pool<float, 4>".
std::string readable(const char *mangled) {
  int status = 0;
  char *plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = plain ? plain : mangled;
  std::free(plain);
  if (status != 0) return name;
  for (const std::string part : {"(anonymous namespace)::", "hetero::"})
    for (size_t at; (at = name.find(part)) != std::string::npos;) name.erase(at, part.size());
  int open = 0; // the parameters are the last pair of parentheses
  for (size_t i = name.size(); i-- > 0;) {
    open += name[i] == ')' ? 1 : name[i] == '(' ? -1 : 0;
    if (open > 0 || name[i] != '(') continue;
    name.erase(i);
    break;
  }
  return name.rfind("void ", 0) == 0 ? name.substr(5) : name;
}

// "cudaGraphLaunch_v10000" becomes "cudaGraphLaunch".
std::string without_version(std::string name) {
  const size_t at = name.rfind("_v");
  if (at != std::string::npos && name.find_first_not_of("0123456789", at + 2) == std::string::npos) name.erase(at);
  return name;
}

// Reads a record. Returns false if the record is of a kind that is not kept.
bool read_record(const CUpti_Activity &record, Noted &to) {
  switch (record.kind) {
  case CUPTI_ACTIVITY_KIND_KERNEL:
  case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
    const auto &k = reinterpret_cast<const KernelRecord &>(record);
    to = {HT_ACTIVITY_KERNEL, k.name ? k.name : "kernel", k.streamId, k.start, k.end, 0, k.graphNodeId};
    return true;
  }
  case CUPTI_ACTIVITY_KIND_MEMCPY: {
    const auto &c = reinterpret_cast<const CopyRecord &>(record);
    to = {HT_ACTIVITY_COPY, "", c.streamId, c.start, c.end, c.bytes, c.graphNodeId};
    return true;
  }
  case CUPTI_ACTIVITY_KIND_MEMSET: {
    const auto &f = reinterpret_cast<const FillRecord &>(record);
    to = {HT_ACTIVITY_FILL, "", f.streamId, f.start, f.end, f.bytes, f.graphNodeId};
    return true;
  }
  case CUPTI_ACTIVITY_KIND_RUNTIME:
  case CUPTI_ACTIVITY_KIND_DRIVER: {
    const auto &call = reinterpret_cast<const CUpti_ActivityAPI &>(record);
    const auto domain =
        record.kind == CUPTI_ACTIVITY_KIND_RUNTIME ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
    const char *name = nullptr;
    if (Cupti::get().cuptiGetCallbackName(domain, call.cbid, &name) != CUPTI_SUCCESS || !name) name = "a call of CUDA";
    to = {HT_ACTIVITY_CALL, name, call.threadId, call.start, call.end, 0, 0};
    return true;
  }
  default: return false; // records that CUPTI sends without a request
  }
}

} // namespace

std::vector<Noted> read_buffer(uint8_t *records, size_t bytes, int64_t &lost) {
  const Cupti &cupti = Cupti::get();
  std::vector<Noted> all;
  CUpti_Activity *record = nullptr;
  while (bytes > 0) {
    const CUptiResult next = cupti.cuptiActivityGetNextRecord(records, bytes, &record);
    if (next == CUPTI_ERROR_MAX_LIMIT_REACHED) break;
    if (next != CUPTI_SUCCESS) { // later records cannot be read
      lost++;
      break;
    }
    try {
      if (Noted one{}; read_record(*record, one)) all.push_back(one);
    } catch (...) {
      lost++;
    }
  }
  return all;
}

int64_t dropped_records(CUcontext context, uint32_t stream) {
  size_t dropped = 0; // number of records dropped since the last query
  const CUptiResult asked = Cupti::get().cuptiActivityGetNumDroppedRecords(context, stream, &dropped);
  return asked == CUPTI_SUCCESS ? static_cast<int64_t>(dropped) : 0;
}

std::string readable_name(const Noted &noted) {
  return noted.kind == HT_ACTIVITY_CALL ? without_version(noted.name) : readable(noted.name);
}

} // namespace hetero
#endif
