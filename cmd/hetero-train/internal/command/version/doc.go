// Package version prints the version of the program, and the available and missing components.
package version
