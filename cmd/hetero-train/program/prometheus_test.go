package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/account"
)

// endless contains the settings of a run of 2 ranks that only a signal ends.
var endless = []string{"parallel.ranks=2", "train.steps=2000000000", "train.eval_interval=0",
	"checkpoint.interval_steps=2000", "balance.interval=5"}

// fetched returns the body of a response with status 200, and "" for other responses.
func fetched(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

// eventually waits until is returns true. The time limit allows for a very busy machine.
func eventually(t *testing.T, what string, is func() bool) bool {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if is() {
			return true
		}
	}
	t.Errorf("%s: not within a minute", what)
	return false
}

// A real Prometheus server scrapes a run of two ranks.
func TestPrometheusScrapesARun(t *testing.T) {
	t.Parallel()
	server := needtest.Program(t, "prometheus", "prometheus")
	p, dir := buildRanks(t), t.TempDir()
	port, own := porttest.Free(t), porttest.Free(t)
	target := "127.0.0.1:" + strconv.Itoa(port)
	file := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs: [{job_name: run, static_configs: [{targets: [%q]}]}]\n",
		target)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var messages bytes.Buffer
	scraper := exec.Command(server, "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "tsdb"),
		"--web.listen-address", "127.0.0.1:"+strconv.Itoa(own))
	scraper.Stderr = &messages
	if err := scraper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { scraper.Process.Kill(); scraper.Wait() }()
	// query returns the values of a query. The keys are the values of the label by.
	query := func(expression, by string) map[string]float64 {
		var answer struct {
			Data struct {
				Result []struct {
					Metric map[string]string
					Value  [2]any
				}
			}
		}
		body := fetched(t, fmt.Sprintf("http://127.0.0.1:%d/api/v1/query?query=%s", own, url.QueryEscape(expression)))
		if json.Unmarshal([]byte(body), &answer) != nil {
			return nil
		}
		values := map[string]float64{}
		for _, r := range answer.Data.Result {
			text, _ := r.Value[1].(string)
			values[r.Metric[by]], _ = strconv.ParseFloat(text, 64)
		}
		return values
	}
	cmd := p.command(dir, append(endless, "metrics.address="+target)...)
	e := finishAfterStep(t, cmd, func() {
		defer cmd.Process.Signal(syscall.SIGTERM)
		if !eventually(t, "a decision of the balancer in Prometheus",
			func() bool { return query("hetero_train_decisions_total", "job")["run"] > 0 }) {
			t.Logf("prometheus:\n%s\nthe run:\n%s", &messages, fetched(t, "http://"+target+"/metrics"))
		}
		// On a busy machine, a scrape may time out. The values are then missing until the next scrape.
		shows := func(what, expression, by string, right func(values map[string]float64) bool) {
			t.Helper()
			var got map[string]float64
			if !eventually(t, what, func() bool { got = query(expression, by); return right(got) }) {
				t.Logf("%s: got %v", expression, got)
			}
		}
		shows("up is 1", "up", "job", func(up map[string]float64) bool { return up["run"] == 1 })
		shows("two shares with the sum 8", "hetero_train_share", "rank",
			func(shares map[string]float64) bool { return len(shares) == 2 && shares["0"]+shares["1"] == 8 })
		shows("one verdict for each rank", "sum by (rank) (hetero_train_rank_verdict)", "rank",
			func(verdicts map[string]float64) bool {
				return len(verdicts) == 2 && verdicts["0"] == 1 && verdicts["1"] == 1
			})
		shows("a median step time above 0", "histogram_quantile(0.5, hetero_train_step_seconds_bucket)", "job",
			func(median map[string]float64) bool { return median["run"] > 0 })
		shows("the model in run_info", "hetero_train_run_info", "model",
			func(info map[string]float64) bool { return info["simple_cnn"] == 1 })
		shows("all causes of lost time", "hetero_train_lost_seconds_total", "cause",
			func(lost map[string]float64) bool { return len(lost) == len(account.Losses) })
		before := query("hetero_train_run_step", "job")["run"]
		eventually(t, "more steps in Prometheus", func() bool {
			return query("hetero_train_run_step", "job")["run"] > before
		})
	})
	e.check(t, exit.Terminated, "")
}

// With metrics.ranks = "all", each rank has its own server.
func TestEachRankServesItsOwnMetrics(t *testing.T) {
	p := buildRanks(t)
	port := porttest.Free(t)
	cmd := p.command(t.TempDir(),
		append(endless, "metrics.ranks=all", "metrics.address=127.0.0.1:"+strconv.Itoa(port))...)
	finishAfterStep(t, cmd, func() {
		defer cmd.Process.Signal(syscall.SIGTERM)
		for rank := range 2 {
			eventually(t, fmt.Sprintf("rank %d with its share alone", rank), func() bool {
				text := fetched(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", port+rank))
				return strings.Count(text, "\nhetero_train_share{") == 1 &&
					strings.Contains(text, fmt.Sprintf("hetero_train_share{rank=%q}", strconv.Itoa(rank))) &&
					// Only rank 0 saves checkpoints.
					strings.Contains(text, "\nhetero_train_checkpoints_total ") == (rank == 0)
			})
		}
	})
}

func TestFaultsOfTheMetricsAddress(t *testing.T) {
	p := buildProgram(t)
	used := porttest.Free(t)
	dir := t.TempDir()
	open, short, empty := filepath.Join(dir, "open"), filepath.Join(dir, "short"), filepath.Join(dir, "empty")
	if err := errors.Join(os.WriteFile(open, []byte("s3cr3t"), 0o644), os.WriteFile(short, []byte("s3cr3t"), 0o600),
		os.WriteFile(empty, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(used))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		name, says string
		set        []string
	}{
		{"no port", "want HOST:PORT", []string{"metrics.address=127.0.0.1"}},
		{"all addresses without a token", "set metrics.token_file or HETERO_METRICS_TOKEN",
			[]string{"metrics.address=0.0.0.0:0"}},
		{"a port in use", "address already in use", []string{"metrics.address=127.0.0.1:" + strconv.Itoa(used)}},
		{"a short token", "want at least 16", []string{"metrics.address=0.0.0.0:0", "metrics.token_file=" + short}},
		{"an empty token file", "is empty", []string{"metrics.address=0.0.0.0:0", "metrics.token_file=" + empty}},
		{"a token that others can read", "other users can read",
			[]string{"metrics.address=0.0.0.0:0", "metrics.token_file=" + open}},
		{"an unknown choice", "metrics.ranks", []string{"metrics.address=127.0.0.1:0", "metrics.ranks=some"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			finish(t, p.command(dir, append(c.set, "train.steps=3")...), 0).check(t, exit.Usage, c.says)
			if _, err := os.Stat(filepath.Join(dir, "run")); err == nil {
				t.Error("the folder of the run exists, although the configuration is invalid")
			}
		})
	}
	finish(t, p.command(t.TempDir(), "metrics.address=0.0.0.0:0", "metrics.insecure=true", "train.steps=3"), 0).check(t,
		exit.Done, "can read the metrics")
}
