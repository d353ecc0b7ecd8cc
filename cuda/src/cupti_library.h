// cupti_library.h: CUPTI's functions, resolved at the first use of the library. Compiled only if CUPTI's header exists
// (HETERO_CUPTI).
#pragma once

#include <cupti.h>

#include <string>

#include "libraries.h"

namespace hetero {

struct Cupti {
  std::string file; // owns the string that library refers to
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

  // Returns the library of this process. Throws Unavailable if there is no suitable library; the next call searches
  // again.
  static const Cupti &get();

private:
  Cupti();
};

// Throws Unavailable, with the remedy, unless a call succeeded.
void check(CUptiResult result, const char *what);

} // namespace hetero
