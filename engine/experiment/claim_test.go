package experiment

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestClaimsOfOneNameDiffer(t *testing.T) {
	output := filepath.Join(t.TempDir(), "runs")
	const n = 12
	names, releases := make([]string, n), make([]func(), n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			var err error
			if names[i], releases[i], err = ClaimName(output, "demo"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for i, name := range names {
		if seen[name] {
			t.Errorf("%s is claimed twice", name)
		}
		seen[name] = true
		defer releases[i]()
		if name != "demo" && !isFolder(filepath.Join(output, name)) {
			t.Errorf("there is no folder %s", name)
		}
	}
	if !seen["demo"] {
		t.Errorf("got %q, want the name itself once", names)
	}
	if isFolder(filepath.Join(output, "demo")) {
		t.Error("the claim of the name itself created its folder")
	}
	empty := filepath.Join(t.TempDir(), "empty")
	_, release, err := ClaimName(empty, "demo")
	if release(); err != nil || isFolder(empty) {
		t.Errorf("a run that did not begin left its output folder, or %v", err)
	}
}

func TestANameIsClaimedAgainAfterItsRelease(t *testing.T) {
	output := t.TempDir()
	for range 2 {
		name, release, err := ClaimName(output, "demo")
		if err != nil || name != "demo" {
			t.Fatalf("got %q, %v", name, err)
		}
		release()
	}
	run := mustOpen(t, Options{OutputDir: output, Name: "demo", Resume: ResumeAuto, Named: true})
	name, release, err := ClaimName(output, "demo")
	if err != nil || name != "demo-1" {
		t.Errorf("while a run uses the name: got %q, %v", name, err)
	}
	release()
	run.Close()
	if name, release, err := ClaimName(output, "demo"); err != nil || name != "demo" {
		t.Errorf("after the run: got %q, %v", name, err)
	} else {
		release()
	}
}

func TestAClaimInAFolderThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	name, release, err := ClaimName(filepath.Join(file, "runs"), "demo")
	if err != nil || name != "demo" {
		t.Errorf("got %q, %v, want the name: Begin reports the fault", name, err)
	}
	release()
}
