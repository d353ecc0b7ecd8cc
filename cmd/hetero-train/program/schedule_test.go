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

// gavelFiles writes a small table of speeds and traces in Gavel's form.
func gavelFiles(t *testing.T, trace string) (speeds, jobs string) {
	t.Helper()
	dir := t.TempDir()
	speeds, jobs = filepath.Join(dir, "speeds.json"), filepath.Join(dir, "a.trace")
	for path, text := range map[string]string{
		speeds: `{"v100": {"('LM (batch size 5)', 1)": {"null": 10}, "('LM (batch size 5)', 2)": {"null": 18}}, "k80": {"('LM (batch size 5)', 1)": {"null": 2}, "('LM (batch size 5)', 2)": {"null": 3.5}}}`,
		jobs:   trace,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return speeds, jobs
}

const goodTrace = "LM (batch size 5)\tpython3 main.py\t--steps\t1\t1000\t0.0\t1\n" +
	"LM (batch size 5)\tpython3 main.py\t--steps\t1\t5000\t10.0\t2\n" +
	"LM (batch size 5)\tpython3 main.py\t--steps\t1\t100\t20.0\t1\n"

func TestScheduleRefusesBadInput(t *testing.T) {
	speeds, trace := gavelFiles(t, goodTrace)
	file := func(text string) string { _, path := gavelFiles(t, text); return path }
	gavel := func(speeds, trace, gpus string) []string {
		return []string{"simulate", "--speeds", speeds, "--trace", trace, "--gpus", gpus}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"simulate", "--policy", "best"}, 2, `--policy: unknown policy: got "best"`},
		{[]string{"simulate", "--jobs", "0"}, 2, "--jobs: got 0, want 1 to 1000000"},
		{[]string{"simulate", "--jobs", "99999999999"}, 2, "--jobs: got 99999999999, want 1 to 1000000"},
		{[]string{"compare", "--csv", os.DevNull}, 2, "got a device, want a regular file or a new one"},
		{[]string{"simulate", "--load", "-1"}, 2, "load: got -1, want a number from 1e-6 to 1e6"},
		{[]string{"simulate", "--load", "x"}, 2,
			`--load: got "x", want a number; hetero-train schedule simulate --help`},
		{[]string{"simulate", "--seed", "-1"}, 2, `--seed: got "-1", want an integer of at least 0;`},
		{[]string{"simulate", "--jobs", "99999999999999999999"}, 2,
			`--jobs: got "99999999999999999999", want an integer that fits into 64 bits;`},
		{[]string{"simulate", "--load", "1e-300"}, 2, "load: got 1e-300, want a number from 1e-6 to 1e6"},
		{[]string{"simulate", "--surge", "0.5"}, 2, "factor of the surge: got 0.5, want a number from 1 to 1e6"},
		{[]string{"simulate", "--gantt", "a.pdf"}, 2, "want a name that ends in .png or .svg"},
		{[]string{"simulate", "-c", "missing.toml"}, 2, "-c missing.toml cannot be used with this command"},
		{[]string{"simulate", "--trace", trace}, 2, "want all three or none"},
		{[]string{"compare", "--seeds", "0"}, 2, "--seeds: got 0"},
		{[]string{"compare", "--seed", "18446744073709551615", "--seeds", "2"}, 2,
			"--seed: got 18446744073709551615 with --seeds 2, want at most 18446744073709551614"},
		{[]string{"compare", "--policy", "srf,srf"}, 2, "got srf twice"},
		{[]string{"simulate", "--change", "4volta@3"}, 2, "want +COUNTtype@SECONDS"},
		{[]string{"simulate", "--change", "-4hopper@3"}, 2,
			`no type of GPU "hopper"; want one of volta, turing, radeon`},
		{[]string{"simulate", "--change", "-4turng@3"}, 2, `no type of GPU "turng"; want one of volta, turing, radeon`},
		{[]string{"simulate", "--change", "-4volta@-3"}, 2, "got a time of -3 s, want a number from 0 to 1e+15"},
		{[]string{"simulate", "--change", "-4volta@1e999"}, 2, "got a time of 1e999 s, want a number from 0 to 1e+15"},
		{[]string{"simulate", "--change", "-0volta@3"}, 2, "got 0 GPUs, want at least 1"},
		{[]string{"simulate", "--network", "net"}, 2, "--network has no effect without policy dqn: got --policy gang"},
		{[]string{"explain", "--job", "job-1", "--device", "cpu"}, 2,
			"--device has no effect without policy dqn: got --policy gang"},
		{[]string{"compare", "--policy", "srf", "--device", "cpu"}, 2,
			"--device has no effect without policy dqn: got --policy fcfs,srf"},
		{[]string{"simulate", "--policy", "dqn", "--device", "reference", "--network", "nope"}, 2,
			"the folder nope does not exist"},
		{[]string{"simulate", "--policy", "dqn", "--device", "reference", "--network", trace}, 2, "want a folder"},
		{[]string{"simulate", "--jobs", "20", "--policy", "static", "--change", "-8volta@3"}, 1, `to type "volta", which has no GPU left; add GPUs with --change +COUNTtype@SECONDS, or choose another policy`},
		{[]string{"explain", "--job", "job-1", "--jobs", "20", "--policy", "static", "--change", "-8volta@3"}, 1,
			`to type "volta", which has no GPU left; add GPUs`},
		{[]string{"compare", "--policy", "srf", "--jobs", "20", "--change", "-8volta@3", "--change", "-4radeon@4",
			"--change", "-4turing@5", "--change", "+1volta@9"}, 1,
			"cannot leave out policy fcfs, because all ratios refer to this policy"},
		{[]string{"simulate", "--change", "-9volta@3"}, 2,
			"got 9 GPUs of type volta, but the cluster has 8 at this time"},
		{[]string{"simulate", "--change", "+1volta@3"}, 2, "got 1 GPU of type volta, but earlier changes removed 0"},
		{[]string{"simulate", "--burst", "0"}, 2, "--burst and --surge: got 0 and 1, want numbers from 1 to 1e6"},
		{[]string{"compare", "--csv", filepath.Join(trace, "a.csv")}, 7, "--csv: folder of the file: got " + trace +
			", which is no folder"},
		{append(gavel(speeds, trace, "v100=4"), "--trace", trace), 2, "--trace: got " + trace +
			" twice, want each file once"},
		{[]string{"simulate", "--change", "-1volta@3", "--change", "+1volta@2"}, 2,
			"got a change at 2 s after a change at 3 s, want changes in chronological order"},
		{[]string{"simulate", "--change", "-8volta@3", "--change", "-4radeon@4", "--change", "-4turing@5"}, 1,
			"0 of 16 GPUs are available; the first job, "},
		{[]string{"simulate", "--jobs", "20", "--change", "-8volta@3", "--change", "-4radeon@4", "--change",
			"-4turing@5", "--change", "+1volta@9"}, 1, "1 of 16 GPUs are available; the first job, "},
		{gavel("missing.json", trace, "v100=4"), 2, "missing.json"},
		{gavel(trace, trace, "v100=4"), 3, "not a JSON object of GPU types"},
		// All faults of both files.
		{gavel(trace, file(strings.Replace(goodTrace, "20.0", "5.0", 1)), "v100=4"), 3,
			"not a JSON object of GPU types"},
		{gavel(trace, file(strings.Replace(goodTrace, "20.0", "5.0", 1)), "v100=4"), 3, "jobs in the order of arrival"},
		{gavel(speeds, file("LM (batch size 5)\tx\t-n\t1\t0\t0\t1\n"), "v100=4"), 3,
			"steps: got \"0\", want an integer from 1 to 4503599627370495"},
		{gavel(speeds, trace, "v100"), 2, "want TYPE=COUNT"},
		{gavel(speeds, trace, "v100=4,k80=2,v100=8"), 2,
			"--gpus: got type v100 with 4 GPUs per machine twice, want it once with the sum of the GPUs"},
		{gavel(speeds, trace, "h100=4"), 2, "unknown type of GPU: got \"h100\", want one of v100, k80"},
		{gavel(speeds, file(strings.TrimSuffix(goodTrace, "\n")), "v100=4"), 3, "want a complete file"},
		{gavel(speeds, file(strings.Replace(goodTrace, "20.0", "5.0", 1)), "v100=4"), 3,
			"jobs in the order of arrival"},
		{gavel(speeds, file(strings.Replace(goodTrace, "20.0", "-5.0", 1)), "v100=4"), 3,
			"a finite number of seconds, at least 0"},
		{gavel(speeds, file(strings.Replace(goodTrace, "LM", "LN", 1)), "v100=4"), 3,
			`the nearest is "LM (batch size 5)"`},
		{gavel(speeds, file("LM (batch size 5)\tx\t-n\t1\t100\t0\t8\n"), "v100=4"), 3,
			"the cluster can hold none of the 1 jobs"},
		{append(gavel(speeds, trace, "v100=4"), "--jobs", "5"), 2, "got --jobs with --trace"},
		{[]string{"simulate", "--default", "jobs.cpus=4"}, 2, "--default needs --input"},
		{[]string{"advise"}, 2, "want exactly one of --slurm and --kubernetes"},
		{[]string{"advise", "--slurm", "--speeds", trace}, 2, "ends with .toml, .csv, .jsonl or .ndjson"},
		{[]string{"advise", "--slurm", "--policy", "maxmin"}, 2, "does not support this setting"},
		{[]string{"advise", "--slurm", "--namespace", "ml"}, 2, "no effect without --kubernetes"},
		{[]string{"advise", "--slurm", "--changes-per-hour", "5"}, 2, "--changes-per-hour has no effect without --apply"},
		{[]string{"advise", "--slurm", "--apply", "--changes-per-hour", "0"}, 2, "got 0, want 1 to 1000000"},
		{[]string{"advise", "undo"}, 2, "want exactly one of --slurm and --kubernetes"},
		{[]string{"simulate", "--estimate-error", "-1"}, 2, "--estimate-error: got -1, want a number from 0 to 5"},
		{[]string{"simulate", "--estimates", "guess"}, 2, `--estimates: got "guess", want stated, history or censored`},
		{[]string{"compare", "--estimates", "history"}, 2, "--estimates has no effect, because the policies know the exact work"},
		{[]string{"compare", "--baseline", "easy,best"}, 2, `--baseline: unknown policy: got "best"`},
		{[]string{"compare", "--price", "volta=1"}, 2, "got no price of type turing"},
		{[]string{"simulate", "--price", "hopper=1"}, 2, `--price: unknown type of GPU: got "hopper"`},
		{[]string{"simulate", "--price", "volta=x"}, 2, `--price: got "volta=x", want TYPE=NUMBER`},
	} {
		o := execute(append([]string{"schedule"}, c.args...))
		if o.code != c.code || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%q: got exit code %d and %q, want %d and %q", c.args, o.code, o.stderr, c.code, c.want)
		}
		if o.stdout != "" {
			t.Errorf("%q: got output %q, want none", c.args, o.stdout)
		}
	}
}

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
	// 1000 steps at 10 steps/s; then 5000 steps at 18 steps/s on both GPUs; the third job waits for the second.
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

