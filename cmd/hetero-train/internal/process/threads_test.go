package process

import (
	"runtime"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

func TestTheNeedOfThreadsFollowsOMPNumThreads(t *testing.T) {
	if runtime.NumCPU() < 2 {
		needtest.Missing(t, "cpus", "this machine has one CPU")
	}
	need := func(threads int, environ ...string) int {
		cfg := &config.Config{}
		cfg.Device.Kind, cfg.Device.Threads = "cpu", threads
		one := discovery.Assignment{WorldSize: 1, LocalWorldSize: 1}
		return needOfThreads(cfg, session.Options{Assignment: one, Env: session.Environment{Environ: environ}}).least
	}
	cfg, opts := &config.Config{}, session.Options{Assignment: discovery.Assignment{WorldSize: 1, LocalWorldSize: 1}}
	cfg.Device.Kind = "auto"
	for _, c := range []struct{ got, want int }{
		{DeviceThreads("cpu", cfg, opts), max(session.UsableCPUs(), 1)},
		{DeviceThreads("auto", cfg, opts), 1},
		{need(0, "OMP_NUM_THREADS=1"), rankThreads + 1},
		{need(0, "OMP_NUM_THREADS=1,2"), rankThreads + 1},
		{need(2, "OMP_NUM_THREADS=1"), rankThreads + 2}, // device.threads overrides OMP_NUM_THREADS
		{need(0, "OMP_NUM_THREADS=4096"), need(0)},
	} {
		if c.got != c.want {
			t.Errorf("got %d threads, want %d", c.got, c.want)
		}
	}
}

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
