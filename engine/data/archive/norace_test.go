//go:build !race

package archive

const raceEnabled = false // the race detector allocates, and drops the contents of pools
