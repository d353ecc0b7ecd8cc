package version

import (
	"runtime"
	"strings"
	"testing"
)

// Ranks compare Source, so it must not name the platform: ranks on amd64 and on arm64 train together.
func TestTheSourceNamesNoPlatform(t *testing.T) {
	if got, want := Text(), Source()+" "+runtime.GOOS+"/"+runtime.GOARCH; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s := Source(); strings.Contains(s, runtime.GOARCH) || !strings.Contains(s, number) || !strings.Contains(s, runtime.Version()) {
		t.Errorf("got %q, want release and compiler without %s", s, runtime.GOARCH)
	}
}
