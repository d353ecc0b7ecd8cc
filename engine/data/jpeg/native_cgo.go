//go:build cgo && linux

package jpeg

/*
#cgo LDFLAGS: -ldl
#cgo noescape hetero_decode
#cgo nocallback hetero_decode
#cgo noescape hetero_resample
#cgo nocallback hetero_resample

#include <dlfcn.h>
#include <stdlib.h>
#include "hetero_jpeg.h"

typedef const hetero_jpeg_api* (*hetero_get_api)(uint32_t);

// Opens the library; on failure returns NULL and sets *why to a text that is valid until the next dl call.
static const hetero_jpeg_api* hetero_open(const char* path, const char** why) {
	void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		*why = dlerror();
		return NULL;
	}
	hetero_get_api get = (hetero_get_api)dlsym(library, "hetero_jpeg_get_api");
	const hetero_jpeg_api* api = get == NULL ? NULL : get(HETERO_JPEG_VERSION);
	if (api == NULL) {
		*why = "the library belongs to another version of hetero-train";
		dlclose(library);
	}
	return api;
}

static const char* hetero_library(const hetero_jpeg_api* api) { return api->library(); }

static int32_t hetero_create(const hetero_jpeg_api* api, hetero_jpeg_decoder** d, char* error, size_t n) {
	return api->create(d, error, n);
}

static void hetero_destroy(const hetero_jpeg_api* api, hetero_jpeg_decoder* d) { api->destroy(d); }

static int32_t hetero_decode(const hetero_jpeg_api* api, hetero_jpeg_decoder* d, const uint8_t* data, size_t bytes,
                             int32_t denominator, uint8_t* pixels, size_t pixel_bytes, char* error, size_t n) {
	return api->decode(d, data, bytes, denominator, pixels, pixel_bytes, error, n);
}

// The lists of weights are separate arguments, because cgo does not permit structs that contain Go pointers.
static void hetero_resample(const hetero_jpeg_api* api, uint8_t* dst, const uint8_t* src,
                            size_t src_bytes, int32_t src_width,
                            const int32_t* x_start, const int32_t* x_num, const int32_t* x_weight, int32_t x_count,
                            int32_t x_width,
                            const int32_t* y_start, const int32_t* y_num, const int32_t* y_weight, int32_t y_count,
                            int32_t y_width,
                            uint8_t* rows) {
	const hetero_taps x = {x_start, x_num, x_weight, x_count, x_width};
	const hetero_taps y = {y_start, y_num, y_weight, y_count, y_width};
	api->resample(dst, src, src_bytes, src_width, &x, &y, rows);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"unsafe"
)

const libraryName = "libhetero_jpeg.so"

// library is an opened libhetero_jpeg.so. It remains open until the program ends.
type library struct {
	api  *C.hetero_jpeg_api
	path string
}

// openLibrary returns the library, or nil and the reason why it is not available. Only the first call searches for
// it.
var openLibrary = sync.OnceValues(func() (*library, error) {
	reason := errors.New("no " + libraryName)
	for _, dir := range libraryDirs() {
		path := filepath.Join(dir, libraryName)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		lib, err := open(path)
		if err == nil {
			return lib, nil
		}
		reason = err
	}
	return nil, reason
})

// libraryDirs returns the folders in which to search for the library.
func libraryDirs() []string {
	var dirs []string
	if dir := os.Getenv("HETERO_LIB_DIR"); dir != "" {
		dirs = append(dirs, dir)
	}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		dir := filepath.Dir(exe)
		dirs = append(dirs, filepath.Join(dir, "build", "lib"), filepath.Join(dir, "lib"),
			filepath.Join(dir, "..", "lib", "hetero-train"))
	}
	return dirs
}

func open(path string) (*library, error) {
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	var why *C.char
	api := C.hetero_open(cPath, &why)
	if api == nil {
		return nil, fmt.Errorf("open %s: %s", path, C.GoString(why))
	}
	return &library{api, path}, nil
}

func (l *library) name() string { return C.GoString(C.hetero_library(l.api)) }

const errorBytes = 256

// native is one decoder of the library.
type native struct {
	api     *C.hetero_jpeg_api
	decoder *C.hetero_jpeg_decoder // nil after an error
	text    [errorBytes]C.char     // C writes to it; as a field, it needs no allocation for each image
}

func (l *library) newDecoder() (*native, error) {
	n := &native{api: l.api}
	return n, n.create()
}

// close frees the decoder. The next image starts another one.
func (n *native) close() {
	C.hetero_destroy(n.api, n.decoder)
	n.decoder = nil
}

// create starts a decoder. The only cause of a failure is a lack of memory.
func (n *native) create() error {
	if C.hetero_create(n.api, &n.decoder, &n.text[0], errorBytes) != 0 {
		n.decoder = nil
		return fmt.Errorf("start libturbojpeg: %w: %w", n.err(), syscall.ENOMEM)
	}
	return nil
}

func (n *native) err() error { return errors.New("jpeg: " + C.GoString(&n.text[0])) }

// decode writes the image to pix. The size of pix must match the header and the denominator.
func (n *native) decode(data []byte, denominator int, pix []byte) error {
	if n.decoder == nil {
		if err := n.create(); err != nil {
			return err
		}
	}
	status := C.hetero_decode(n.api, n.decoder, (*C.uint8_t)(unsafe.SliceData(data)), C.size_t(len(data)),
		C.int32_t(denominator),
		(*C.uint8_t)(unsafe.SliceData(pix)), C.size_t(len(pix)), &n.text[0], errorBytes)
	if status != 0 {
		n.close()
		return n.err()
	}
	return nil
}

func (l *library) resample(dst, src []byte, width int, x, y Taps, rows []byte) {
	list := func(v []int32) *C.int32_t { return (*C.int32_t)(unsafe.SliceData(v)) }
	C.hetero_resample(l.api, (*C.uint8_t)(unsafe.SliceData(dst)), (*C.uint8_t)(unsafe.SliceData(src)),
		C.size_t(len(src)), C.int32_t(width),
		list(x.Start), list(x.Num), list(x.Weight), C.int32_t(len(x.Start)), C.int32_t(x.Width),
		list(y.Start), list(y.Num), list(y.Weight), C.int32_t(len(y.Start)), C.int32_t(y.Width),
		(*C.uint8_t)(unsafe.SliceData(rows)))
}
