// Package version contains the release of the program and the properties of its build.
package version
