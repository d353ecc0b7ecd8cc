// Package clitest contains functions that the tests of several packages of the program share. They create files and
// check the output of the program. Only tests import the package.
package clitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// ReadFile returns the content of a file.
func ReadFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Get returns the status and the body of the answer of a server.
func Get(t *testing.T, address string) (int, string) {
	t.Helper()
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// WriteConfig writes text to run.toml in a temporary folder, and returns its path.
func WriteConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// MakeAt creates the folder that contains path, and then calls file to create the file.
func MakeAt(t *testing.T, path string, file func(path string) error) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), file(path)); err != nil {
		t.Fatal(err)
	}
}

// PipeAt creates a named pipe.
func PipeAt(path string) error { return needtest.MakePipe(path) }

// Sparse returns a function that creates a file with this number of bytes that uses no disk space. It tests that the
// program does not read a whole file into memory.
func Sparse(bytes int64) func(path string) error {
	return func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, bytes))
	}
}

// Objects returns the lines of a stream as JSON objects. It fails the test if a line is not a log record in JSON.
func Objects(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Errorf("no JSON object: %v in %q", err, line)
			continue
		}
		for _, key := range []string{"time", "level", "msg"} {
			if _, ok := object[key].(string); !ok {
				t.Errorf("got no %q in %s", key, line)
			}
		}
		all = append(all, object)
	}
	return all
}

// Messages returns the messages of records from Objects.
func Messages(all []map[string]any) (texts []string) {
	for _, o := range all {
		texts = append(texts, fmt.Sprint(o["msg"]))
	}
	return texts
}

// Harmless fails the test if a text contains control characters for a terminal or a forged line. In these tests, a
// forged line starts with FORGED.
func Harmless(t *testing.T, what string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !utf8.ValidString(text) {
			t.Errorf("%s: the text is not UTF-8: %q", what, text)
		}
		if at := strings.IndexFunc(text, func(r rune) bool {
			return r != '\n' && r != '\t' && unicode.IsControl(r) ||
				r == '\u202e'
		}); at >= 0 {
			t.Errorf("%s: a terminal acts on %q", what, text[max(at-60, 0):min(at+20, len(text))])
		}
		if strings.HasPrefix(text, "FORGED") || strings.Contains(text, "\nFORGED") {
			t.Errorf("%s: a file has written a line: %q", what, text)
		}
	}
}
