/* forward.cc: replaces the driver's library when gorgonia.org/cu is linked, so the program starts without a driver.
 *
 * Each function of names.txt jumps through a table. hetero_libcuda_open fills the table with the functions of the driver.
 * Before that, the table has these functions:
 *   cuInit succeeds and does nothing: cu calls cuInit at the start of the program, and ends the program if it fails
 *   the number of devices and the version are 0
 *   every other function returns CUDA_ERROR_NO_DEVICE
 * No symbol is exported, so libraries that link the real driver use the real one. */
#include <dlfcn.h>

#include <cstring>

extern "C" {

enum { SUCCESS = 0, NO_DEVICE = 100, NOT_FOUND = 500 };

static int absent() { return NO_DEVICE; }
static int missing() { return NOT_FOUND; } /* the driver is older than the function */
static int zero(int *value) {
  *value = 0;
  return SUCCESS;
}
static int begin(unsigned flags) {
  (void)flags;
  return SUCCESS;
}

#define ENTRY(name) #name,
static const char *const names[] = {
#include "names.inc"
};
#undef ENTRY
enum { COUNT = sizeof names / sizeof names[0] };

#define ENTRY(name) reinterpret_cast<void *>(absent),
__attribute__((visibility("hidden"))) void *hetero_libcuda_table[] = {
#include "names.inc"
};
#undef ENTRY

#if defined(__x86_64__)
#define JUMP "jmp *hetero_libcuda_table+8*hetero_libcuda_count(%rip)\n"
#elif defined(__aarch64__)
#define JUMP                                                                                                           \
  "adrp x16, hetero_libcuda_table+8*hetero_libcuda_count\n"                                                            \
  "ldr x16, [x16, #:lo12:hetero_libcuda_table+8*hetero_libcuda_count]\n"                                               \
  "br x16\n"
#else
#error "no jumps for this architecture"
#endif

/* The assembler counts: .set gives hetero_libcuda_count the number of the entry. */
__asm__(".text\n.set hetero_libcuda_count, 0\n");
#define ENTRY(name)                                                                                                    \
  __asm__(".globl " #name "\n.hidden " #name "\n.type " #name ", %function\n" #name ":\n" JUMP                         \
          ".set hetero_libcuda_count, hetero_libcuda_count + 1\n");
#include "names.inc"
#undef ENTRY

__attribute__((constructor)) static void answer() {
  for (int i = 0; i < COUNT; i++) {
    if (!std::strcmp(names[i], "cuInit")) hetero_libcuda_table[i] = reinterpret_cast<void *>(begin);
    if (!std::strcmp(names[i], "cuDeviceGetCount") || !std::strcmp(names[i], "cuDriverGetVersion"))
      hetero_libcuda_table[i] = reinterpret_cast<void *>(zero);
  }
}

/* Opens the driver's library and starts it: what its cuInit answers, or -1 where there is no library, and then why says it. Once in a
 * process, before any other thread calls an entry. It makes no context. */
__attribute__((visibility("hidden"))) int hetero_libcuda_open(const char **why) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    *why = dlerror();
    return -1;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  if (!init) {
    *why = "libcuda.so.1 has no cuInit";
    return -1;
  }
  const int result = init(0);
  for (int i = 0; result == SUCCESS && i < COUNT; i++) {
    void *entry = dlsym(library, names[i]);
    hetero_libcuda_table[i] = entry ? entry : reinterpret_cast<void *>(missing);
  }
  return result;
}

} // extern "C"
