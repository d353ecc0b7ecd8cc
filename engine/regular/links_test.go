package regular

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestStayIn(t *testing.T) {
	top := t.TempDir()
	secret := filepath.Join(top, "secret")
	if err := os.WriteFile(secret, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, target string
		ok           bool
	}{
		{"logs/within", "../file", true},
		{"logs/without a target", "nothing", true},
		{"logs/absolute", secret, false},
		{"logs/upwards", "../../secret", false},
		{"logs/deep/er", "../../../secret", false},
		{"logs/loop", "loop", false},
		{"logs/folder", "../elsewhere", false}, // StayIn does not examine the files of this folder
		{"linked", "elsewhere", true},          // StayIn examines the files of a given folder
		{"elsewhere/absolute", secret, true},   // no given folder contains the target
		{"file of its own", secret, false},
	} {
		dir := filepath.Join(top, "run")
		for _, folder := range []string{"logs/deep", "elsewhere"} {
			if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(c.target, filepath.Join(dir, c.name)); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		err = StayIn(root, "logs", "missing", "file of its own", "linked")
		var odd *Error
		if c.ok != (err == nil) || err != nil && !errors.As(err, &odd) {
			t.Errorf("%s -> %s: got %v, want ok %t", c.name, c.target, err, c.ok)
		}
		if err := errors.Join(root.Close(), os.RemoveAll(dir)); err != nil {
			t.Fatal(err)
		}
	}
}

// If a folder cannot be read, the error must not be an error about links.
func TestStayInTellsLinksFromOtherFaults(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := StayIn(root, "file/below"); !errors.Is(err, syscall.ENOTDIR) || errors.As(err, new(*Error)) {
		t.Errorf("got %v, want the error of the system", err)
	}
}

// The test creates two links: to a file of another folder, and to a path where a file could be created.
func TestReopenFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "file")
	for _, exists := range []bool{true, false} {
		if exists {
			if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if err := errors.Join(os.Remove(victim), os.Remove(path)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, path); err != nil {
			t.Fatal(err)
		}
		for range 2 { // first there is a link, then a file, which is kept
			f, err := Reopen(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt([]byte("mine"), 0)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := os.ReadFile(path); string(text) != "mine" || err != nil {
			t.Errorf("got %q, %v, want the written text", text, err)
		}
		if text, err := os.ReadFile(victim); exists && string(text) != "precious" || !exists && err == nil {
			t.Errorf("file at the end of the link: got %q, %v", text, err)
		}
	}
}

// If another user has made a link, this program must not write its file through the link.
func TestCreateFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o644), os.Symlink(victim, path)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // first there is a link, then a file
		f, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("mine")
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{victim: "precious", path: "mine"} {
			if text, err := os.ReadFile(name); string(text) != want || err != nil {
				t.Errorf("%s: got %q, %v, want %q", name, text, err, want)
			}
		}
	}
}
