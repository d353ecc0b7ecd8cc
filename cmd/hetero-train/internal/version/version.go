package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// number is the version of the release. The build sets it with the linker flag -X
// github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version.number=….
var number = "0.1.0-dev"

// Text formats release, commit, compiler and platform on one line.
func Text() string {
	b := Build()
	return fmt.Sprintf("%s %s/%s", Source(), b.OS, b.Arch)
}

// Source is Text without the platform. Ranks that train together have equal sources, but may have unlike processors.
func Source() string {
	b := Build()
	commit := ""
	if b.Commit != "" {
		commit = ", commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Modified {
			commit += " with changes"
		}
	}
	return fmt.Sprintf("hetero-train %s%s, %s", b.Version, commit, b.Go)
}

// Facts contains the properties of the build of this program.
type Facts struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"` // "" if the program was not built from a checkout
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Cgo      bool   `json:"cgo"`
}

// Build returns the properties of the build of this program.
func Build() Facts {
	b := Facts{Version: number, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				b.Commit = s.Value
			case s.Key == "vcs.modified":
				b.Modified = s.Value == "true"
			case s.Key == "CGO_ENABLED":
				b.Cgo = s.Value == "1"
			}
		}
	}
	return b
}
