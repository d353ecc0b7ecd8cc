//go:build cgo && linux

package webp

/*
#cgo LDFLAGS: -ldl
#cgo noescape hetero_webp_decode
#cgo nocallback hetero_webp_decode

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// The functions of webp/decode.h that this package calls. They are the same in all versions of libwebp.so.7.
typedef int (*hetero_webp_version)(void);
typedef uint8_t* (*hetero_webp_rgb)(const uint8_t* data, size_t bytes, uint8_t* out, size_t out_bytes, int stride);

typedef struct hetero_webp {
	int version;
	hetero_webp_rgb rgb;
	const char* path;
} hetero_webp;

// Opens the library. On failure it returns the reason, a text that is valid until the next dl call.
static const char* hetero_webp_open(const char* name, hetero_webp* lib) {
	void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL) return dlerror();
	const hetero_webp_version version = (hetero_webp_version)dlsym(handle, "WebPGetDecoderVersion");
	lib->rgb = (hetero_webp_rgb)dlsym(handle, "WebPDecodeRGBInto");
	if (version == NULL || lib->rgb == NULL) {
		dlclose(handle);
		return "the library lacks WebPGetDecoderVersion or WebPDecodeRGBInto";
	}
	lib->version = version();
	Dl_info info;
	lib->path = dladdr((void*)lib->rgb, &info) != 0 && info.dli_fname != NULL ? info.dli_fname : name;
	return NULL;
}

static int hetero_webp_decode(hetero_webp_rgb rgb, const uint8_t* data, size_t bytes, uint8_t* out, size_t out_bytes,
                              int stride) {
	return rgb(data, bytes, out, out_bytes, stride) != NULL;
}
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

const libraryName = "libwebp.so.7"

// library is an opened libwebp. It remains open until the program ends.
type library struct {
	rgb     C.hetero_webp_rgb
	version int // 8 bits for each part
	path    string
}

// openLibrary returns the system's libwebp, or the reason why it is not available. Only the first call searches for it.
var openLibrary = sync.OnceValues(func() (*library, error) {
	name := C.CString(libraryName) // not freed: it may be the path
	var lib C.hetero_webp
	if why := C.hetero_webp_open(name, &lib); why != nil {
		return nil, fmt.Errorf("the system has no %s (package libwebp7 from Debian 12 and Ubuntu 22.04 on): %s",
			libraryName, C.GoString(why))
	}
	return &library{rgb: lib.rgb, version: int(lib.version), path: C.GoString(lib.path)}, nil
})

// decode writes the image in data, without a container, to out, whose rows are stride bytes apart. It returns false if
// libwebp refuses the image.
func (l *library) decode(data, out []byte, stride int) bool {
	return C.hetero_webp_decode(l.rgb, (*C.uint8_t)(unsafe.SliceData(data)), C.size_t(len(data)),
		(*C.uint8_t)(unsafe.SliceData(out)), C.size_t(len(out)), C.int(stride)) != 0
}
