//go:build cgo && linux

package gloo

/*
#include <stdlib.h>
#include "hetero_gloo.h"

static const char *gloo_description(const hetero_gloo_api *a) { return a->description(); }
static int32_t gloo_open(const hetero_gloo_api *a, int32_t rank, int32_t size, hetero_gloo_context **c, char *error) {
	return a->open(rank, size, c, error);
}
static int32_t gloo_adopt(const hetero_gloo_api *a, hetero_gloo_context *c, int32_t rank, int32_t socket, char *error) {
	return a->adopt(c, rank, socket, error);
}
static int32_t gloo_shape(const hetero_gloo_api *a, hetero_gloo_context *c, int32_t radix, int64_t bytes, char *error) {
	return a->shape(c, radix, bytes, error);
}
static int32_t gloo_run(const hetero_gloo_api *a, hetero_gloo_context *c, hetero_gloo_call *call, void *buffer,
	const int64_t *counts,
                        uint8_t *missing) {
	return a->run(c, call, buffer, counts, missing);
}
static void gloo_stop(const hetero_gloo_api *a, hetero_gloo_context *c) { a->stop(c); }
static void gloo_disconnect(const hetero_gloo_api *a, hetero_gloo_context *c) { a->disconnect(c); }
static void gloo_close(const hetero_gloo_api *a, hetero_gloo_context *c) { a->close(c); }
*/
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/native"
	"github.com/hetero-train/hetero-train/engine/collective/signature"
	"github.com/hetero-train/hetero-train/engine/nativelib"
)

// library is an opened libhetero_gloo.so, which stays open until the program ends.
type library struct{ api *C.hetero_gloo_api }

// openLibrary opens the library. If this fails, it returns ErrUnavailable with the reason.
func openLibrary() (*library, error) {
	table, err := native.Table(LibraryName, "hetero_gloo_get_api", C.HETERO_GLOO_VERSION)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; the build needs Gloo: %s", ErrUnavailable, err,
			nativelib.Remedy("sudo apt-get install libgloo-dev && make", "docs/install.md"))
	}
	return &library{(*C.hetero_gloo_api)(table)}, nil
}

func (l *library) version() string { return C.GoString(C.gloo_description(l.api)) }

// connection holds one rank's connections to all other ranks.
type connection struct {
	api     *C.hetero_gloo_api
	ptr     *C.hetero_gloo_context
	call    *C.hetero_gloo_call // in C memory, so that an operation allocates nothing on the Go heap
	missing []uint8
	tree    bool // the shape is a tree
}

// open creates a context without connections.
func (l *library) open(rank, size int) (*connection, error) {
	c := &connection{api: l.api, missing: make([]uint8, size)}
	var text [C.HETERO_GLOO_TEXT]C.char
	if C.gloo_open(l.api, C.int32_t(rank), C.int32_t(size), &c.ptr, &text[0]) != 0 {
		return nil, errors.New(C.GoString(&text[0]))
	}
	c.call = (*C.hetero_gloo_call)(C.calloc(1, C.sizeof_hetero_gloo_call))
	return c, nil
}

// adopt gives Gloo the connected socket to another rank. The connection then owns the socket.
func (c *connection) adopt(rank, socket int) error {
	var text [C.HETERO_GLOO_TEXT]C.char
	if C.gloo_adopt(c.api, c.ptr, C.int32_t(rank), C.int32_t(socket), &text[0]) != 0 {
		return errors.New(C.GoString(&text[0]))
	}
	return nil
}

// shape sets the path of the messages with which the ranks enter operations.
func (c *connection) shape(s Shape) error {
	var text [C.HETERO_GLOO_TEXT]C.char
	if C.gloo_shape(c.api, c.ptr, C.int32_t(s.Radix), C.int64_t(s.Bytes), &text[0]) != 0 {
		return errors.New(C.GoString(&text[0]))
	}
	c.tree = s.Radix > 0
	return nil
}

func (c *connection) stop() { C.gloo_stop(c.api, c.ptr) }

func (c *connection) disconnect() { C.gloo_disconnect(c.api, c.ptr) }

func (c *connection) close() {
	C.gloo_close(c.api, c.ptr)
	C.free(unsafe.Pointer(c.call))
	c.ptr, c.call = nil, nil
}

type status int

const (
	completed  status = C.HETERO_GLOO_OK
	peerGone   status = C.HETERO_GLOO_PEER
	timedOut   status = C.HETERO_GLOO_TIMEOUT
	stopped    status = C.HETERO_GLOO_STOPPED
	mismatched status = C.HETERO_GLOO_MISMATCH
)

// result is the outcome of an operation.
type result struct {
	status    status
	rank      int    // for peerGone: the lost rank; for mismatched: the rank with a different operation
	text      string // for peerGone: Gloo's message
	got, want string // for mismatched: texts of both operations
	missing   []int  // for timedOut: ranks that have not entered the operation; in a tree: only the awaited neighbour
}

// run performs op on the calling OS thread. host is the operation's buffer; nil if the buffer is empty.
func (c *connection) run(op collective.Op, number uint64, limit time.Duration, host []byte) result {
	counts := op.Parts()
	native.PutSignature(unsafe.Pointer(&c.call.op), signature.Of(op, number))
	c.call.timeout_ms = 0
	if limit > 0 {
		c.call.timeout_ms = C.int64_t(max(limit.Milliseconds(), 1))
	}
	clear(c.missing)
	r := result{status: status(C.gloo_run(c.api, c.ptr, c.call, unsafe.Pointer(unsafe.SliceData(host)),
		(*C.int64_t)(unsafe.Pointer(unsafe.SliceData(counts))),
		(*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(c.missing)))))}
	switch r.status {
	case completed:
		return r
	case mismatched:
		r.got, r.want = native.Signature(unsafe.Pointer(&c.call.theirs)).String(),
			native.Signature(unsafe.Pointer(&c.call.op)).String()
	case timedOut:
		for rank, m := range c.missing {
			if m != 0 {
				r.missing = append(r.missing, rank)
			}
		}
	}
	r.rank, r.text = int(c.call.rank), C.GoString(&c.call.text[0])
	return r
}
