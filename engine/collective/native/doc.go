// Package native opens the native libraries of communicators: each exports one function, which is asked for a version and
// answers a table of functions, or nothing.
package native
