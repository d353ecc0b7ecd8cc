//go:build !linux

package nativelib

// unloadable is the reason why this build of the program cannot load libraries; "" if it can.
const unloadable = "native libraries load only on Linux: train there (on Windows: in WSL 2), and use this program to plan, to simulate and to read runs"
