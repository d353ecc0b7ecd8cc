//go:build cgo && linux

package nativelib

// unloadable is the reason why this build of the program cannot load libraries; "" if it can.
const unloadable = ""
