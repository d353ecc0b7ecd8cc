//go:build cgo && linux

package shm

/*
#include <stdlib.h>
#include "hetero_shm.h"

static int32_t shm_create(const hetero_shm_api *a, int32_t size, int64_t stage, int32_t *fd, char *error) {
	return a->create(size, stage, fd, error);
}
static int32_t shm_attach(const hetero_shm_api *a, int32_t fd, int32_t rank, int32_t size,
	hetero_shm_group **g, char *error) {
	return a->attach(fd, rank, size, g, error);
}
static void shm_detach(const hetero_shm_api *a, hetero_shm_group *g) { a->detach(g); }
static int32_t shm_run(const hetero_shm_api *a, hetero_shm_group *g, hetero_shm_call *call, void *buffer,
	const int64_t *counts) {
	return a->run(g, call, buffer, counts);
}
static void shm_stop(const hetero_shm_api *a, hetero_shm_group *g) { a->stop(g); }
static void shm_set_state(const hetero_shm_api *a, hetero_shm_group *g, int32_t rank, int32_t state, const char *text) {
	a->set_state(g, rank, state, text);
}
static int32_t shm_get_state(const hetero_shm_api *a, hetero_shm_group *g, int32_t rank, char *text) {
	return a->get_state(g, rank, text);
}
static int32_t shm_failed(const hetero_shm_api *a, hetero_shm_group *g) { return a->failed(g); }
static void shm_progress(const hetero_shm_api *a, hetero_shm_group *g, int32_t rank, hetero_shm_progress *p) {
	a->progress(g, rank, p);
}
*/
import "C"

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/native"
	"github.com/hetero-train/hetero-train/engine/collective/signature"
)

// library is an opened libhetero_shm.so, which stays open until the program ends.
type library struct{ api *C.hetero_shm_api }

// openLibrary opens the library. If this fails, it returns ErrUnavailable with the reason.
func openLibrary() (*library, error) {
	table, err := native.Table(LibraryName, "hetero_shm_get_api", C.HETERO_SHM_VERSION)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return &library{(*C.hetero_shm_api)(table)}, nil
}

// text is a buffer for messages from C.
type text [C.HETERO_SHM_TEXT]C.char

func (t *text) err(errno C.int32_t) error {
	return fmt.Errorf("shared memory: %s (%w)", C.GoString(&t[0]), syscall.Errno(errno))
}

// create creates the memory of a group.
func (l *library) create(size int, stageBytes int64) (*os.File, error) {
	var fd C.int32_t
	var t text
	if errno := C.shm_create(l.api, C.int32_t(size), C.int64_t(stageBytes), &fd, &t[0]); errno != 0 {
		return nil, t.err(errno)
	}
	return os.NewFile(uintptr(fd), "shared memory"), nil
}

// group is one rank's view of the memory.
type group struct {
	api  *C.hetero_shm_api
	ptr  *C.hetero_shm_group
	call *C.hetero_shm_call // in C memory, so that an operation allocates nothing on the Go heap
}

func (l *library) attach(memory *os.File, rank, size int) (*group, error) {
	g := &group{api: l.api}
	var t text
	if errno := C.shm_attach(l.api, C.int32_t(memory.Fd()), C.int32_t(rank), C.int32_t(size), &g.ptr,
		&t[0]); errno != 0 {
		return nil, t.err(errno)
	}
	g.call = (*C.hetero_shm_call)(C.calloc(1, C.sizeof_hetero_shm_call))
	return g, nil
}

func (g *group) detach() {
	C.shm_detach(g.api, g.ptr)
	C.free(unsafe.Pointer(g.call))
	g.ptr, g.call = nil, nil
}

type status int

const (
	completed  status = C.HETERO_SHM_OK
	peerGone   status = C.HETERO_SHM_PEER
	timedOut   status = C.HETERO_SHM_TIMEOUT
	mismatched status = C.HETERO_SHM_MISMATCH
)

// result is the outcome of an operation.
type result struct {
	status    status
	rank      int    // for peerGone: the lost rank; for mismatched: the rank with a different operation
	got, want string // for mismatched: texts of both operations
}

// run performs op on the calling OS thread. host is the operation's buffer; nil if the buffer is empty.
func (g *group) run(op collective.Op, number uint64, limit time.Duration, host []byte) result {
	counts := op.Parts()
	c := g.call
	native.PutSignature(unsafe.Pointer(&c.op), signature.Of(op, number))
	c.timeout_ns = -1
	if limit > 0 {
		c.timeout_ns = C.int64_t(limit)
	}
	name := unsafe.Slice((*byte)(unsafe.Pointer(&c.name[0])), len(c.name))
	clear(name[copy(name[:len(name)-1], op.Tags().Name):])
	r := result{status: status(C.shm_run(g.api, g.ptr, c, unsafe.Pointer(unsafe.SliceData(host)),
		(*C.int64_t)(unsafe.Pointer(unsafe.SliceData(counts)))))}
	if r.status != completed {
		r.rank = int(c.rank)
	}
	if r.status == mismatched {
		r.got, r.want = native.Signature(unsafe.Pointer(&c.theirs)).String(),
			native.Signature(unsafe.Pointer(&c.op)).String()
	}
	return r
}

func (g *group) stop() { C.shm_stop(g.api, g.ptr) }

type state int

const (
	stateLeft     state = C.HETERO_SHM_LEFT
	stateDead     state = C.HETERO_SHM_DEAD
	stateGaveUp   state = C.HETERO_SHM_GAVE_UP
	stateTimedOut state = C.HETERO_SHM_TIMED_OUT
)

func (g *group) setState(rank int, s state, why string) {
	cWhy := C.CString(why)
	defer C.free(unsafe.Pointer(cWhy))
	C.shm_set_state(g.api, g.ptr, C.int32_t(rank), C.int32_t(s), cWhy)
}

func (g *group) state(rank int) (state, string) {
	var t text
	s := C.shm_get_state(g.api, g.ptr, C.int32_t(rank), &t[0])
	return state(s), C.GoString(&t[0])
}

// failed returns the rank that ended the group, or a negative number.
func (g *group) failed() int { return int(C.shm_failed(g.api, g.ptr)) }

// progress returns the progress of every rank, and the number of steps that each rank has made within operations.
func (g *group) progress(size int) (list []collective.Progress, steps []int) {
	for rank := range size {
		var p C.hetero_shm_progress
		C.shm_progress(g.api, g.ptr, C.int32_t(rank), &p)
		list = append(list, collective.Progress{Rank: rank, Entered: uint64(p.entered), Finished: uint64(p.finished),
			Last: C.GoString(&p.name[0])})
		steps = append(steps, int(p.steps))
	}
	return list, steps
}
