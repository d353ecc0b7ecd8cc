// Package nativelib says where the program's native libraries are looked for. It opens none: who needs one does.
//
//	path, err := nativelib.Find("libhetero_cpu.so")
//
// HETERO_LIB_DIR names the folder. Without it the folders build/lib, lib and ../lib/hetero-train beside the program, links
// to it followed, are looked into: where `make` puts the libraries, and where packages do.
package nativelib
