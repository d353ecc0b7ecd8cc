//go:build !race

package archive

const raceEnabled = false // the race detector allocates memory, and empties pools
