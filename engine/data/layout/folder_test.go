package layout

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data/datatest"
)

func walk(t *testing.T, dir string, follow bool) (files []string, err error) {
	t.Helper()
	f, err := OpenFolder(dir, follow)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = f.Walk(context.Background(), func(e Entry) error {
		if !e.Mode.IsDir() {
			files = append(files, e.Name)
			in, _, err := f.Open(e.Name)
			if err != nil {
				return err
			}
			return in.Close()
		}
		return nil
	})
	return files, err
}

func TestWalkFollowsLinks(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string // names in the folders out/ and in/; the test scans in/
		want  string   // files with follow = true; a text that begins with ! is an error
		kept  string   // the same with follow = false
	}{
		{"no links", []string{"in/b", "in/a/1"}, "a/1 b", "a/1 b"},
		{"within", []string{"in/a/1", "in/b->a"}, "a/1 b/1", "a/1 b/1"},
		{"a file outside", []string{"out/1", "in/a->../out/1"}, "a", "!the link \"a\" leads out of the folder"},
		{"a folder outside", []string{"out/1", "in/a->../out"}, "a/1", "!data.follow_links = true"},
		{"an absolute link", []string{"in/a/1", "in/b->DIR/in/a"}, "a/1 b/1", "!is absolute"},
		{"a chain", []string{"out/x/1", "out/y->x", "in/a->../out/y"}, "a/1", "!leads out"},
		{"the folder itself", []string{"in/a/1", "in/a/b->.."}, "!\"a/b\" leads to folder \".\"",
			"!\"a/b\" leads to folder \".\""},
		{"an outer folder", []string{"in/1", "in/a->../../DIRNAME"}, "!leads to folder", "!leads out"},
		{"a link to itself", []string{"in/a->a"}, "!\"a\"", "!\"a\""},
		{"broken", []string{"in/a->nothing"}, "!the link \"a\" is broken: there is no \"nothing\"", "!is broken"},
		{"of storage", []string{"in/@eaDir/x", "in/.git/x", "in/c/1", "in/lost+found->nothing"}, "c/1", "c/1"},
	} {
		dir := datatest.Plant(t, c.files...)
		for follow, want := range map[bool]string{true: c.want, false: c.kept} {
			got, err := walk(t, filepath.Join(dir, "in"), follow)
			wrong, fails := strings.CutPrefix(want, "!")
			if fails && (err == nil || !strings.Contains(err.Error(), wrong)) ||
				!fails && (err != nil || strings.Join(got, " ") != want) {
				t.Errorf("%s, follow = %v: got %q, %v, want %q", c.name, follow, got, err, want)
			}
		}
	}
}

func TestBrokenLinksCanBeListed(t *testing.T) {
	dir := datatest.Plant(t, "a->nothing", "b")
	f, err := OpenFolder(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	f.Broken = true
	got, err := f.List(".")
	if want := []Entry{{"a", 0}, {"b", 0}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestOpenFolderOfAFile(t *testing.T) {
	dir := datatest.Plant(t, "a")
	if _, err := OpenFolder(filepath.Join(dir, "a"), true); err == nil ||
		!strings.Contains(err.Error(), "want a folder") {
		t.Errorf("got %v", err)
	}
	if _, err := OpenFolder(filepath.Join(dir, "none"), true); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

func TestDeepFoldersAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, strings.Repeat("a/", maxDepth+2)), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := walk(t, dir, true); err == nil || !strings.Contains(err.Error(), "more than 32 levels") {
		t.Errorf("got %v", err)
	}
}
