package mlflow

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The folder of logs may be untrusted. The batches of a spool must have a limited size, and must contain all complete
// lines.
func FuzzSpoolLines(f *testing.F) {
	f.Add([]byte(`{"start":{"id":"A1","experiment":"e","name":"n","time":1,"params":{"a":"b"}}}` + "\n" +
		`{"step":1,"time":2,"metrics":{"train/loss":0.5,"x":"NaN"}}` + "\n" + `{"tags":{"a":"b"}}` + "\n" +
		`{"status":"FINISHED","time":3}` + "\n"))
	f.Add(
		[]byte(
			"{}\n\nnull\n{\"step\":9223372036854775807,\"metrics\":{}}\n{\"artifact\":\"../../etc/passwd\"}\n{\"step\""))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, at := bytes.NewReader(text), int64(0)
		for {
			b, err := readBatch(file, at)
			if err != nil {
				return // the spool has a line that is too long
			}
			if b.metrics > mostMetrics && len(b.lines) > 1 || b.end < at || b.end > int64(len(text)) {
				t.Fatalf("%d metrics in %d lines, bytes %d to %d of %d", b.metrics, len(b.lines), at, b.end, len(text))
			}
			for _, l := range b.lines {
				if _, err := json.Marshal(l); err != nil {
					t.Fatalf("a line that was read cannot be written: %v", err)
				}
			}
			if b.end == at {
				break
			}
			at = b.end
		}
		if want := int64(bytes.LastIndexByte(text, '\n') + 1); at != want {
			t.Errorf("read %d bytes, want %d", at, want)
		}
	})
}

// replies is a server that answers each request with the same text.
type replies struct {
	status, calls int
	text          []byte
}

func (r *replies) RoundTrip(q *http.Request) (*http.Response, error) {
	if r.calls++; r.calls > 10_000 {
		panic("a reader asks without end")
	}
	return &http.Response{StatusCode: r.status, Body: io.NopCloser(bytes.NewReader(r.text)), Request: q}, nil
}

// A server may send any reply. The client must not crash.
func FuzzReplies(f *testing.F) {
	run := `{"info":{"run_id":"R1","run_name":"n","experiment_id":"7","status":"FINISHED","artifact_uri":"mlflow-artifacts:/7/R1/artifacts"},"data":{"metrics":[{"key":"loss"}],"params":[{"key":"a","value":"b"}],"tags":[{"key":"` +
		SentTag + `","value":"12"},{"key":"` + idTag + `","value":"A1"}]}}`
	f.Add(200, []byte(`{"run":`+run+`,"runs":[`+run+`],"experiment":{"experiment_id":"7"},"experiment_id":"7"}`))
	f.Add(200, []byte(`{"metrics":[{"value":"NaN","timestamp":"1","step":2}],"next_page_token":"p"}`))
	f.Add(200, []byte(`{"runs":[],"next_page_token":"p"}`))
	f.Add(404, []byte(`{"error_code":"RESOURCE_DOES_NOT_EXIST","message":"none"}`))
	f.Add(500, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, text []byte) {
		answers := &replies{status: status, text: text}
		s := &server{base: "http://h", client: &http.Client{Transport: answers}, folders: map[string]string{},
			mostReply: 1 << 16}
		r, ctx := &Reader{s, 10}, context.Background()
		if found, err := r.run(ctx, "R1"); err == nil && found.ID == "" {
			t.Error("a run without an identity")
		}
		if found, err := r.search(ctx, "e", "n"); err == nil && (len(found) == 0 || found[0].Info.ID == "") {
			t.Errorf("found %+v", found)
		}
		const most = 50
		if points, err := r.History(ctx, "R1", "loss", most); err == nil && len(points) > most {
			t.Errorf("%d points", len(points))
		}
		for _, known := range []string{"", "R1"} {
			if id, sent, err := s.open(ctx, &Start{ID: "A1"}, known); err == nil && (id == "" || sent < 0) {
				t.Errorf("run %q, %d bytes sent", id, sent)
			}
		}
	})
}

func FuzzFragment(f *testing.F) {
	for _, text := range []string{"/experiments/7/runs/R1/model-metrics?x=1", "e/n", "a/b/c", "a%2Fb/c", "/", "%", "//",
		"e/" + strings.Repeat("x/", 9)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, all, err := parseFragment(text)
		if (err == nil) != (id != "" || len(all) > 0) || len(all) > mostSlashes || id != "" && !isIdentity(id) {
			t.Errorf("%q: %q, %q, %v", text, id, all, err)
		}
	})
}

// The files of an MLflow store may be untrusted.
func FuzzStore(f *testing.F) {
	f.Add([]byte("artifact_location: file:///x\nexperiment_id: '1'\nname: 'e'\n"), []byte("12"),
		[]byte("1 0.5 10\n2 0.25 20\n3 0.1"))
	f.Add([]byte("name: e\n"), []byte("-1"), []byte("1 2\n1 2 x\n1 2 9223372036854775807\n\n"))
	dir := f.TempDir() // all executions share this folder, because creating a folder is slow
	known := filepath.Join(dir, "1", "a1")
	for _, sub := range []string{"tags", "metrics"} {
		if err := os.MkdirAll(filepath.Join(known, sub), 0o700); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, meta, sent, metric []byte) {
		for path, text := range map[string][]byte{filepath.Join(dir, "1/meta.yaml"): meta,
			filepath.Join(known, "tags", SentTag): sent, filepath.Join(known, "metrics/loss"): metric} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		store, err := newFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		id, at, err := store.open(context.Background(), &Start{ID: "A1", Experiment: "e", Name: "n"}, "")
		if err == nil && (at < 0 || id == "") {
			t.Errorf("run %q, position %d", id, at)
		}
		// The test creates this folder if the store has no experiment "e".
		if err := os.RemoveAll(filepath.Join(dir, "2")); err != nil {
			t.Fatal(err)
		}
		step, err := store.newest("1/a1", "loss")
		left, _ := os.ReadFile(filepath.Join(known, "metrics", "loss"))
		if err == nil && (len(left) > 0 && left[len(left)-1] != '\n' || !bytes.HasPrefix(metric, left)) {
			t.Errorf("step %d, left %q of %q", step, left, metric)
		}
	})
}
