// Package nativelib defines where to search for the program's native libraries. It does not open them.
//
//	path, err := nativelib.Find("libhetero_cpu.so")
//
// HETERO_LIB_DIR names the only folder to search. Without it, Find searches build/lib, lib and ../lib/hetero-train
// relative to the folder of the executable, after resolving links. `make` and packages install the libraries there.
package nativelib
