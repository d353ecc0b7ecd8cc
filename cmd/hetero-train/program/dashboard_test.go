package program

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/profiler/runs"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// page matches the address that the dashboard prints.
var page = regexp.MustCompile(`http://\S+/`)

// startDashboard starts the command and returns the address of the page.
func startDashboard(t *testing.T, p program, args ...string) (cmd *exec.Cmd, address string, output *bufio.Scanner) {
	t.Helper()
	cmd = exec.Command(p.path, append([]string{"dashboard", "--port", "0"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	output = bufio.NewScanner(out)
	if !output.Scan() {
		cmd.Wait()
		t.Fatalf("the dashboard printed nothing: %s", &stderr)
	}
	return cmd, page.FindString(output.Text()), output
}

func TestDashboardServesUntilCtrlC(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	finish(t, p.command(dir, "train.steps=3"), 0).check(t, exit.Done, "")
	cmd, address, _ := startDashboard(t, p, "--input-dir", dir)
	if status, text := clitest.Get(t, address); status != 200 || !strings.Contains(text, "/app.js") {
		t.Errorf("got %d: %s", status, text)
	}
	var list struct {
		Runs []struct {
			Name  string
			Steps int
			State struct{ Kind string }
		}
	}
	_, text := clitest.Get(t, address+"api/runs")
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Runs) != 1 || list.Runs[0].Name != "run" ||
		list.Runs[0].Steps != 3 || list.Runs[0].State.Kind != "finished" {
		t.Errorf("got runs %s, error %v", text, err)
	}
	cmd.Process.Signal(syscall.SIGINT)
	if code := exitOf(t, cmd.Wait()); code != exit.Interrupted {
		t.Errorf("after SIGINT: got exit code %d, want %d", code, exit.Interrupted)
	}
}

func TestDashboardEndsAfterSIGTERM(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	cmd, address, _ := startDashboard(t, p, "--input-dir", dir, "--address", "0.0.0.0")
	_, port, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(want int) {
		t.Helper()
		text, err := exec.Command(p.path, "dashboard", "--check", "--port", port, "--address", "0.0.0.0").
			CombinedOutput()
		if code := exitOf(t, err); code != want {
			t.Errorf("--check: got exit code %d, want %d: %s", code, want, text)
		}
	}
	check(exit.Done)
	cmd.Process.Signal(syscall.SIGTERM)
	if code := exitOf(t, cmd.Wait()); code != exit.Terminated {
		t.Errorf("got exit code %d, want %d", code, exit.Terminated)
	}
	check(exit.Unexpected)
}

func TestDashboardRefusesBadInput(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	readable := filepath.Join(dir, "token")
	if err := os.WriteFile(readable, []byte("0123456789abcdef"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, environ []string
		want          string
	}{
		{[]string{"--input-dir", filepath.Join(dir, "missing")}, nil, "set --input-dir"},
		{[]string{"--input-dir", readable}, nil, "not a directory"},
		{[]string{"--input-dir", dir, "--port", fmt.Sprint(used.Addr().(*net.TCPAddr).Port)}, nil,
			"address already in use"},
		{[]string{"--input-dir", dir, "--server.port", "70000"}, nil, "dashboard.port"},
		{[]string{"--input-dir", dir, "--refresh", "31"}, nil, "dashboard.refresh_seconds"},
		{[]string{"--input-dir", dir, "--address", "not an address"}, nil, "is not a host"},
		{[]string{"--input-dir", dir, "--token-file", readable}, nil, "want 0600"},
		{[]string{"--input-dir", dir}, []string{"HETERO_DASHBOARD_TOKEN=short"}, "want at least 16"},
		{[]string{"--input-dir", dir, "run"}, nil, "takes no arguments"},
	} {
		cmd := exec.Command(p.path, append([]string{"dashboard"}, c.args...)...)
		cmd.Env = append(os.Environ(), c.environ...)
		text, err := cmd.CombinedOutput()
		if code := exitOf(t, err); code != exit.Usage || !strings.Contains(string(text), c.want) {
			t.Errorf("%q: got exit code %d and %q, want %d and %q", c.args, code, text, exit.Usage, c.want)
		}
	}
}

// --server.address is an alias of --address.
func TestDashboardOnAllAddressesNeedsAToken(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	_, address, output := startDashboard(t, p, "--input-dir", dir, "--server.address", "0.0.0.0")
	if !output.Scan() {
		t.Fatal("got no token")
	}
	token, found := strings.CutPrefix(output.Text(), "token for the page: ")
	if !found || len(token) < 16 {
		t.Fatalf("got %q, want a token", output.Text())
	}
	if status, _ := clitest.Get(t, address+"api/runs"); status != 401 {
		t.Errorf("without the token: got %d, want 401", status)
	}
	request, err := http.NewRequest(http.MethodGet, address+"api/runs", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 {
		t.Errorf("with the token: got %d, want 200", answer.StatusCode)
	}
}

// A dashboard that cannot start must not end the training.
func TestTrainingStartsAndEndsTheDashboard(t *testing.T) {
	nativetest.Need(t, "shm", "libhetero_shm.so") // the run has two ranks
	p, dir := buildProgram(t), t.TempDir()
	cmd := p.command(filepath.Join(dir, "new"), "dashboard.enabled=true", "dashboard.port=0", "train.steps=100000000",
		"parallel.ranks=2")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := ""
	lines := bufio.NewScanner(stderr)
	for address == "" && lines.Scan() {
		if strings.Contains(lines.Text(), "dashboard of") {
			address = page.FindString(lines.Text())
		}
	}
	if address == "" {
		t.Fatal("the training printed no page")
	}
	go io.Copy(io.Discard, stderr)
	own, err := ownNice()
	if err != nil {
		t.Fatal(err)
	}
	want, threads := strconv.Itoa(min(19, own+10)), 0
	for _, path := range glob(t, "/proc/[0-9]*/cmdline") {
		line, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(line), p.path+"\x00dashboard\x00") {
			continue // the folder belongs to another process, which may have ended
		}
		for _, thread := range glob(t, filepath.Join(filepath.Dir(path), "task", "*", "stat")) {
			stat, err := os.ReadFile(thread)
			if err != nil {
				continue // the thread has ended
			}
			_, after, _ := strings.Cut(string(stat), ") ")
			if nice := strings.Fields(after)[16]; nice != want {
				t.Errorf("a thread of the dashboard has the nice value %s, want %s", nice, want)
			}
			threads++
		}
	}
	if threads == 0 {
		t.Error("found no thread of the dashboard")
	}
	steps := 0
	for limit := time.Now().Add(time.Minute); steps < 5 && time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
		var run struct {
			Last  int
			Ranks []any
			State struct{ Kind string }
		}
		status, text := clitest.Get(t, address+"api/runs/run")
		if status == 200 && json.Unmarshal([]byte(text), &run) == nil && len(run.Ranks) == 2 &&
			run.State.Kind == "running" {
			steps = run.Last
		}
	}
	if steps < 5 {
		t.Error("the page did not show the steps of both ranks")
	}
	cmd.Process.Signal(syscall.SIGINT)
	if code := exitOf(t, cmd.Wait()); code != exit.Interrupted {
		t.Errorf("got exit code %d, want %d", code, exit.Interrupted)
	}
	noProcessOf(t, p)

	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	busy := p.command(dir, "dashboard.enabled=true", fmt.Sprint("dashboard.port=", used.Addr().(*net.TCPAddr).Port),
		"train.steps=100000000")
	if stderr, err = busy.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.Process.Kill() })
	warning := ""
	for lines = bufio.NewScanner(stderr); warning == "" && lines.Scan(); {
		if strings.Contains(lines.Text(), "training continues") {
			warning = lines.Text()
		}
	}
	if !strings.Contains(warning, "address already in use") {
		t.Fatalf("a port in use: got %q, want a warning with the reason", warning)
	}
	go io.Copy(io.Discard, stderr)
	records := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "run", "logs", runtime.FileName(0)))
		if err != nil {
			return 0 // the file does not exist yet
		}
		return info.Size()
	}
	before := records()
	for limit := time.Now().Add(time.Minute); records() == before; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the training writes no records after the dashboard has ended")
		}
	}
	busy.Process.Signal(syscall.SIGINT)
	if code := exitOf(t, busy.Wait()); code != exit.Interrupted {
		t.Errorf("got exit code %d, want %d", code, exit.Interrupted)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestStatusOfRuns(t *testing.T) {
	nativetest.Need(t, "shm", "libhetero_shm.so") // the run has two ranks
	p, dir := buildProgram(t), t.TempDir()
	finish(t, p.command(dir, "train.steps=60", "parallel.ranks=2"), 0).check(t, exit.Done, "")
	status := func(code int, args ...string) string {
		t.Helper()
		text, err := exec.Command(p.path, append([]string{"status"}, args...)...).CombinedOutput()
		if got := exitOf(t, err); got != code {
			t.Errorf("status %q: got exit code %d, want %d: %s", args, got, code, text)
		}
		return string(text)
	}
	for _, args := range [][]string{{"--input-dir", dir}, {"--input-dir", dir, "run"}, {filepath.Join(dir, "run")},
		{"--input-dir", filepath.Join(dir, "run"), "--watch"}} {
		text := status(exit.Done, args...)
		for _, want := range []string{"run: finished, step 60 of 60 (100 %)\n", "[Load Balancer Status] step ",
			"Cluster Throughput: ", "bottleneck: ", "last decision: step "} {
			if !strings.Contains(text, want) {
				t.Errorf("status %q: got %q, want also %q", args, text, want)
			}
		}
		if strings.Contains(text, "\x1b") {
			t.Errorf("status %q: got control characters in a pipe", args)
		}
	}
	if text := status(exit.Done, "--input-dir", dir, "--check", "1ns"); !strings.HasPrefix(text,
		"run: healthy: finished, step 60,") || strings.Count(text, "\n") != 1 {
		t.Errorf("--check: got %q, want one line", text)
	}
	var health struct {
		Healthy bool
		Step    int
	}
	if text := status(exit.Done, "--input-dir", dir, "run", "--check", "1m", "--json"); json.Unmarshal([]byte(text),
		&health) != nil || !health.Healthy || health.Step != 60 {
		t.Errorf("--check --json: got %s", text)
	}
	var v struct {
		Last  int
		Ranks []any
	}
	if text := status(exit.Done, "--input-dir", dir, "--json"); json.Unmarshal([]byte(text), &v) != nil ||
		v.Last != 60 || len(v.Ranks) != 2 {
		t.Errorf("--json: got %s", text)
	}
	for want, args := range map[string][]string{"there is no run other in folder " + dir + "; newest runs in it: ": {
		"--input-dir", dir, "other"}, "there is no folder": {"--input-dir", filepath.Join(dir, "missing")},
		"want a name of at most 64 characters": {"--input-dir", dir, "a b"},
		"there is no run":                      {"--input-dir", t.TempDir()}, "takes one argument": {"a", "b"},
		"--check: got 0s, want a time above 0": {"--check", "0s"}, "there is no run absent": {"--input-dir", dir, "absent",
			"--check", "1m"}} {
		if text := status(exit.Usage, args...); !strings.Contains(text, want) {
			t.Errorf("status %q: got %q, want %q", args, text, want)
		}
	}
}

// experiment.log_dir must be relative to the folder in which the training runs, and not to the reader's folder.
func TestLogsAreFoundFromAnyFolder(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	cmd := p.command(dir, "train.steps=3", "experiment.log_dir=elsewhere")
	cmd.Dir = t.TempDir()
	finish(t, cmd, 0).check(t, exit.Done, "")
	folder, err := runs.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	run, err := folder.Open("run")
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	for run.Update(1 << 20) {
	}
	if v := run.View(); v.Last != 3 {
		t.Errorf("got steps up to %d and state %+v, want 3", v.Last, v.State)
	}
}

// On terminals of usual widths, status must show the same text as in a pipe, without truncated or wrapped lines. Only a
// pipe gets the parts of the planned memory.
func TestStatusFitsTheTerminal(t *testing.T) {
	nativetest.Need(t, "shm", "libhetero_shm.so") // the run has two ranks
	p, dir := buildProgram(t), t.TempDir()
	finish(t, p.command(dir, "train.steps=60", "parallel.ranks=2"), 0).check(t, exit.Done, "")
	words := func(text string) []string { return strings.Fields(strings.ReplaceAll(text, "/", "/ ")) }
	piped, err := exec.Command(p.path, "status", "--input-dir", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^plan of rank .*\n`).ReplaceAllString(string(piped), "")
	if shown == string(piped) {
		t.Errorf("got\n%s\nwant the parts of the planned memory", piped)
	}
	for _, width := range []int{80, 100} {
		master, slave := openTerminal(t)
		if err := resize(master, 50, width); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(p.path, "status", "--watch", "--input-dir", dir)
		cmd.Stdout = slave
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		text, _ := io.ReadAll(master) // the read fails when the command closes the terminal
		if code := exitOf(t, cmd.Wait()); code != exit.Done {
			t.Errorf("%d columns: got exit code %d", width, code)
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\r\n"), "\r\n") {
			if n := utf8.RuneCountInString(line); n > width || strings.Contains(line, "…") {
				t.Errorf("%d columns: got a line of %d characters: %q", width, n, line)
			}
		}
		if got, want := words(string(text)), words(shown); !slices.Equal(got, want) {
			t.Errorf("%d columns: got\n%s\nwant the words of\n%s", width, text, shown)
		}
		t.Logf("%d columns:\n%s", width, text)
	}
}
