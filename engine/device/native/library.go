//go:build cgo && linux

package native

// #cgo LDFLAGS: -ldl
// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Setting is an environment variable that is set while a library initialises, unless the process has set it.
type Setting struct{ Name, Value string }

// Library is a loaded native library.
type Library struct {
	path string
	api  *C.ht_api
}

var loaded struct {
	sync.Mutex
	byPath map[string]*Library
}

// Load opens the library at path. A second call for this path returns the same library. Load restores the environment
// of the process, and the affinity and signal mask of its threads, if the library changes them. The error is
// device.ErrUnavailable.
func Load(path string, settings []Setting) (*Library, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if l := loaded.byPath[path]; l != nil {
		return l, nil
	}
	var a arena
	defer a.free()
	environment := (**C.char)(a.alloc(uintptr(2*len(settings)+1) * unsafe.Sizeof((*C.char)(nil))))
	pairs := unsafe.Slice(environment, 2*len(settings)+1)
	for i, s := range settings {
		pairs[2*i], pairs[2*i+1] = a.text(s.Name), a.text(s.Value)
	}
	runtime.LockOSThread() // ht_load saves and restores the affinity of this thread
	r := C.ht_load(a.text(path), environment, C.int(len(settings)))
	runtime.UnlockOSThread()
	if err := check(r, path); err != nil {
		return nil, err
	}
	l := &Library{path: path, api: (*C.ht_api)(r.value)}
	if loaded.byPath == nil {
		loaded.byPath = map[string]*Library{}
	}
	loaded.byPath[path] = l
	return l, nil
}

// Kind returns the kind of the library's devices: "cpu".
func (l *Library) Kind() string { return C.GoString(l.api.kind) }

// Build returns build information: "oneDNN 3.2.0, OpenMP".
func (l *Library) Build() string { return C.GoString(l.api.build) }

// Path returns the path of the loaded library.
func (l *Library) Path() string { return l.path }

// sentinels maps statuses to errors of package device.
var sentinels = map[C.ht_status]error{
	C.HT_UNSUPPORTED:    device.ErrUnsupported,
	C.HT_OUT_OF_MEMORY:  device.ErrOutOfMemory,
	C.HT_DEVICE_FAILURE: device.ErrDevice,
	C.HT_TIMEOUT:        os.ErrDeadlineExceeded,
	C.HT_UNAVAILABLE:    device.ErrUnavailable,
}

// check converts a result to an error, or to nil for success. The error contains the text what: the name of the object
// or of the call.
func check(r C.ht_result, what string) error {
	if r.status == C.HT_OK {
		return nil
	}
	text := "no reason given"
	if r.error != nil {
		text = C.GoString(r.error)
		C.free(unsafe.Pointer(r.error))
	}
	if r.status == C.HT_ABSENT {
		return device.AbsentError(text)
	}
	sentinel := sentinels[r.status]
	if sentinel == nil {
		return errors.New(what + ": " + text)
	}
	return fmt.Errorf("%s: %w: %s", what, sentinel, text)
}

// arena owns blocks of C memory that are freed together.
type arena struct{ blocks []unsafe.Pointer }

// alloc returns zeroed memory. It never returns nil.
func (a *arena) alloc(bytes uintptr) unsafe.Pointer {
	p := C.calloc(1, C.size_t(max(bytes, 1)))
	a.blocks = append(a.blocks, p)
	return p
}

// text copies s to the arena, NUL-terminated.
func (a *arena) text(s string) *C.char {
	p := C.CString(s)
	a.blocks = append(a.blocks, unsafe.Pointer(p))
	return p
}

func (a *arena) free() {
	for _, p := range a.blocks {
		C.free(p)
	}
	a.blocks = nil
}

// put copies a value into the arena.
func put[T any](a *arena, v T) *T {
	p := (*T)(a.alloc(unsafe.Sizeof(v)))
	*p = v
	return p
}

// array allocates n values in the arena. For n = 0, it returns nil.
func array[T any](a *arena, n int) []T {
	if n == 0 {
		return nil
	}
	var v T
	return unsafe.Slice((*T)(a.alloc(uintptr(n)*unsafe.Sizeof(v))), n)
}
