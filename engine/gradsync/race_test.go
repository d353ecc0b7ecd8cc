//go:build race

package gradsync

const raceEnabled = true
