package program

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// If a documented command tests code, each alternative of its pattern must select at least one test or benchmark. `go
// test` passes even if a pattern selects no test.
func TestDocsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	// docs/reliability.md abbreviates commands as `T ./PACKAGE ... -run PATTERN`.
	command := regexp.MustCompile(`(?:\bT|go test) .*-(?:run|bench|fuzz) `)
	option := regexp.MustCompile(`-(run|bench|fuzz) ('[^']*'|\S+)`)
	commands := 0
	for _, page := range textFiles(t, "*.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n") {
			for _, span := range strings.Split(line, "`") {
				if !command.MatchString(span) {
					continue
				}
				commands++
				// Tables contain a backslash before a vertical bar.
				span = strings.ReplaceAll(span, `\|`, "|")
				var names []string
				for _, word := range strings.Fields(span) {
					if strings.HasPrefix(word, "./") {
						names = append(names, testNames(t, filepath.Join("..", "..", "..", word))...)
					}
				}
				for _, o := range option.FindAllStringSubmatch(span, -1) {
					// The part after a slash names subtests. Subtests are not functions, so it is not checked.
					test, _, _ := strings.Cut(strings.Trim(o[2], "'"), "/")
					for _, alternative := range strings.Split(test, "|") {
						if slices.Contains([]string{"xxx", "none", "-", "^$", "."}, alternative) {
							// The pattern selects no test, or all tests.
							continue
						}
						selects := regexp.MustCompile(alternative)
						prefix := map[string]string{"run": "Test", "bench": "Benchmark", "fuzz": "Fuzz"}[o[1]]
						found := false
						for _, name := range names {
							found = found || strings.HasPrefix(name, prefix) && selects.MatchString(name)
						}
						if !found {
							t.Errorf("%s: no %s function matches %q of: %s", page, prefix, alternative, span)
						}
					}
				}
			}
		}
	}
	if commands < 80 {
		t.Errorf("got %d commands in all pages, want at least 80", commands)
	}
}

// testNames returns the names of the functions in the test files of a package. If the pattern ends with "...", it
// includes all packages below.
func testNames(t *testing.T, pattern string) []string {
	t.Helper()
	dir, deep := strings.CutSuffix(pattern, "...")
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	var names []string
	err := filepath.WalkDir(filepath.Clean(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && !deep && path != filepath.Clean(dir) {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range function.FindAllStringSubmatch(string(text), -1) {
				names = append(names, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("a page names package %s: %v", pattern, err)
	}
	return names
}
