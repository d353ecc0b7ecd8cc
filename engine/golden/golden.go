// Package golden compares texts with golden files. Only tests import it. The flag -update of the test binary rewrites
// the files: read the differences before you commit them.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the differences before you commit them")

// Updating reports whether the flag -update is set.
func Updating() bool { return *update }

// Check compares got with the contents of file. With -update, it first writes got to the file.
func Check(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	lines, others := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	line := 0
	for line < len(lines) && line < len(others) && lines[line] == others[line] {
		line++
	}
	t.Errorf("%s differs from line %d on (-update rewrites it)\ngot:\n%s\nwant:\n%s", file, line+1, got, want)
}
