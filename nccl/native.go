//go:build cgo && linux

package nccl

/*
#include <stdlib.h>
#include "hetero_nccl.h"

static int32_t nccl_library(const hetero_nccl_api *a, hetero_nccl_facts *f, char *error) {
	return a->library(f, error);
}
static int32_t nccl_bus_id(const hetero_nccl_api *a, int32_t device, char *text, char *error) {
	return a->bus_id(device, text, error);
}
static int32_t nccl_unique_id(const hetero_nccl_api *a, uint8_t *id, char *error) { return a->unique_id(id, error); }
static int32_t nccl_create(const hetero_nccl_api *a, const hetero_nccl_options *o, hetero_nccl_comm **c, char *error) {
	return a->create(o, c, error);
}
static int32_t nccl_connect(const hetero_nccl_api *a, hetero_nccl_comm *c, int64_t timeout_ns, char *error) {
	return a->connect(c, timeout_ns, error);
}
static int32_t nccl_run(const hetero_nccl_api *a, hetero_nccl_comm *c, hetero_nccl_call *call, void *buffer,
	const int64_t *counts) {
	return a->run(c, call, buffer, counts);
}
static void nccl_stop(const hetero_nccl_api *a, hetero_nccl_comm *c) { a->stop(c); }
static int32_t nccl_close(const hetero_nccl_api *a, hetero_nccl_comm *c, int32_t orderly, char *error) {
	return a->close(c, orderly, error);
}
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
)

// idBytes is the length of NCCL's unique id.
const idBytes = C.HETERO_NCCL_ID_BYTES

// library is an opened libhetero_nccl.so; it stays open until the program ends.
type library struct{ api *C.hetero_nccl_api }

// openLibrary opens the library with the given name, or LibraryName if name is "".
func openLibrary(name string) (*library, error) {
	if name == "" {
		name = LibraryName
	}
	table, err := native.Table(name, "hetero_nccl_get_api", C.HETERO_NCCL_VERSION)
	if err != nil {
		return nil, err
	}
	return &library{(*C.hetero_nccl_api)(table)}, nil
}

// text is a buffer for messages from C, valid during a call.
type text [C.HETERO_NCCL_TEXT]C.char

func (t *text) err() error { return errors.New(C.GoString(&t[0])) }

// facts returns the version and path of NCCL. The first call opens NCCL.
func (l *library) facts() (version Version, path string, err error) {
	var f C.hetero_nccl_facts
	var why text
	if C.nccl_library(l.api, &f, &why[0]) != C.HETERO_NCCL_OK {
		return 0, "", why.err()
	}
	return Version(f.version), C.GoString(&f.path[0]), nil
}

func (l *library) busID(device int) (string, error) {
	var id [32]C.char
	var why text
	if C.nccl_bus_id(l.api, C.int32_t(device), &id[0], &why[0]) != C.HETERO_NCCL_OK {
		return "", why.err()
	}
	return C.GoString(&id[0]), nil
}

func (l *library) uniqueID(id []byte) error {
	var why text
	if C.nccl_unique_id(l.api, (*C.uint8_t)(unsafe.SliceData(id)), &why[0]) != C.HETERO_NCCL_OK {
		return why.err()
	}
	return nil
}

// end is one rank's endpoint of an NCCL communicator.
type end struct {
	api  *C.hetero_nccl_api
	ptr  *C.hetero_nccl_comm
	call *C.hetero_nccl_call // in C memory, so that an operation allocates nothing on the Go heap
}

func (l *library) create(rank, size, device, minCTAs, maxCTAs int, id []byte) (*end, error) {
	o := C.hetero_nccl_options{rank: C.int32_t(rank), size: C.int32_t(size), device: C.int32_t(device),
		min_ctas: C.int32_t(minCTAs), max_ctas: C.int32_t(maxCTAs)}
	for i, b := range id {
		o.id[i] = C.uint8_t(b)
	}
	e := &end{api: l.api}
	var why text
	if C.nccl_create(l.api, &o, &e.ptr, &why[0]) != C.HETERO_NCCL_OK {
		return nil, why.err()
	}
	e.call = (*C.hetero_nccl_call)(C.calloc(1, C.sizeof_hetero_nccl_call))
	return e, nil
}

type status int

const (
	completed status = C.HETERO_NCCL_OK
	peerGone  status = C.HETERO_NCCL_PEER
	timedOut  status = C.HETERO_NCCL_TIMEOUT
	stopped   status = C.HETERO_NCCL_STOPPED
	lostGPU   status = C.HETERO_NCCL_DEVICE
)

// connect joins the other ranks.
func (e *end) connect(limit time.Duration) (status, error) {
	var why text
	s := status(C.nccl_connect(e.api, e.ptr, C.int64_t(limit), &why[0]))
	if s == completed {
		return s, nil
	}
	return s, why.err()
}

// run performs op on the calling OS thread. memory is the operation's buffer on the GPU.
func (e *end) run(op collective.Op, sig *signature.Signature, limit time.Duration, memory unsafe.Pointer) status {
	e.call.kind, e.call.dtype, e.call.reduce, e.call.root = C.int32_t(sig.Kind), C.int32_t(sig.DType),
		C.int32_t(sig.Reduce), C.int32_t(sig.Root)
	e.call.elements, e.call.timeout_ns = C.int64_t(sig.Elements), C.int64_t(limit)
	counts := op.Parts()
	return status(C.nccl_run(e.api, e.ptr, e.call, memory, (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(counts)))))
}

// why returns the reason why the last run did not complete.
func (e *end) why() string { return C.GoString(&e.call.text[0]) }

func (e *end) stop() { C.nccl_stop(e.api, e.ptr) }

// close frees the endpoint. Its error names the resources that NCCL or the GPU did not release in time.
func (e *end) close(orderly bool) error {
	flag := C.int32_t(0)
	if orderly {
		flag = 1
	}
	var why text
	result := C.nccl_close(e.api, e.ptr, flag, &why[0])
	C.free(unsafe.Pointer(e.call))
	e.ptr, e.call = nil, nil
	if result != C.HETERO_NCCL_OK {
		return fmt.Errorf("nccl: close: %w", why.err())
	}
	return nil
}
