package program

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/notify"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// notifying returns settings that make a run append each event to a file, as one line.
func notifying(file string) []string {
	return []string{`notify.command=["sh", "-c", "cat >> \"$0\"", "` + file + `"]`}
}

func eventsIn(t *testing.T, file string) (all []notify.Event) {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e notify.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

func TestTheEndOfARunIsReported(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	for _, c := range []struct {
		event string // "": no event
		code  int
		set   []string
		stop  syscall.Signal
	}{
		{notify.Finished, exit.Done, []string{"train.steps=12"}, 0},
		{notify.Failed, exit.Data, []string{"data.dataset=images", "data.path=gone"}, 0},
		{notify.Diverged, exit.Diverged, []string{"optimizer.lr=1e30", "optimizer.name=sgd", "train.steps=400"}, 0},
		{"", exit.Terminated, []string{"train.steps=2000000000"}, syscall.SIGTERM},
		{"", exit.Done, []string{"train.steps=12", `notify.events=["failed"]`}, 0},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "events")
		finish(t, p.command(dir, append(notifying(file), c.set...)...), c.stop).check(t, c.code, "")
		all := eventsIn(t, file)
		if c.event == "" {
			if len(all) != 0 {
				t.Errorf("exit code %d: got %+v, want no event", c.code, all)
			}
			continue
		}
		if len(all) != 1 || all[0].Event != c.event || *all[0].Exit != c.code || all[0].Run != "run" ||
			all[0].Message == "" || all[0].Host == "" || all[0].Time.IsZero() {
			t.Errorf("got %+v, want one event %q with exit code %d", all, c.event, c.code)
			continue
		}
		if e := all[0]; c.event == notify.Finished && (e.Step != 12 || e.Steps != 12 || e.Loss == nil ||
			e.Folder != filepath.Join(dir, "run")) {
			t.Errorf("got %+v, want 12 steps, a loss and the folder of the run", e)
		}
	}
}

// In a run of several ranks, only rank 0 may report events. The supervisor must not repeat a failure that rank 0 has
// reported.
func TestOneRankReports(t *testing.T) {
	t.Parallel()
	p := buildRanks(t)
	for _, c := range []struct {
		event string
		code  int
		set   []string
	}{
		{notify.Finished, exit.Done, []string{"train.steps=12"}},
		{notify.Failed, exit.Data, []string{"data.dataset=images", "data.path=gone"}},
		{notify.Diverged, exit.Diverged, []string{"optimizer.lr=1e30", "optimizer.name=sgd", "train.steps=400"}},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "events")
		finish(t, p.command(dir, append(append(notifying(file), "parallel.ranks=3"), c.set...)...), 0).check(t, c.code,
			"")
		if all := eventsIn(t, file); len(all) != 1 || all[0].Event != c.event {
			t.Errorf("got %+v, want one event %q", all, c.event)
		}
	}
}

// A killed process cannot report its end, so the supervisor must report the end of rank 0.
func TestTheSupervisorReportsAKilledRank0(t *testing.T) {
	p, dir := buildRanks(t), t.TempDir()
	file := filepath.Join(dir, "events")
	cmd := p.command(dir, append(notifying(file), "train.steps=2000000000", "parallel.ranks=2")...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "records of rank 0", func() bool {
		info, err := os.Stat(filepath.Join(dir, "run", "logs", runtime.FileName(0)))
		return err == nil && info.Size() > 10000
	})
	root, err := os.OpenRoot(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	holder, held, err := experiment.HeldBy(root)
	if err != nil || held == nil || !*held {
		t.Fatalf("process of rank 0: got %+v, %v", holder, err)
	}
	if err := sendTo(holder.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := exitOf(t, cmd.Wait()); code != exit.Communication {
		t.Errorf("got exit code %d, want %d\n%s", code, exit.Communication, out.String())
	}
	all := eventsIn(t, file)
	if len(all) != 1 {
		t.Fatalf("got %+v, want one event\n%s", all, out.String())
	}
	e := all[0]
	if e.Event != notify.Failed || *e.Exit != exit.Communication || e.Step < 1 || e.Loss == nil ||
		e.Folder != filepath.Join(dir, "run") || e.Run != "run" ||
		!strings.Contains(e.Message, "rank 0") || !strings.Contains(e.Message, "SIGKILL") {
		t.Errorf("got %+v, want the failure of rank 0 with its step, loss and folder", e)
	}
}

// The address of a webhook is a secret: no file of the run and no message may contain it. A webhook that fails must not
// change the exit code.
func TestTheAddressOfAWebhookIsNotWritten(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	const canary = "canary-Yq81b"
	cmd := p.command(dir, "train.steps=12")
	cmd.Env = append(os.Environ(), "HETERO_NOTIFY_WEBHOOK_SECRET="+server.URL+"/"+canary)
	e := finish(t, cmd, 0)
	e.check(t, exit.Done, "notify.webhook: an event was not reported")
	if requests.Load() != 1 || strings.Contains(e.stdout+e.stderr, canary) {
		t.Errorf("got %d requests, want 1; the output contains the address: %v", requests.Load(),
			strings.Contains(e.stdout+e.stderr, canary))
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(string(clitest.ReadFile(t, path)), canary) {
			t.Errorf("%s contains the address", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFaultsOfNotifySettings(t *testing.T) {
	p := buildProgram(t)
	for _, c := range []struct{ set, says string }{
		{`notify.events=["ended"]`, "notify.events: unknown event"},
		{`notify.command=["no-such-program"]`, "notify.command"},
		{`notify.webhook=ftp://host/`, "notify.webhook: want an address such as https://host/path"},
		{`notify.webhook_file=gone`, "notify.webhook_file"},
		{`notify.timeout_seconds=0`, "notify.timeout_seconds"},
	} {
		finish(t, p.command(t.TempDir(), c.set, "train.steps=3"), 0).check(t, exit.Usage, c.says)
	}
}
