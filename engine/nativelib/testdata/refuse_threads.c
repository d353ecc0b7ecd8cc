/* refuse_threads.c: preloaded, it refuses threads that libraries start, as a limit of processes does.
 * HETERO_REFUSE_THREADS holds the number of the first thread that is refused, counted from 1.
 * Threads that the program itself starts (Go's) are left alone: the Go runtime ends the process without them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
  Dl_info caller;
  static int started;
  const char *first = getenv("HETERO_REFUSE_THREADS");
  if (first && dladdr(__builtin_return_address(0), &caller) && caller.dli_fname && strstr(caller.dli_fname, ".so") &&
      ++started >= atoi(first))
    return EAGAIN;
  return real(thread, attributes, body, argument);
}
