// Package nativelib searches for the program's native libraries, and says whether the program can load any. It does not
// open the libraries.
//
//	path, err := nativelib.Find("libhetero_cpu.so")
//
// If HETERO_LIB_DIR is set, Find searches only this folder. Otherwise it searches build/lib, lib and
// ../lib/hetero-train, relative to the folder of the executable after resolving links. `make` and packages install the
// libraries there.
//
// A program without cgo, for another system than Linux, or on a CPU below x86-64-v2 cannot load libraries: [Loadable].
package nativelib
