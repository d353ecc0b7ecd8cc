// cupti_library.h: CUPTI's functions, looked up when the library is first used. Only where HETERO_CUPTI says that there is its header.
#pragma once

#include <cupti.h>

#include <string>

#include "libraries.h"

namespace hetero {

struct Cupti {
  std::string file; // whose name library keeps
  Library library;
#define FUNCTION(name) decltype(&::name) name = library.function<decltype(&::name)>(#name)
  FUNCTION(cuptiGetResultString);
  FUNCTION(cuptiGetTimestamp);
  FUNCTION(cuptiGetCallbackName);
  FUNCTION(cuptiSubscribe);
  FUNCTION(cuptiUnsubscribe);
  FUNCTION(cuptiEnableCallback);
  FUNCTION(cuptiGetGraphNodeId);
  FUNCTION(cuptiActivityRegisterCallbacks);
  FUNCTION(cuptiActivityEnable);
  FUNCTION(cuptiActivityDisable);
  FUNCTION(cuptiActivityFlushAll);
  FUNCTION(cuptiActivityGetNextRecord);
  FUNCTION(cuptiActivityGetNumDroppedRecords);
#undef FUNCTION

  // The library of this process. Throws Unavailable, each time anew, where there is none that serves.
  static const Cupti &get();

private:
  Cupti();
};

// Throws Unavailable, with what can be done about it, unless a call went well.
void check(CUptiResult result, const char *what);

} // namespace hetero
