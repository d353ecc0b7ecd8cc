/* faults.c: preloaded, it makes functions fail. HETERO_TEST_FAULT selects the fault:
 *   onednn    oneDNN's primitives fail
 *   no-locks  the file system has no locks
 *   held      another process holds every lock; nanosleep returns at once
 * Only calls of C code fail: Go calls the kernel directly. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int fault(const char *name) {
  const char *wanted = getenv("HETERO_TEST_FAULT");
  return wanted && strcmp(wanted, name) == 0;
}

int dnnl_primitive_execute(const void *primitive, void *stream, int count, const void *arguments) {
  int (*real)(const void *, void *, int, const void *) = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
  if (!real) { /* the library is not in the global scope: a library that is loaded later needs it */
    void *library = dlopen("libdnnl.so.3", RTLD_LAZY | RTLD_NOLOAD);
    real = library ? dlsym(library, "dnnl_primitive_execute") : 0;
  }
  return fault("onednn") || !real ? 5 /* dnnl_runtime_error */ : real(primitive, stream, count, arguments);
}

int flock(int file, int operation) {
  int (*real)(int, int) = dlsym(RTLD_NEXT, "flock");
  if (!fault("no-locks") && !fault("held")) return real(file, operation);
  errno = fault("held") ? EWOULDBLOCK : ENOLCK;
  return -1;
}

int nanosleep(const struct timespec *time, struct timespec *rest) {
  int (*real)(const struct timespec *, struct timespec *) = dlsym(RTLD_NEXT, "nanosleep");
  return fault("held") ? 0 : real(time, rest);
}
