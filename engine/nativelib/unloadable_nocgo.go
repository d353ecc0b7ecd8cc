//go:build !cgo && linux

package nativelib

// unloadable is the reason why this build of the program cannot load libraries; "" if it can.
const unloadable = "this program was built without cgo and cannot load native libraries: install a C++ compiler, unset CGO_ENABLED, and run make"
