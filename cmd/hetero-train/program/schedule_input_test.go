package program

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// gavelFiles writes a small table of speeds and a trace in Gavel's format, and returns their paths.
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
		// The error must contain all faults of both files.
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
	t.Parallel()
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
		// One message must contain all faults: a missing figure, and a job that does not fit.
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
	// The medians are 100 and 210. The iterations have the ratios 200/150 and 220/160.
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