// inputFiles writes a cluster of two types with speeds as TOML, and jobs that lack figures as CSV.
func inputFiles(t *testing.T, jobs string) (cluster, list string) {
	t.Helper()
	dir := t.TempDir()
	cluster, list = filepath.Join(dir, "cluster.toml"), filepath.Join(dir, "jobs.csv")
	text := ""
	for _, typ := range []string{"V100", "T4"} {
		text += `[[gpu_types]]
name = "` + typ + `"
memory = "16 GiB"
[[machines]]
name = "` + strings.ToLower(typ) + `"
cpus = 8
memory = "64 GiB"
gpu_type = "` + typ + `"
gpus = 2
`
	}
	text += `[[kinds]]
name = "LM"
class = "learning"
gpu_memory = "9 GiB"
save = 0
load = 0
`
	for _, line := range []string{`"V100"|1|10`, `"V100"|2|18`, `"T4"|1|4`, `"T4"|2|7`} {
		f := strings.Split(line, "|")
		text += "[[speeds]]\nkind = \"LM\"\ngpu_type = " + f[0] + "\ngpus = " + f[1] + "\nspeed = " + f[2] + "\n"
	}
	for path, text := range map[string]string{cluster: text, list: jobs} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return cluster, list
}

// twoJobs is a list of two jobs without the optional figures.
const twoJobs = "name,kind,arrival,work,gpus\nfirst,LM,0,1800,2\nsecond,LM,10 s,700,2\n"

