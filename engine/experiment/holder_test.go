package experiment

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// In another PID namespace, a PID means nothing, even if the host name is the same.
func TestHeldByDoesNotKnowOtherContainers(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	here := self(host)
	if here.Boot == "" || here.Namespace == "" {
		needtest.Missing(t, "system", "the system does not tell the boot or the PID namespace")
	}
	boot, namespace, old := here, here, here
	boot.Boot, namespace.Namespace = "another", "pid:[1]"
	old.Boot, old.Namespace = "", ""
	for _, c := range []struct {
		holder Holder
		known  bool
	}{{here, true}, {old, true}, {boot, false}, {namespace, false}} {
		text, err := json.Marshal(c.holder)
		if err != nil {
			t.Fatal(err)
		}
		if err := root.WriteFile(lockFile, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, held, err := HeldBy(root); err != nil || (held != nil) != c.known || held != nil && *held {
			t.Errorf("%+v: got held %v and error %v, want known: %v", c.holder, held, err, c.known)
		}
	}
}

// A process in another PID namespace locks the run.
func TestHeldByInAnotherNamespace(t *testing.T) {
	const variable = "HETERO_TEST_LOCKED_RUN"
	if dir := os.Getenv(variable); dir != "" { // this is the process in the namespace
		output, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := lockFolder(output, "run")
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		fmt.Println("locked")
		io.Copy(io.Discard, os.Stdin) // until the test ends it
		return
	}
	if err := exec.Command("unshare", "-pf", "true").Run(); err != nil {
		needtest.Missing(t, "namespaces", fmt.Errorf("unshare -pf: %w", err))
	}
	dir := t.TempDir()
	cmd := exec.Command("unshare", "-pf", "--mount-proc", os.Args[0], "-test.run", "^TestHeldByInAnotherNamespace$")
	cmd.Env = append(os.Environ(), variable+"="+dir)
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the process in the namespace: got %q and error %v", line, err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if holder, held, err := HeldBy(root); err != nil || held != nil || holder.PID == 0 {
		t.Errorf("got %+v, held %v and error %v, want an unknown state", holder, held, err)
	}
}

func TestHeldByFollowsTheLockOfARun(t *testing.T) {
	dir := t.TempDir()
	options := Options{OutputDir: dir, Name: "a", Resume: ResumeAuto}
	run := mustOpen(t, options)
	root := rootOf(t, run)
	for _, want := range []bool{true, false} {
		holder, held, err := HeldBy(root)
		if err != nil || holder.PID != os.Getpid() || held == nil || *held != want {
			t.Fatalf("got %+v, held %v and error %v, want this process and held = %v", holder, held, err, want)
		}
		run.Close()
	}
	again, err := Open(options) // must succeed, because HeldBy locks nothing
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	empty, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if _, _, err := HeldBy(empty); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a lock file: got %v, want fs.ErrNotExist", err)
	}
}
