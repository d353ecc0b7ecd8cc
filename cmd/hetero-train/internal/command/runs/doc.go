// Package runs lists the runs of a folder.
package runs
