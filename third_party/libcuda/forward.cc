/* forward.cc replaces the driver's library when gorgonia.org/cu is linked, so the program starts without a driver.
 *
 * Each function of names.txt jumps to an entry of a table. hetero_libcuda_open fills the table with the functions of
 * the driver. Before this call, the functions do the following:
 *
 *   - cuInit does nothing and succeeds; cu calls it at the start of the program, and ends the program if it fails.
 *   - The number of devices and the version are 0.
 *   - Every other function returns CUDA_ERROR_NO_DEVICE.
 *
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

/* The assembler counts the entries: .set assigns the number of entries so far to hetero_libcuda_count. */
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

/* Opens the driver's library and initialises it. Returns the result of cuInit, or -1 without a library; *why is then
 * the reason. Call it once in a process, before any other thread calls a function of the driver. It creates no context.
 */
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
