package nativelib

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sys/cpu"
)

// Loadable returns nil if this program can load native libraries on this machine. Otherwise the error says why not, and
// how to fix it. Find calls Loadable, so that no library is loaded on a CPU that lacks its instructions. The
// initialisers of a library run while it is loaded, and one of them may already use such an instruction.
func Loadable() error {
	if unloadable != "" {
		return errors.New(unloadable)
	}
	return checkCPU(ownFeatures())
}

// feature is a CPU feature; its name is the one that Linux uses.
type feature struct {
	name string
	has  bool
}

// ownFeatures returns the features that the libraries need, and whether this CPU has them. On x86-64 they need the
// level x86-64-v2: oneDNN's code for every CPU contains instructions of SSE4.1.
func ownFeatures() []feature {
	if runtime.GOARCH != "amd64" {
		return nil
	}
	x := &cpu.X86
	return []feature{{"cx16", x.HasCX16}, {"lahf_lm", x.HasLAHF}, {"popcnt", x.HasPOPCNT}, {"sse3", x.HasSSE3},
		{"ssse3", x.HasSSSE3},
		{"sse4_1", x.HasSSE41}, {"sse4_2", x.HasSSE42}}
}

func checkCPU(features []feature) error {
	var lacks []string
	for _, f := range features {
		if !f.has {
			lacks = append(lacks, f.name)
		}
	}
	if lacks == nil {
		return nil
	}
	return fmt.Errorf("this CPU lacks %s, and the native libraries need the level x86-64-v2: use a CPU of Intel from 2008 (Nehalem) or of AMD from 2011 (Bulldozer) or later",
		strings.Join(lacks, ", "))
}
