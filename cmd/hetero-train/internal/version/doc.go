// Package version says which release of the program this is and how it was built.
package version
