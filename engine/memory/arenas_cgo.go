//go:build cgo && linux

package memory

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/resource.h>

static int one_arena;

// Runs before the first thread of Go's runtime starts, because glibc makes an arena for each thread that calls malloc.
__attribute__((constructor)) static void keep_arenas(void) {
	const int arena_max = -8; // M_ARENA_MAX of glibc
	struct rlimit limit;
	int (*set)(int, int) = (int (*)(int, int))dlsym(RTLD_DEFAULT, "mallopt");
	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && set != NULL &&
		dlsym(RTLD_DEFAULT, "gnu_get_libc_version") != NULL)
		one_arena = set(arena_max, 1);
}

static int has_one_arena(void) { return one_arena; }
*/
import "C"

// OneArena reports whether malloc has one arena for all threads. This is the case if the address space of this process
// is limited (RLIMIT_AS) and its C library is glibc. Otherwise glibc reserves 64 MiB of addresses for each thread.
func OneArena() bool { return C.has_one_arena() != 0 }
