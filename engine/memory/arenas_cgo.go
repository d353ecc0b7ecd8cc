//go:build cgo && linux

package memory

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/resource.h>

static int one_arena;
static long thread_stack;

static int limited(int resource) {
	struct rlimit limit;
	return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// Runs before the first thread of Go's runtime starts. glibc makes an arena for each thread that calls malloc, and
// gives threads the stack size that is set here. musl has one arena and small stacks.
__attribute__((constructor)) static void save_addresses(void) {
	const int arena_max = -8; // M_ARENA_MAX of glibc
	const size_t most = 2 << 20;
	size_t bytes = 0;
	pthread_attr_t attributes;
	if (!limited(RLIMIT_AS) && !limited(RLIMIT_DATA)) return;
	if (dlsym(RTLD_DEFAULT, "gnu_get_libc_version") != NULL) {
		int (*set)(int, int) = (int (*)(int, int))dlsym(RTLD_DEFAULT, "mallopt");
		if (set != NULL) one_arena = set(arena_max, 1);
	}
	if (pthread_attr_init(&attributes) != 0) return;
	int (*set_default)(const pthread_attr_t *) =
		(int (*)(const pthread_attr_t *))dlsym(RTLD_DEFAULT, "pthread_setattr_default_np");
	if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes > most && set_default != NULL &&
		pthread_attr_setstacksize(&attributes, most) == 0 && set_default(&attributes) == 0)
		bytes = most;
	thread_stack = (long)bytes;
	pthread_attr_destroy(&attributes);
}

static int has_one_arena(void) { return one_arena; }
static long stack_of_threads(void) { return thread_stack; }
*/
import "C"

// OneArena reports whether malloc has one arena for all threads. This is the case if RLIMIT_AS or RLIMIT_DATA limits
// this process and its C library is glibc. Otherwise glibc reserves 64 MiB of addresses for each thread.
func OneArena() bool { return C.has_one_arena() != 0 }

// ThreadStack returns the bytes of addresses that the stack of a thread takes, or 0 if they are unknown. If RLIMIT_AS
// or RLIMIT_DATA limits this process, this is at most 2 MiB, the size that glibc uses without a limit of the stack. The
// usual limit of the stack is 8 MiB, and the number of threads varies from run to run.
func ThreadStack() int64 { return int64(C.stack_of_threads()) }
