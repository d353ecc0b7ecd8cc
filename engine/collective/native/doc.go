// Package native opens the native libraries of communicators. Each library exports one function. The function takes the
// number of an ABI version and returns a table of functions, or NULL if the library does not support this version. The
// package also converts the signatures of operations.
package native
