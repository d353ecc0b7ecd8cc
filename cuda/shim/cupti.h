// cupti.h: replaces CUPTI's header where tests compile the device for the host. It contains only the declarations that
// the device uses. Records have the fields that the device reads, in another order than CUPTI's records.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#define CUPTIAPI
#define CUPTI_API_VERSION 130000

using CUcontext = void *;
using CUgraphNode = const uint64_t *;

enum CUptiResult {
  CUPTI_SUCCESS = 0,
  CUPTI_ERROR_INVALID_PARAMETER = 1,
  CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
  CUPTI_ERROR_NOT_INITIALIZED = 15,
  CUPTI_ERROR_INVALID_KIND = 21,
  CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED = 33,
  CUPTI_ERROR_INSUFFICIENT_PRIVILEGES = 35,
  CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
};

enum CUpti_CallbackDomain {
  CUPTI_CB_DOMAIN_DRIVER_API = 1,
  CUPTI_CB_DOMAIN_RUNTIME_API = 2,
  CUPTI_CB_DOMAIN_RESOURCE = 3,
};
using CUpti_CallbackId = uint32_t;
constexpr CUpti_CallbackId CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED = 13, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED = 20;

struct CUpti_ResourceData {
  CUcontext context;
  void *resourceDescriptor;
};
struct CUpti_GraphData {
  CUgraphNode node, originalNode;
};
using CUpti_SubscriberHandle = struct fakeSubscriber *;
using CUpti_CallbackFunc = void (*)(void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *);

enum CUpti_ActivityKind {
  CUPTI_ACTIVITY_KIND_INVALID = 0,
  CUPTI_ACTIVITY_KIND_MEMCPY = 1,
  CUPTI_ACTIVITY_KIND_MEMSET = 2,
  CUPTI_ACTIVITY_KIND_KERNEL = 3,
  CUPTI_ACTIVITY_KIND_DRIVER = 4,
  CUPTI_ACTIVITY_KIND_RUNTIME = 5,
  CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10,
};
constexpr uint32_t CUPTI_ACTIVITY_FLAG_FLUSH_FORCED = 1;

struct CUpti_Activity {
  CUpti_ActivityKind kind;
};
struct fakeWork : CUpti_Activity {
  uint32_t streamId;
  uint64_t start, end, graphNodeId;
};
struct CUpti_ActivityKernel9 : fakeWork {
  const char *name;
};
struct CUpti_ActivityMemcpy5 : fakeWork {
  uint64_t bytes;
};
struct CUpti_ActivityMemset4 : fakeWork {
  uint64_t bytes;
};
struct CUpti_ActivityAPI : CUpti_Activity {
  CUpti_CallbackId cbid;
  uint64_t start, end;
  uint32_t threadId;
};

using CUpti_BuffersCallbackRequestFunc = void (*)(uint8_t **, size_t *, size_t *);
using CUpti_BuffersCallbackCompleteFunc = void (*)(CUcontext, uint32_t, uint8_t *, size_t, size_t);

extern "C" {
CUptiResult cuptiGetResultString(CUptiResult, const char **);
CUptiResult cuptiGetTimestamp(uint64_t *);
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain, uint32_t, const char **);
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle);
CUptiResult cuptiEnableCallback(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId);
CUptiResult cuptiGetGraphNodeId(CUgraphNode, uint64_t *);
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc);
CUptiResult cuptiActivityEnable(CUpti_ActivityKind);
CUptiResult cuptiActivityDisable(CUpti_ActivityKind);
CUptiResult cuptiActivityFlushAll(uint32_t);
CUptiResult cuptiActivityGetNextRecord(uint8_t *, size_t, CUpti_Activity **);
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t *);
}
