package regular

import (
	"errors"
	"os"
	"path/filepath"
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
		{"file of its own", secret, false},
		{"elsewhere/absolute", secret, true}, // no given folder contains it
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
		err = StayIn(root, "logs", "missing", "file of its own")
		var odd *Error
		if c.ok != (err == nil) || err != nil && !errors.As(err, &odd) {
			t.Errorf("%s -> %s: got %v, want ok %t", c.name, c.target, err, c.ok)
		}
		if err := errors.Join(root.Close(), os.RemoveAll(dir)); err != nil {
			t.Fatal(err)
		}
	}
}
