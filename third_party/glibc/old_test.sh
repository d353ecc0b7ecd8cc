#!/usr/bin/env bash
# Tests the functions of this folder on this machine. old_math.cc must give the same bits as the latest exp, log and
# pow. old_threads.cc must wait without glibc's pthread_cond_clockwait. third_party/scripts_test.sh runs this script.
set -euo pipefail
cd "$(dirname "$0")"
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
cat >"$room/math.cc" <<'CC'
#include <cstdint>
#include <cstdio>
#include <cstring>
// The versions that a program compiled today gets.
extern "C" double exp(double), log(double), pow(double, double), now_exp(double), now_log(double), now_pow(double, double);
__asm__(".symver now_exp, exp@GLIBC_2.29");
__asm__(".symver now_log, log@GLIBC_2.29");
__asm__(".symver now_pow, pow@GLIBC_2.29");
static long bad = 0, nans = 0, infinite = 0, zero = 0;
static void same(const char *name, double x, double y, double got, double want) {
  if (got != got && want != want) { nans++; return; }
  infinite += want - want != 0;
  zero += want == 0;
  if (std::memcmp(&got, &want, sizeof got) != 0 && bad++ < 5) std::printf("%s(%a, %a): got %a, want %a\n", name, x, y, got, want);
}
static void check(double x, double y) {
  same("exp", x, 0, exp(x), now_exp(x));
  same("log", x, 0, log(x), now_log(x));
  same("pow", x, y, pow(x, y), now_pow(x, y));
}
int main() {
  uint64_t state = 42;
  auto next = [&] { return state = state * 6364136223846793005u + 1442695040888963407u; };
  const double edges[] = {0.0, -0.0, 1, -1, 0.5, 2, 3, -3, 709.79, -745.2, 1e308, -1e308, 5e-324, __builtin_inf(), -__builtin_inf()};
  for (double x : edges)
    for (double y : edges) check(x, y);
  for (int i = 0; i < 500000; i++) {
    const uint64_t a = next(), b = next();
    double x, y; // all bit patterns
    std::memcpy(&x, &a, 8);
    std::memcpy(&y, &b, 8);
    check(x, y);
    check((a >> 11) * 0x1p-53 * 40 - 20, (b >> 11) * 0x1p-53 * 8 - 4); // the values of training
  }
  if (!nans || !infinite || !zero) bad++, std::printf("no NaN, infinite or zero result among the cases\n");
  return bad != 0;
}
CC
cat >"$room/wait.cc" <<'CC'
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <dlfcn.h>
#include <mutex>
#include <thread>
static int asked;
extern "C" void *no_dlsym(void *, const char *) noexcept { asked++; return nullptr; } // a glibc before 2.30
int main() {
  using namespace std::chrono;
  std::mutex m;
  std::condition_variable c;
  bool flag = false;
  std::unique_lock<std::mutex> lock(m);
  for (auto limit : {milliseconds(-5), milliseconds(0), milliseconds(50), milliseconds(1200)}) {
    const auto start = steady_clock::now();
    const bool got = c.wait_for(lock, limit, [&] { return flag; });
    if (got || steady_clock::now() - start < limit) return std::printf("a wait of %ld ms: ended early\n", long(limit.count())), 1;
  }
  std::thread other([&] { std::this_thread::sleep_for(milliseconds(20)); std::lock_guard<std::mutex> l(m); flag = true; c.notify_all(); });
  const bool got = c.wait_for(lock, hours(1000000), [&] { return flag; });
  lock.unlock();
  other.join();
  if (!got || !flag) return std::printf("a notification did not end the wait\n"), 1;
  if (asked != 1) return std::printf("looked for glibc's function %d times, want once\n", asked), 1;
}
CC
${CXX:-c++} -std=c++17 -O2 -fno-builtin "$room/math.cc" old_math.cc -lm -o "$room/math"
symbols=$(nm -D "$room/math")
if grep -q ' T exp' <<<"$symbols"; then echo "old_math.cc exports exp: all versions would be this one" >&2; exit 1; fi
grep -q 'U exp@GLIBC_2\.29$' <<<"$symbols" || { echo "the test does not bind exp to its latest version" >&2; exit 1; }
grep -q 'U exp@GLIBC_2\.\(2\.5\|17\)$' <<<"$symbols" || { echo "old_math.cc does not bind exp to its first version" >&2; exit 1; }
"$room/math"
${CXX:-c++} -std=c++17 -O2 -pthread -Ddlsym=no_dlsym "$room/wait.cc" old_threads.cc -ldl -o "$room/wait"
"$room/wait"
