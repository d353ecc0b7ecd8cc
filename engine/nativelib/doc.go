// Package nativelib searches for the program's native libraries, and reports whether the program can load libraries. It
// does not open the libraries.
//
//	path, err := nativelib.Find("libhetero_cpu.so")
//
// If HETERO_LIB_DIR is set, Find searches only this folder. Otherwise it searches build/lib, lib and
// ../lib/hetero-train, relative to the executable's folder, after resolving links. `make` and the packages install the
// libraries in these folders.
//
// [Loadable] returns an error if the program cannot load libraries: without cgo, on another system than Linux, or on a
// CPU below x86-64-v2.
package nativelib
