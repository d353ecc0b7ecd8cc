//go:build cgo && linux

package native

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

// Opens the library and asks it for its table; on failure returns NULL and sets *why to a text that is valid until the
// next call of dlopen, dlsym or dlerror.
static const void *open_table(const char *path, const char *symbol, uint32_t version, const char **why) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		*why = dlerror();
		return NULL;
	}
	const void *(*get)(uint32_t) = (const void *(*)(uint32_t))dlsym(library, symbol);
	const void *table = get == NULL ? NULL : get(version);
	if (table == NULL) {
		*why = "it belongs to another version of hetero-train";
		dlclose(library);
	}
	return table;
}
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/nativelib"
)

var tables struct {
	sync.Mutex
	byPath map[string]unsafe.Pointer
}

// Table returns the function table of a library such as "libhetero_shm.so". Package nativelib describes the search for
// the library. The library stays open until the program ends. The parameter symbol is the name of the library's
// exported function. The parameter version is the table version for which the caller was built.
func Table(library, symbol string, version uint32) (unsafe.Pointer, error) {
	path, err := nativelib.Find(library)
	if err != nil {
		return nil, err
	}
	tables.Lock()
	defer tables.Unlock()
	if table := tables.byPath[path]; table != nil {
		return table, nil
	}
	cPath, cSymbol := C.CString(path), C.CString(symbol)
	defer C.free(unsafe.Pointer(cPath))
	defer C.free(unsafe.Pointer(cSymbol))
	var why *C.char
	table := C.open_table(cPath, cSymbol, C.uint32_t(version), &why)
	if table == nil {
		return nil, fmt.Errorf("%s: %s", path, C.GoString(why))
	}
	if tables.byPath == nil {
		tables.byPath = map[string]unsafe.Pointer{}
	}
	tables.byPath[path] = table
	return table, nil
}
