package version

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// number is the release in the file VERSION. The Makefile replaces it by the output of third_party/version.sh, with the
// linker flag -X github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version.number=….
var number = "0.1.0"

// Text formats version, compiler and platform on one line.
func Text() string {
	b := Build()
	return fmt.Sprintf("%s %s/%s", Source(), b.OS, b.Arch)
}

// Source is like Text, but without the platform. Ranks that train together must have equal Source texts, but may have
// different processors.
func Source() string {
	b := Build()
	return fmt.Sprintf("hetero-train %s, %s", b.Version, b.Go)
}

// Facts contains the properties of the build of this program.
type Facts struct {
	Version  string `json:"version"` // 0.1.0, or 0.1.0+g1234567 for a commit that is not the release
	Commit   string `json:"commit"`  // "" if the program is a release, or was not built from a checkout
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Cgo      bool   `json:"cgo"`
}

// Build returns the properties of the build of this program.
func Build() Facts {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	b := Facts{Version: complete(number, info), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	_, b.Commit, _ = strings.Cut(b.Version, "+g")
	b.Commit, b.Modified = strings.CutSuffix(b.Commit, dirty)
	b.Cgo = setting(info, "CGO_ENABLED") == "1"
	return b
}

const dirty = ".dirty"

// pseudo matches the end of the version that go install gives to a commit without a tag: the time and the commit.
var pseudo = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})$`)

// complete adds the commit to the version unless the program is a release or Go has recorded no commit. A version
// from third_party/version.sh already contains the commit.
func complete(version string, info *debug.BuildInfo) string {
	commit := setting(info, "vcs.revision")
	if found := pseudo.FindStringSubmatch(info.Main.Version); commit == "" && found != nil {
		commit = found[1]
	}
	if commit == "" || strings.Contains(version, "+") || info.Main.Version == "v"+version {
		return version
	}
	version += "+g" + commit[:min(7, len(commit))]
	if setting(info, "vcs.modified") == "true" {
		version += dirty
	}
	return version
}

// setting returns a setting of the build, or "".
func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
