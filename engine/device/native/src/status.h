// status.h: converts exceptions to statuses at the C boundary.
#pragma once

#include <cstring>
#include <new>

#include "kernel.h"

namespace hetero {

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Timeout : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Unavailable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Absent : Unavailable { // this machine has no such hardware, which is not a fault
  using Unavailable::Unavailable;
};

inline ht_status fail(ht_error *error, ht_status status, const char *text) {
  if (error) {
    std::strncpy(error->text, text, sizeof error->text - 1);
    error->text[sizeof error->text - 1] = 0;
  }
  return status;
}

// Runs body and returns its status. No exception leaves this function.
template <class Body> ht_status guarded(ht_error *error, Body body) {
  try {
    body();
    return HT_OK;
  } catch (const Unsupported &e) {
    return fail(error, HT_UNSUPPORTED, e.what());
  } catch (const Invalid &e) {
    return fail(error, HT_INVALID, e.what());
  } catch (const OutOfMemory &e) {
    return fail(error, HT_OUT_OF_MEMORY, e.what());
  } catch (const std::bad_alloc &) {
    return fail(error, HT_OUT_OF_MEMORY, "the library could not allocate host memory");
  } catch (const Timeout &e) {
    return fail(error, HT_TIMEOUT, e.what());
  } catch (const Absent &e) {
    return fail(error, HT_ABSENT, e.what());
  } catch (const Unavailable &e) {
    return fail(error, HT_UNAVAILABLE, e.what());
  } catch (const std::exception &e) {
    return fail(error, HT_DEVICE_FAILURE, e.what());
  } catch (...) {
    return fail(error, HT_DEVICE_FAILURE, "unknown exception");
  }
}

} // namespace hetero
