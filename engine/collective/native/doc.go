// Package native opens the native libraries of communicators. Each library exports one function, which takes a version
// and returns a table of functions, or NULL for an unknown version.
package native
