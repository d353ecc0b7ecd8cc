package process

import "testing"

func TestTheRuntimesWordsForAThreadThatWasRefused(t *testing.T) {
	for text, want := range map[string]bool{
		"runtime/cgo: pthread_create failed: Resource temporarily unavailable\nSIGABRT: abort":      true,
		"runtime: failed to create new OS thread (have 5 already; errno=11)\nruntime: may need to…": true,
		"hetero-train: error: out of memory":                                                        false,
		"":                                                                                          false,
	} {
		if got := gotNoThread(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}
