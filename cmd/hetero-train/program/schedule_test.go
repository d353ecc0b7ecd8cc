package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
)

func TestScheduleSimulatesATrace(t *testing.T) {
	speeds, trace := gavelFiles(t, goodTrace)
	picture := filepath.Join(t.TempDir(), "jobs.svg")
	o := execute([]string{"schedule", "simulate", "--policy", "fcfs", "--speeds", speeds, "--trace", trace, "--gpus",
		"v100=2", "--json", "--gantt", picture})
	var r struct {
		Completion float64 `json:"completion_s"`
		HyperScore float64 `json:"hyperscore"`
		Jobs       []struct {
			Name   string  `json:"name"`
			Start  float64 `json:"start_s"`
			Finish float64 `json:"finish_s"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &r); o.code != 0 || err != nil {
		t.Fatalf("got exit code %d, %v, %q", o.code, err, o.stderr)
	}
	// The first job computes 1000 steps at 10 steps/s. The second one then computes 5000 steps at 18 steps/s on both
	// GPUs. The third job waits for the second.
	second := 100 + 5000.0/18
	if len(r.Jobs) != 3 || r.Jobs[0].Finish != 100 || r.Jobs[1].Start != 100 || r.Jobs[1].Finish != second ||
		r.Jobs[2].Finish != second+10 {
		t.Errorf("got %+v", r.Jobs)
	}
	if want := (100 + second - 10 + second + 10 - 20) / 3; r.Completion != want || r.HyperScore < 109.9 ||
		r.HyperScore > 110 {
		t.Errorf("got completion %v s and HyperScore %v, want %v s and 109.955", r.Completion, r.HyperScore, want)
	}
	if text, err := os.ReadFile(picture); err != nil || !strings.Contains(string(text), "v100-0/1") {
		t.Errorf("--gantt: %d bytes, %v", len(text), err)
	}
}

func TestScheduleCountsInWords(t *testing.T) {
	speeds, trace := gavelFiles(t, strings.SplitAfter(goodTrace, "\n")[0])
	o := execute([]string{"schedule", "simulate", "--policy", "fcfs", "--speeds", speeds, "--trace", trace, "--gpus",
		"v100=1"})
	if want := "fcfs: 1 job on 1 GPU in 100.0 s, 1 decision, 2 events\n"; o.code != 0 ||
		!strings.HasPrefix(o.stdout, want) {
		t.Errorf("got exit code %d and %q%s, want %q", o.code, o.stdout, o.stderr, want)
	}
}

func TestScheduleExplainsAJob(t *testing.T) {
	cluster, jobs := inputFiles(t, "name,kind,arrival,work,gpus,cpus,memory,network,priority\nfirst,LM,0,1800,2,1,0,0,0\nsecond,LM,10,700,2,1,0,0,0\nthird,LM,20,100,1,1,0,0,0\n")
	args := []string{"schedule", "explain", "--input", cluster, "--input", jobs, "--policy"}
	var e struct {
		Seed   *int    `json:"seed"`
		Start  float64 `json:"start_s"`
		Before int     `json:"jobs_before_it"`
		Free   []struct {
			Type            string
			Free, Available int
		} `json:"free_at_arrival"`
		Stays []struct {
			GPUs         []string
			To           float64 `json:"to_s"`
			Ended        string
			Reason       string
			Alternatives []struct {
				Types  string
				Speed  *float64 `json:"speed_steps_per_s"`
				Finish *float64 `json:"finish_s"`
				Not    string
				Chosen bool
			}
		}
	}
	o := execute(append(args, "fcfs", "--job", "second", "--json"))
	if err := json.Unmarshal([]byte(o.stdout), &e); o.code != 0 || err != nil {
		t.Fatalf("got exit code %d, %v, %q", o.code, err, o.stderr)
	}
	if e.Seed != nil || e.Start != 10 || e.Before != 0 || len(e.Free) != 2 || e.Free[0].Free != 0 ||
		e.Free[1].Free != 2 || len(e.Stays) != 1 {
		t.Fatalf("got %s", o.stdout)
	}
	stay := e.Stays[0]
	if strings.Join(stay.GPUs, ",") != "t4/0,t4/1" || stay.To != 110 || stay.Ended != "finished" ||
		!strings.Contains(stay.Reason, "first type with enough free GPUs") || len(stay.Alternatives) != 2 {
		t.Fatalf("got %+v", stay)
	}
	chosen, other := stay.Alternatives[0], stay.Alternatives[1]
	if !chosen.Chosen || chosen.Types != "2 T4" || *chosen.Speed != 7 || *chosen.Finish != 110 ||
		other.Types != "2 V100" || other.Not != "0 free" || other.Speed != nil {
		t.Errorf("got %+v and %+v", chosen, other)
	}
	text := execute(append(args, "fcfs", "--job", "third"))
	for _, want := range []string{"third: LM | GPUs: 1 |", "started after 80.0 s",
		"started because: the job is the first of 1 jobs", "finished after 90.0 s"} {
		if text.code != 0 || !strings.Contains(text.stdout, want) {
			t.Errorf("got exit code %d, %q, %q, want %q", text.code, text.stdout, text.stderr, want)
		}
	}
	// A job that was stopped has several stays on GPUs, each with its reasons.
	moved := execute([]string{"schedule", "explain", "--job", "job-30", "--policy", "maxmin"})
	if starts, stops := strings.Count(moved.stdout, "started because: "), strings.Count(moved.stdout,
		"stopped because: "); starts < 2 || stops != starts-1 || strings.Contains(moved.stdout, "%") {
		t.Errorf("got %q, want several stays, and texts without format verbs", moved.stdout)
	}
	for _, policy := range scheduler.Names() {
		if o := execute([]string{"schedule", "explain", "--job", "job-9", "--jobs", "20", "--policy",
			policy}); o.code != 0 || !strings.Contains(o.stdout, "chosen") ||
			strings.Contains(o.stdout, `because: ""`) {
			t.Errorf("%s: got exit code %d, %q, %q", policy, o.code, o.stdout, o.stderr)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "want the name of a job in --job"},
		{[]string{"--job", "job-20", "--jobs", "20"}, `got "job-20", want one of 20 jobs from "job-0" to "job-19"`},
		{[]string{"--job", "a", "--policy", "best"}, "unknown job"},
		{[]string{"--job", "job-1", "--policy", "best"}, "unknown policy"},
	} {
		if o := execute(append([]string{"schedule", "explain"}, c.args...)); o.code != 2 ||
			!strings.Contains(o.stderr, c.want) {
			t.Errorf("%q: got exit code %d and %q, want 2 and %q", c.args, o.code, o.stderr, c.want)
		}
	}
}

func TestScheduleComparesPolicies(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs.csv")
	o := execute([]string{"schedule", "compare", "--seeds", "3", "--jobs", "30", "--device", "reference", "--json",
		"--csv", runs, "--change", "-4turing@600"})
	var s compare.Study
	if err := json.Unmarshal([]byte(o.stdout), &s); o.code != 0 || err != nil {
		t.Fatalf("got exit code %d, %v, %q", o.code, err, o.stderr)
	}
	// Without Turing GPUs, some jobs of policy static never start.
	if len(s.Rows) != len(scheduler.Names()) || len(s.Seeds) != 3 || len(s.Rows[0].Runs) != 3 ||
		!strings.Contains(o.stderr, "policy static is left out of the comparison: schedule compare: seed 1: policy static can start no waiting job") {
		t.Errorf("got %d policies and %d seeds, %q", len(s.Rows), len(s.Seeds), o.stderr)
	}
	text, err := os.ReadFile(runs)
	if lines := strings.Count(string(text), "\n"); err != nil || lines != 1+3*len(s.Rows) {
		t.Errorf("--csv: got %d lines, %v", lines, err)
	}
	// Policy dqn must accept clusters with other GPUs than those in the training of its network.
	small, trace := gavelFiles(t, goodTrace)
	six := execute([]string{"schedule", "compare", "--speeds", small, "--trace", trace, "--gpus", "v100=4/1,k80=2/1",
		"--device", "reference"})
	if six.code != 0 || strings.Contains(six.stderr, "policy dqn is left out") ||
		!strings.Contains(six.stdout, "dqn ") {
		t.Errorf("a cluster of six machines: got exit code %d, %q, %q", six.code, six.stdout, six.stderr)
	}
	again := execute([]string{"schedule", "compare", "--seeds", "3", "--jobs", "30", "--device", "reference", "--json",
		"--change", "-4turing@600"})
	if again.stdout != o.stdout {
		t.Error("two comparisons with equal flags differ")
	}
	table := execute([]string{"schedule", "compare", "--policy", "gang", "--seeds", "2", "--jobs", "20"})
	for _, want := range []string{"policy ", "fcfs ", "gang ", "HyperScore", "2 lists of jobs", "compared with fcfs"} {
		if !strings.Contains(table.stdout, want) {
			t.Errorf("got %q, want a table with %q", table.stdout, want)
		}
	}
}

// The last GPUs may be removed after all jobs have ended.
func TestScheduleChangesAfterTheLastJob(t *testing.T) {
	o := execute([]string{"schedule", "simulate", "--policy", "srf", "--jobs", "5", "--change", "-8volta@1e9",
		"--change", "-4radeon@1e9", "--change", "-4turing@1e9"})
	if o.code != 0 {
		t.Errorf("got exit code %d, %q", o.code, o.stderr)
	}
}

// The second list fails immediately, and the first list fails after many jobs. The error must name the first list at
// any speed of the workers.
func TestScheduleCompareReportsTheFirstListThatFails(t *testing.T) {
	const late = "LM (batch size 5)\tpython3 main.py\t--steps\t1\t1000\t2000000.0\t1\n"
	var many strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&many, "LM (batch size 5)\tpython3 main.py\t--steps\t1\t100\t%d.0\t1\n", 10*i)
	}
	speeds, first := gavelFiles(t, many.String()+late)
	_, second := gavelFiles(t, late)
	o := execute([]string{"schedule", "compare", "--policy", "fcfs", "--speeds", speeds, "--gpus", "v100=4", "--trace",
		first, "--trace", second, "--change", "-4v100@1e6"})
	if want := "--trace " + first + ": policy fcfs can start no waiting job"; o.code != 1 ||
		!strings.Contains(o.stderr, want) || strings.Contains(o.stderr, second) {
		t.Errorf("got exit code %d and %q, want 1 and %q", o.code, o.stderr, want)
	}
}

// The fake Slurm has one node with three free GPUs. Its queue has four pending jobs. The first job waits for resources,
// and the second is held by its owner. An administrator holds the third job, and the fourth does not opt in.
func TestScheduleAdvisesSlurm(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"squeue": `echo '{"jobs":[{"job_id":7,"name":"a","comment":"hetero-train:","job_state":["PENDING"],"state_reason":"Resources","tres_per_job":"gres/gpu:2","node_count":{"set":true,"number":1}},
			{"job_id":8,"name":"b\u001b[31m","comment":"hetero-train:","job_state":["PENDING"],"state_reason":"JobHeldAdmin","tres_per_job":"gres/gpu:1","node_count":{"set":true,"number":1}},
			{"job_id":10,"name":"c","comment":"hetero-train: kind=LM","job_state":["PENDING"],"state_reason":"JobHeldUser","tres_per_job":"gres/gpu:1","node_count":{"set":true,"number":1}},
			{"job_id":11,"name":"d","comment":"of a stranger","job_state":["PENDING"],"state_reason":"Resources","tres_per_job":"gres/gpu:1","node_count":{"set":true,"number":1}}]}'`,
		"scontrol": `[ "$1" = update ] || [ "$1" = release ] && { echo "$@" >> ` + dir + `/calls; exit 0; }
			[ "$2" = config ] && { echo 'ClusterName = ml'; echo 'SlurmctldHost[0] = ctl'; exit 0; }
			echo '{"nodes":[{"name":"n1","state":["IDLE"],"gres":"gpu:v100:3","cpus":8,"real_memory":1000}]}'`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("XDG_STATE_HOME", dir) // folder of the log of changes
	o := execute([]string{"schedule", "advise", "--slurm"})
	for _, want := range []string{"job 7 (a) can start on n1 with 2 v100: ", "all GPUs count as equally fast",
		"holds the job: JobHeldAdmin", "job 10 (c) can start on n1 with 1 v100",
		"job 11 (d) waits: the job does not opt in", "nothing changed"} {
		if o.code != 0 || !strings.Contains(o.stdout, want) || strings.Contains(o.stdout, "\x1b") {
			t.Errorf("got exit code %d and %q %q, want %q and no control characters", o.code, o.stdout, o.stderr, want)
		}
	}
	if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err == nil {
		t.Errorf("without --apply: got calls %q", calls)
	}
	if o := execute([]string{"schedule", "advise", "--slurm", "--apply"}); o.code != 0 ||
		!strings.Contains(o.stdout, "is now restricted to n1") {
		t.Errorf("--apply: got exit code %d and %q", o.code, o.stdout)
	}
	if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err != nil ||
		string(calls) != "update JobId=10 ReqNodeList=n1\nrelease 10\nupdate JobId=7 ReqNodeList=n1\n" {
		t.Errorf("--apply: got calls %q, %v", calls, err)
	}
	speeds := `echo '{"jobs":[{"job_id":9,"name":"c","comment":"hetero-train: kind=LM; steps=100","job_state":["PENDING"],"state_reason":"Resources","tres_per_job":"gres/gpu:2","node_count":{"set":true,"number":1}}]}'`
	if err := os.WriteFile(filepath.Join(dir, "squeue"), []byte("#!/bin/sh\n"+speeds+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	table, _ := inputFiles(t, twoJobs)
	if o := execute([]string{"schedule", "advise", "--slurm", "--speeds", table}); o.code != 0 ||
		!strings.Contains(o.stdout, "job 9 (c) can start on n1 with 2 v100: it finishes first") ||
		!strings.Contains(o.stdout, "18 steps/s") {
		t.Errorf("--speeds: got exit code %d, %q, %q", o.code, o.stdout, o.stderr)
	}
	if err := os.WriteFile(filepath.Join(dir, "squeue"),
		[]byte("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if o := execute([]string{"schedule", "advise", "--slurm"}); o.code != 5 ||
		!strings.Contains(o.stderr, "Unable to contact slurm controller") {
		t.Errorf("no controller: got exit code %d and %q", o.code, o.stderr)
	}
}

// The example of docs/scheduling.md must run unchanged, and print the figures of the page.
func TestScheduleExampleOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]string{"cluster.toml": "```toml\n", "jobs.csv": "```\nname,kind,"} {
		_, rest, found := strings.Cut(string(page), block)
		text, _, closed := strings.Cut(rest, "```")
		if !found || !closed {
			t.Fatalf("docs/scheduling.md: got no block %q", block)
		}
		if name == "jobs.csv" {
			text = "name,kind," + text
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	run := func(command string, more ...string) string {
		if !strings.Contains(string(page), "\n./hetero-train "+command+"\n") {
			t.Fatalf("docs/scheduling.md: got no command %q", command)
		}
		o := execute(append(strings.Fields(command), more...))
		if o.code != 0 {
			t.Fatalf("%s: got exit code %d and %q", command, o.code, o.stderr)
		}
		return o.stdout
	}
	table, _, _ := strings.Cut(run("schedule compare --input cluster.toml --input jobs.csv --default jobs.network=0"+
		" --policy fcfs,srpt,gang,dqn", "--device", "reference"), "\n\n")
	_, after, _ := strings.Cut(run("schedule ingest cluster.toml jobs.csv"), "\njob  ")
	jobs, _, _ := strings.Cut(after, "\n\n")
	for name, change := range map[string][]string{"cluster.toml": {`gpu_type = "V100"`, `gpu_type = "V101"`},
		"jobs.csv": {"GiB,0.9", "GiB,7", "3 min", "30 s"}} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(change); i += 2 {
			text = bytes.Replace(text, []byte(change[i]), []byte(change[i+1]), 1)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	faulty := execute([]string{"schedule", "ingest", "cluster.toml", "jobs.csv"})
	faults := strings.ReplaceAll(
		strings.TrimSpace(strings.TrimPrefix(faulty.stderr, "hetero-train: error: schedule ingest: ")), "\n  ", "\n")
	if faulty.code != 3 || strings.Count(faults, "\n") != 2 {
		t.Errorf("faulty files: got exit code %d and %q, want 3 faults", faulty.code, faulty.stderr)
	}
	for _, want := range []string{table, "job  " + jobs, faults} {
		for _, line := range strings.Split(want, "\n") {
			if !strings.Contains(string(page), "\n"+strings.TrimRight(line, " ")+"\n") {
				t.Errorf("docs/scheduling.md: got no line %q", line)
			}
		}
	}
}
