package nativelib

import (
	"runtime"
	"strings"
	"testing"
)

func TestOldCPUsAreRefusedByName(t *testing.T) {
	// QEMU's CPU model qemu64 has only sse3 and cx16. The model Nehalem has all of these features.
	old := []feature{{"sse3", true}, {"cx16", true}, {"sse4_1", false}, {"popcnt", false}}
	err := checkCPU(old)
	if err == nil || !strings.HasPrefix(err.Error(), "this CPU lacks sse4_1, popcnt, ") ||
		!strings.Contains(err.Error(), "x86-64-v2") {
		t.Errorf("got %v, want the features that the CPU lacks, and the level", err)
	}
	for i := range old {
		old[i].has = true
	}
	if err := checkCPU(old); err != nil {
		t.Errorf("got %v, want no fault of a CPU with all features", err)
	}
	if err := checkCPU(nil); err != nil { // other architectures have no list of features
		t.Errorf("got %v", err)
	}
}

func TestLevel2IsComplete(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("x86-64 only")
	}
	// The features are those of x86-64-v2: System V Application Binary Interface, AMD64 supplement, table 3.1.
	want := "cx16 lahf_lm popcnt sse3 ssse3 sse4_1 sse4_2"
	var got []string
	for _, f := range ownFeatures() {
		got = append(got, f.name)
	}
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

func TestFindRefusesWhereNoLibraryLoads(t *testing.T) {
	if err := Loadable(); err != nil {
		if _, found := Find("libhetero_x.so"); found == nil || !strings.Contains(found.Error(), err.Error()) {
			t.Errorf("got %v, want %v", found, err)
		}
	} else if unloadable != "" {
		t.Errorf("got no error, want %q", unloadable)
	}
}
