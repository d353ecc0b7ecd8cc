//go:build !race

package archive

const raceEnabled = false // with the race detector, more memory is allocated, and pools drop their contents
