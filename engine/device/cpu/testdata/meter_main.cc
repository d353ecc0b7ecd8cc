// meter_main.cc: runs a region of a team of two threads in two situations: within the scope of a Meter, and after an
// exception has ended such a scope. Prints whether the region reads the CPU time of its threads. The clock returns 0,
// so that no region is long enough to be measured without a Meter.
#include <time.h>

#include <atomic>
#include <cstdio>
#include <stdexcept>

#include "team.h"

namespace {
std::atomic<int> reads{0}; // number of reads of a thread's CPU time
std::atomic<int> parts{0}; // number of parts that ran

void region() {
#pragma omp parallel
  parts++;
}

const char *reads_of_a_region() {
  reads = 0;
  region();
  return reads > 0 ? "reads" : "no reads";
}
} // namespace

extern "C" int clock_gettime(clockid_t clock, timespec *t) noexcept {
  if (clock == CLOCK_THREAD_CPUTIME_ID) reads++;
  *t = {};
  return 0;
}

int main() {
  hetero::use_team(2);
  {
    hetero::Meter meter;
    std::printf("metered: %s\n", reads_of_a_region());
  }
  try {
    hetero::Meter meter;
    region();
    throw std::runtime_error("a kernel fails");
  } catch (const std::runtime_error &) {
    std::printf("after an exception: %s\n", reads_of_a_region());
  }
}
