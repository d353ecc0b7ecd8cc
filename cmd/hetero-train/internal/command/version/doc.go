// Package version prints the versions of the program and of its optional parts.
package version
