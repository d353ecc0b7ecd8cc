package dashboard

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/runs"
)

// recordText returns the record of step 1 with this loss.
func recordText(loss string) string {
	return `{"epoch":0,"iteration":1,"loss":` + loss +
		`,"throughput":4,"iteration_time":1,"data_loading_time":0,"forward_time":0.5,"backward_time":0.5,` +
		`"communication_time":0,"optimizer_time":0,"communication_hidden_time":0,"exchange_time":0,"communication_bytes":0,"communication_buckets":0,"batch_size":4,` +
		`"timestamp":null,"rank":0,"accuracy":null,"learning_rate":0.1,"grad_norm":1,"loss_scale":1,"skipped":false}`
}

// writeRun writes a run with one record, which has this loss.
func writeRun(t *testing.T, dir, loss string) {
	t.Helper()
	record := recordText(loss)
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "logs"), 0o755),
		os.WriteFile(filepath.Join(dir, "logs", "rank_0_metrics.json"), []byte("[\n"+record+"\n]\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

// folderOf returns a folder with runs of these names, and its path.
func folderOf(t *testing.T, names ...string) (*runs.Folder, string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		writeRun(t, filepath.Join(dir, name), "2")
	}
	folder, err := runs.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Close() })
	return folder, dir
}

// runNames returns n names of runs.
func runNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("run", i))
	}
	return names
}

// joinAll follows runs as streams do. leave contains the functions that end the streams.
func joinAll(t *testing.T, s *Server, names []string) (all []*follower, leave []func()) {
	t.Helper()
	for _, name := range names {
		f, end, err := s.join(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		all, leave = append(all, f), append(leave, end)
	}
	return all, leave
}

// newServer returns a server that answers requests without a network.
func newServer(t *testing.T, folder *runs.Folder) *Server {
	t.Helper()
	s, err := New(Options{Folder: folder, Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.closeFollowers)
	return s
}

// ask passes a request to a server without a network.
func ask(s *Server, path string) (status int, body string) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
	return w.Code, w.Body.String()
}

func TestARunNamedListIsNotTheListOfRuns(t *testing.T) {
	folder, _ := folderOf(t, "list")
	s := newServer(t, folder)
	for range 2 {
		if _, body := ask(s, "/api/runs"); !strings.Contains(body, `"runs":`) {
			t.Errorf("list of runs: got %s", body)
		}
		if _, body := ask(s, "/api/runs/list"); !strings.Contains(body, `"settings":`) {
			t.Errorf("run: got %s", body)
		}
	}
	// Equal versions of the list and of the run could be chance, so the test compares the keys, too.
	if _, found := s.answers.all["list"]; !found || len(s.answers.all) != 2 {
		t.Errorf("got %d cached answers, want 2", len(s.answers.all))
	}
}

func TestAnInternalErrorIsNotTheClients(t *testing.T) {
	folder, _ := folderOf(t, "a")
	s := newServer(t, folder)
	f, release, err := s.follow(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := f.run.Close(); err != nil {
		t.Fatal(err)
	}
	if status, body := ask(s, "/api/runs/a/figures?columns=loss"); status != 500 || strings.Contains(body, "closed") ||
		strings.Contains(body, ".json") {
		t.Errorf("got status %d and %q, want 500 without internal text", status, body)
	}
	if status, body := ask(s, "/api/runs/a/figures?columns=nonsense"); status != 400 ||
		!strings.Contains(body, "nonsense") {
		t.Errorf("unknown column: got status %d and %q, want 400 with the name", status, body)
	}
}
