package version

import (
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// Ranks compare Source, so Source must not name the platform: ranks on amd64 and on arm64 train together.
func TestTheSourceNamesNoPlatform(t *testing.T) {
	if got, want := Text(), Source()+" "+runtime.GOOS+"/"+runtime.GOARCH; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s := Source(); strings.Contains(s, runtime.GOARCH) || !strings.Contains(s, number) ||
		!strings.Contains(s, runtime.Version()) {
		t.Errorf("got %q, want release and compiler without %s", s, runtime.GOARCH)
	}
}

// The file VERSION defines the version. make, scripts/dist.sh, the wheel and the manifest of a release read it. The
// files below repeat it, for builds that do not use make, and for readers.
func TestAllPlacesNameTheReleaseOfTheFileVersion(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// In an archive of the sources, the version also names the commit.
	want, _, _ := strings.Cut(strings.TrimSpace(read("VERSION")), "+")
	if number != want {
		t.Errorf("version.go: got %q, want %q", number, want)
	}
	for name, pattern := range map[string]string{
		"deploy/pytorch/hetero_train/__init__.py": `(?m)^__version__ = "(.*)"$`,
		"CHANGELOG.md": `(?m)^## \[(\d.*?)\]`, // the version of the newest release
	} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(read(name))
		if found == nil || found[1] != want {
			t.Errorf("%s: got %q, want %q", name, found, want)
		}
	}
}

func TestTheCommitFollowsTheRelease(t *testing.T) {
	built := func(main, commit, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: main}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: modified}}}
	}
	const commit = "0123456789abcdef0123456789abcdef01234567"
	tests := map[string]struct {
		number string
		info   *debug.BuildInfo
		want   string
	}{
		"no checkout": {"0.1.0", &debug.BuildInfo{}, "0.1.0"},
		"a commit": {"0.1.0", built("v0.1.1-0.20260101000000-0123456789ab", commit, "false"),
			"0.1.0+g0123456"},
		"a commit and changes":     {"0.1.0", built("(devel)", commit, "true"), "0.1.0+g0123456.dirty"},
		"the tag of the release":   {"0.1.0", built("v0.1.0", commit, "false"), "0.1.0"},
		"the tag and changes":      {"0.1.0", built("v0.1.0+dirty", commit, "true"), "0.1.0+g0123456.dirty"},
		"the output of version.sh": {"0.1.0+g7654321", built("(devel)", commit, "true"), "0.1.0+g7654321"},
		"a commit of go install": {"0.1.0",
			&debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20260101000000-0123456789ab"}}, "0.1.0+g0123456"},
		"a commit after a release": {"0.1.0",
			&debug.BuildInfo{Main: debug.Module{Version: "v0.1.1-0.20260101000000-0123456789ab"}}, "0.1.0+g0123456"},
		"the release of go install": {"0.1.0", &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, "0.1.0"},
	}
	for name, test := range tests {
		if got := complete(test.number, test.info); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
