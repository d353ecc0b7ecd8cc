//go:build cgo && linux

package memory

/*
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// Addresses that Go's runtime reserves at its start on a 64-bit system, bytes: the summaries of pages; the index of the
// scavenger, without which it also starts; two arenas, tables and threads. Go 1.26 reserved 585, 512 and 90 to 190 MiB
// of RLIMIT_AS, and 64 MiB of RLIMIT_DATA. The first two numbers are lower here: if the index fits only just, the rest
// does not.
static const size_t summaries = (size_t)580 << 20, index_of_scavenger = (size_t)508 << 20, rest = (size_t)220 << 20;
static const size_t rest_of_data = (size_t)72 << 20;

static void *reserved(size_t bytes, int mode) {
	return mmap(NULL, bytes, mode, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void returned(void *p, size_t bytes) {
	if (p != MAP_FAILED) munmap(p, bytes);
}

// Reports whether a limit exists, and sets it in MiB.
static int limited(int resource, double *mib) {
	struct rlimit limit;
	if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
	*mib = (double)limit.rlim_cur / (1 << 20);
	return 1;
}

static void refuse(const char *name, double mib, char flag, long least_mib) {
	char text[400];
	int n = snprintf(text, sizeof text,
		"hetero-train: error: start Go's runtime: %s permits %.1f MiB of addresses, want at least %ld MiB for the "
		"runtime and a small model: raise the limit (ulimit -%c %ld), or remove it (ulimit -%c unlimited)\n",
		name, mib, least_mib, flag, least_mib << 10, flag);
	if (write(2, text, (size_t)n) < 0) {
	}
	_exit(6); // exit.Device
}

// Runs before Go's runtime starts, which ends the process with a stack trace if it cannot reserve its memory.
__attribute__((constructor)) static void want_addresses_of_go(void) {
	double mib = 0;
	if (limited(RLIMIT_AS, &mib)) {
		void *a = reserved(summaries, PROT_NONE), *b = reserved(index_of_scavenger, PROT_NONE),
		     *c = reserved(rest, PROT_NONE);
		returned(a, summaries);
		returned(b, index_of_scavenger);
		returned(c, rest);
		if (a == MAP_FAILED || c == MAP_FAILED) refuse("RLIMIT_AS", mib, 'v', 1536);
	}
	if (limited(RLIMIT_DATA, &mib)) {
		void *d = reserved(rest_of_data, PROT_READ | PROT_WRITE);
		returned(d, rest_of_data);
		if (d == MAP_FAILED) refuse("RLIMIT_DATA", mib, 'd', 300);
	}
}
*/
import "C"
