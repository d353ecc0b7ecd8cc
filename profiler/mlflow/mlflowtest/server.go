// Package mlflowtest starts real MLflow servers. Only tests import the package.
package mlflowtest

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// Program returns the program mlflow of the Python package, from $HETERO_MLFLOW or PATH.
func Program(t *testing.T) string {
	t.Helper()
	needtest.NotShort(t, "starts an MLflow server, which takes half a minute")
	return needtest.Program(t, "mlflow", cmp.Or(os.Getenv("HETERO_MLFLOW"), "mlflow"))
}

// Start starts an MLflow server that keeps its data in dir, and returns a function that kills it.
func Start(t *testing.T, program, dir string, port int) (stop func()) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(program, "server", "--backend-store-uri", "sqlite:///"+filepath.Join(dir, "m.db"),
		"--artifacts-destination", filepath.Join(dir, "files"),
		"--host", "127.0.0.1", "--port", strconv.Itoa(port), "--workers", "1")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	// job execution would start eight processes that tracking does not need
	cmd.Env = append(os.Environ(), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false")
	diesWithTest(cmd)
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	stop = func() {
		if platform.KillGroup(cmd.Process.Pid) != nil {
			cmd.Process.Kill() // if this system cannot kill a process group, only the server, without its workers
		}
		<-ended
	}
	for range 1200 {
		if resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/health", port)); err == nil {
			resp.Body.Close()
			return stop
		}
		select {
		case <-ended:
			t.Fatalf("mlflow server ended:\n%s", &out)
		case <-time.After(100 * time.Millisecond):
		}
	}
	stop()
	t.Fatalf("mlflow server does not answer:\n%s", &out)
	return nil
}