func TestScheduleReadsTables(t *testing.T) {
	cluster, jobs := inputFiles(t, twoJobs)
	given := []string{"--default", "jobs.cpus=1", "--default", "jobs.memory=1 GiB", "--default", "jobs.network=0",
		"--default", "jobs.priority=0.5"}
	all := append([]string{"schedule", "simulate", "--policy", "fcfs", "--input", cluster, "--input", jobs, "--json"},
		given...)
	o := execute(all)
	var r struct {
		Jobs []struct {
			Name   string  `json:"name"`
			Finish float64 `json:"finish_s"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &r); o.code != 0 || err != nil {
		t.Fatalf("got exit code %d, %v, %q", o.code, err, o.stderr)
	}
	// The first job runs on both V100 GPUs at 18 steps/s, the second on both T4 GPUs at 7 steps/s.
	if len(r.Jobs) != 2 || r.Jobs[0].Name != "first" || r.Jobs[0].Finish != 100 || r.Jobs[1].Finish != 110 {
		t.Errorf("got %+v", r.Jobs)
	}
	if o := execute(append([]string{"schedule", "compare", "--policy", "srf", "--input", cluster, "--input",
		"jobs=" + jobs}, given...)); o.code != 0 || !strings.Contains(o.stdout, "\n1 list of jobs\n") {
		t.Errorf("compare: got exit code %d, %q, %q", o.code, o.stdout, o.stderr)
	}
	with := func(jobs string, more ...string) []string {
		cluster, list := inputFiles(t, jobs)
		return append([]string{"--input", cluster, "--input", list}, more...)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{with(twoJobs), 3, "jobs.cpus: missing in 2 of 2 rows"},
		{with(strings.TrimSuffix(twoJobs, "\n")), 3, "jobs.csv:3: last line: got no line end"},
		{with(strings.Replace(twoJobs, "10 s", "-1", 1)), 3, "jobs.csv:3: job \"second\": arrival"},
		{with(strings.Replace(twoJobs, "LM", "LN", 1)), 3, `the nearest is "LM"`},
		{with(strings.Replace(twoJobs, "700,2", "700,9", 1), given...), 3,
			"jobs.csv:3: job 1 (\"second\") fits on no GPUs"},
		{with(twoJobs, append(given, "--default", "kinds.save=1")...), 2, "no row lacks this figure"},
		{with(twoJobs, append(given, "--default", "jobs.cpus=2")...), 2, "got jobs.cpus twice"},
		{with(twoJobs, "--default", "jobs.priority=7"), 2, "from 0 to 1"},
		{with(strings.Replace(twoJobs, "second", "first", 1)), 3,
			"jobs.csv:3: job \"first\": got a second definition, want unique names: the first definition is at "},
		// One message contains all faults: a missing figure, and a job that does not fit.
		{with(strings.Replace(twoJobs, "700,2", "700,9", 1)), 3, "--default jobs.cpus=NUMBER"},
		{with(strings.Replace(twoJobs, "700,2", "700,9", 1)), 3, "jobs.csv:3: job 1 (\"second\") fits on no GPUs"},
		{with(twoJobs, "--default", "jobs.size=7", "--default", "jobs.priority=7"), 2, "want TABLE.COLUMN=NUMBER"},
		{with(twoJobs, "--default", "jobs.size=7", "--default", "jobs.priority=7"), 2, "from 0 to 1"},
		{with(twoJobs, "--input", "missing.toml", "--input", "gone.toml"), 2, "gone.toml"},
		{with(twoJobs, "--input", "missing.toml", "--input", "gone.toml"), 2, "missing.toml"},
		{with(twoJobs, "--load", "0.5"), 2, "got --load with --input"},
		{with(twoJobs, "--gpus", "v100=4"), 2, "got --gpus with --input"},
		{with(twoJobs, "--input", "other.csv"), 2, "want TABLE=FILE"},
		{with(twoJobs, "--input", "jobs=a.toml"), 2, "a table before a file that is not CSV"},
		{with(twoJobs, "--input", "missing.toml"), 2, "missing.toml"},
		{[]string{"--input", jobs, "--input", jobs}, 2, "twice"},
	} {
		o := execute(append([]string{"schedule", "simulate"}, c.args...))
		if o.code != c.code || !strings.Contains(o.stderr, c.want) || o.stdout != "" {
			t.Errorf("%q: got exit code %d, %q and %q, want %d and %q", c.args, o.code, o.stdout, o.stderr, c.code,
				c.want)
		}
	}
}

func TestScheduleIngestPrintsNormalisedFigures(t *testing.T) {
	cluster, jobs := inputFiles(t, twoJobs)
	ranges := filepath.Join(t.TempDir(), "ranges.json")
	o := execute([]string{"schedule", "ingest", cluster, jobs, "--default", "jobs.cpus=4", "--ranges", "extremes",
		"--save-ranges", ranges, "--json"})
	type fact struct{ Value, Normalised *float64 }
	var d struct {
		GPUs, Jobs []struct {
			Name, Of string
			Facts    map[string]fact
		}
		Speeds []struct {
			Kind    string
			GPUType string  `json:"gpu_type"`
			Speed   float64 `json:"speed_steps_per_s"`
		}
		Ranges []struct {
			Fact, Origin string
			Low, High    float64
		}
		Missing, Given []struct {
			Table, Column string
			Rows, Of      int
			Needed        bool
		}
		Simulation string
	}
	if err := json.Unmarshal([]byte(o.stdout), &d); o.code != 0 || err != nil {
		t.Fatalf("got exit code %d, %v, %q", o.code, err, o.stderr)
	}
	if len(d.GPUs) != 4 || d.GPUs[2].Name != "t4/0" || d.GPUs[2].Of != "T4" || len(d.Speeds) != 4 ||
		d.Speeds[3].Speed != 7 || len(d.Jobs) != 2 {
		t.Fatalf("got %s", o.stdout)
	}
	work, cpus, memory := d.Jobs[0].Facts["job.work"], d.Jobs[1].Facts["job.cpus"], d.Jobs[1].Facts["job.memory"]
	if work.Value == nil || *work.Value != 1800 || *work.Normalised != 1 || cpus.Value == nil || *cpus.Value != 4 ||
		memory.Value != nil || memory.Normalised != nil {
		t.Errorf("got work %+v, CPUs %+v, memory %+v", work, cpus, memory)
	}
	learnt := false
	for _, r := range d.Ranges {
		learnt = learnt || r.Fact == "job.work" && r.Origin == "minimum and maximum" && r.Low == 700 && r.High == 1800
	}
	if !learnt || len(d.Given) != 1 || d.Given[0].Column != "cpus" || d.Given[0].Rows != 2 ||
		!strings.Contains(d.Simulation, "jobs.memory: missing in 2 of 2 rows") {
		t.Errorf("got ranges %+v, given %+v, simulation %q", d.Ranges, d.Given, d.Simulation)
	}
	text := execute([]string{"schedule", "ingest", cluster, "jobs=" + jobs, "--ranges", ranges, "--rows", "1"})
	for _, want := range []string{"GPUs: 4 | kinds: 1 | jobs: 2", "v100/0  V100  -", "16 GiB (0.32)", "1800 (1.00)",
		"1 more rows; --rows 0 prints all",
		"jobs.cpus: missing in 2 of 2 rows", "simulation: not possible: the simulator needs figures that are missing"} {
		if text.code != 0 || !strings.Contains(text.stdout, want) {
			t.Errorf("got exit code %d, %q, %q, want %q", text.code, text.stdout, text.stderr, want)
		}
	}
	speeds, trace := gavelFiles(t, goodTrace)
	gavel := execute([]string{"schedule", "ingest", "--speeds", speeds, "--trace", trace})
	for _, want := range []string{"types of GPUs: 2 | machines: 0 | GPUs: 0 | kinds: 1 | jobs: 3",
		"line 2  LM (batch size 5)  10 s", "gpu_types.memory: missing in 2 of 2 rows"} {
		if gavel.code != 0 || !strings.Contains(gavel.stdout, want) {
			t.Errorf("got exit code %d, %q, %q, want %q", gavel.code, gavel.stdout, gavel.stderr, want)
		}
	}
	profile := t.TempDir()
	if err := os.WriteFile(filepath.Join(profile, "gpu_profiles.json"), []byte(`{"schema_version": 2, "ranks": [{"host": "a", "device": {"name": "cpu:0", "model": "Xeon"}, "memory_bytes": 8589934592,
		"measured": {"tflops": 2, "memory": {"copy_gbytes_per_second": 100}}}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if o := execute([]string{"schedule", "ingest", "--profile", profile}); o.code != 0 ||
		!strings.Contains(o.stdout, "a/0  Xeon") || !strings.Contains(o.stdout, "100 GB/s (0.00)") ||
		!strings.Contains(o.stdout, "machines.cpus: missing") {
		t.Errorf("--profile: got exit code %d, %q, %q", o.code, o.stdout, o.stderr)
	}
	times := filepath.Join(profile, "job_1_norm.csv")
	const measured = ",worker,gpu,time,batch_time_norm\n0,0,25,1,100\n1,1,25,1,200\n2,0,25,2,100\n3,1,25,2,220\n"
	if err := os.WriteFile(times, []byte(measured), 0o644); err != nil {
		t.Fatal(err)
	}
	// Medians 100 and 210; iterations 200/150 and 220/160.
	for _, want := range []string{"workers                                                          2",
		"median of the fastest             2.100", "mean of its workers, mean       1.354"} {
		if o := execute([]string{"schedule", "ingest", "--alibaba", times}); o.code != 0 ||
			!strings.Contains(o.stdout, want) {
			t.Errorf("--alibaba: got exit code %d, %q, %q, want %q", o.code, o.stdout, o.stderr, want)
		}
	}
	if o := execute([]string{"schedule", "ingest", "--alibaba", times, "--json"}); o.code != 0 ||
		!strings.Contains(o.stdout, `{"iterations":[{"file":`) {
		t.Errorf("--alibaba --json: got exit code %d, %q, %q", o.code, o.stdout, o.stderr)
	}
	if o := execute([]string{"schedule", "ingest", "--live"}); o.code == 6 && !strings.Contains(o.stderr,
		"got no GPU") || o.code != 6 && (o.code != 0 || !strings.Contains(o.stdout, "gpu.memory")) {
		t.Errorf("--live: got exit code %d, %q, %q", o.code, o.stdout, o.stderr)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "got 0 inputs"},
		{[]string{cluster, "--live"}, 2, "got 2 inputs"},
		{[]string{"--trace", trace}, 2, "got 0 inputs"},
		{[]string{cluster, "--trace", trace}, 2, "--trace needs --speeds"},
		{[]string{cluster, "--rows", "-1"}, 2, "--rows: got -1"},
		{[]string{cluster, "--default", "jobs.size=1"}, 2, "want TABLE.COLUMN=NUMBER"},
		{[]string{cluster, "--ranges", "missing.json"}, 2, "missing.json"},
		{[]string{cluster, "--ranges", cluster}, 3, "one complete JSON object"},
		{[]string{cluster, "--save-ranges", filepath.Join(profile, "none", "r.json")}, 7, "/none: no such file"},
		{[]string{cluster, "--save-ranges", os.DevNull}, 2, "want a regular file or a new one"},
		{[]string{"--profile", filepath.Dir(cluster)}, 2, "gpu_profiles.json"},
		{[]string{"--speeds", trace}, 3, "not a JSON object of GPU types"},
		{[]string{jobs}, 3, "want a name that a row defines"},
		{[]string{"--alibaba", jobs}, 3, "jobs.csv:1: header: got "},
		{[]string{"--alibaba", jobs, "--alibaba", "missing.csv"}, 3, "missing.csv"},
		{[]string{"--alibaba", jobs, "--rows", "3"}, 2, "got --rows with --alibaba"},
		{[]string{"--alibaba", jobs, "--json", "--live"}, 2, "got --live with --alibaba"},
		{[]string{"--alibaba", "missing.csv", "--alibaba", "missing.csv"}, 2,
			"got missing.csv twice, want each file once"},
		{[]string{cluster, "--alibaba", jobs}, 2, "got 2 inputs"},
		{[]string{"--speeds", trace, "--trace", trace + "x"}, 3, "not a JSON object of GPU types"},
	} {
		o := execute(append([]string{"schedule", "ingest"}, c.args...))
		if o.code != c.code || !strings.Contains(o.stderr, c.want) || o.stdout != "" {
			t.Errorf("%q: got exit code %d, %q and %q, want %d and %q", c.args, o.code, o.stdout, o.stderr, c.code,
				c.want)
		}
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
	// A job that is stopped has several stays, each with its reasons.
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
	// Without Turing GPUs, jobs of policy static wait forever.
	if len(s.Rows) != len(scheduler.Names()) || len(s.Seeds) != 3 || len(s.Rows[0].Runs) != 3 ||
		!strings.Contains(o.stderr, "policy static is left out of the comparison: schedule compare: seed 1: policy static can start no waiting job") {
		t.Errorf("got %d policies and %d seeds, %q", len(s.Rows), len(s.Seeds), o.stderr)
	}
	text, err := os.ReadFile(runs)
	if lines := strings.Count(string(text), "\n"); err != nil || lines != 1+3*len(s.Rows) {
		t.Errorf("--csv: got %d lines, %v", lines, err)
	}
	// Policy dqn must accept a cluster of other GPUs than those on which its neural network was trained.
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

// The fake Slurm has one node with three free GPUs. Its queue has four pending jobs: the first waits for resources, the
// owner holds the second, an administrator holds the third, and the fourth does not opt in.
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
	t.Setenv("XDG_STATE_HOME", dir) // of the log of changes
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

// The example of docs/scheduling.md runs without changes, and prints the figures of the page.
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
	table, _, _ := strings.Cut(run("schedule compare --input cluster.toml --input jobs.csv --default jobs.network=0",
		"--device", "reference"), "\n\n")
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
