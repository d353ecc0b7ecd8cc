package version

import "testing"

func TestCompilerOfALibrary(t *testing.T) {
	for comments, want := range map[string]string{
		"GCC: (Debian 12.2.0-14) 12.2.0\x00":                           "GCC 12.2.0",
		"GCC: (Debian 10.2.1-6) 10.2.1 20210110\x00":                   "GCC 10.2.1",
		"GCC: (GNU) 8.5.0 20210514 (Red Hat 8.5.0-4)\x00":              "GCC 8.5.0",
		"Debian clang version 14.0.6\x00GCC: (Debian 12.2.0) 12.2\x00": "Debian clang version 14.0.6",
		"": "",
	} {
		if got := compilerIn(comments); got != want {
			t.Errorf("%q: got %q, want %q", comments, got, want)
		}
	}
}
