package slurm

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
)

// fake puts shell scripts with these names at the start of PATH.
func fake(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return dir
}

func data(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return "cat " + path + "\n"
}

// The files contain the output of Slurm 22.05.8 for four nodes and seven jobs, reduced to the fields that this package
// reads. The files of 23.11 state the same facts in the notation of data parser v0.0.40.
func TestRead(t *testing.T) {
	for _, version := range []struct {
		release string
		scripts map[string]string
	}{
		{"22.05.8", map[string]string{
			"squeue":   data(t, "squeue-22.05.json"),
			"scontrol": "echo \"scontrol: unrecognized option '--json'\" >&2; exit 1\n",
			"sinfo":    data(t, "sinfo-22.05.json")}},
		{"23.11.4", map[string]string{
			"squeue":   data(t, "squeue-23.11.json"),
			"scontrol": data(t, "scontrol-23.11.json"),
			"sinfo":    "exit 9\n"}},
	} {
		t.Run(version.release, func(t *testing.T) {
			fake(t, version.scripts)
			s, err := new(Client).Read(context.Background(), 1795413100)
			if err != nil {
				t.Fatal(err)
			}
			if s.System != "Slurm "+version.release || len(s.Nodes) != 4 || len(s.Jobs) != 7 {
				t.Fatalf("got %s with %d nodes and %d jobs, want 4 and 7", s.System, len(s.Nodes), len(s.Jobs))
			}
			turing := s.Nodes[slices.IndexFunc(s.Nodes, func(n jobqueue.Node) bool { return n.Name == "turing1" })]
			want := jobqueue.Node{Name: "turing1", GPUs: []jobqueue.GPUs{{Type: "t4", Total: 4, Used: 3}}, CPUs: 16,
				UsedCPUs: 1,
				Memory:   64000 << 20, UsedMemory: 64000 << 20, Labels: []string{"turing", "partition main"}}
			if !reflect.DeepEqual(turing, want) {
				t.Errorf("node: got %+v\nwant %+v", turing, want)
			}
			jobs := map[string]jobqueue.Job{}
			for _, j := range s.Jobs {
				jobs[j.Name] = j
			}
			resnet := jobqueue.Job{ID: "1", Name: "resnet", Phase: jobqueue.Active, Submitted: 1795413003,
				Started: 1795413003, Limit: 3600,
				Urgency: 4294901759, GPUs: 4, GPUType: "v100", CPUs: 1, Memory: 62.5 * (1 << 30),
				Requires: []string{"partition main"},
				On:       []string{"volta1"}, Holds: [][]jobqueue.GPUs{{{Type: "v100", Total: 4}}}, Nodes: 1,
				Kind: "ResNet-50 (batch size 64)", Work: 1000}
			if !reflect.DeepEqual(jobs["resnet"], resnet) {
				t.Errorf("job: got %+v\nwant %+v", jobs["resnet"], resnet)
			}
			big := jobqueue.Job{ID: "4", Name: "big", Submitted: 1795413003, Limit: math.Inf(1), Urgency: 4294901756,
				GPUs: 9, CPUs: 3, Nodes: 3,
				Memory: 187.5 * (1 << 30), Requires: []string{"partition main"},
				Skip: "the job does not opt in: want a comment with hetero-train:"}
			if !reflect.DeepEqual(jobs["big"], big) {
				t.Errorf("job: got %+v\nwant %+v", jobs["big"], big)
			}
			wide := jobs["wide"]
			if wide.GPUs != 6 || wide.Nodes != 2 || !slices.Equal(wide.On, []string{"radeon1", "turing1"}) ||
				wide.Holds[1][0] != (jobqueue.GPUs{Type: "t4", Total: 3}) {
				t.Errorf("job on two nodes: got %+v", wide)
			}
			for name, part := range map[string]string{
				"held": "does not opt in", "another": "already requires nodes volta2", "arr": "job array"} {
				if !strings.Contains(jobs[name].Skip, part) {
					t.Errorf("job %s: got reason %q, want one with %q", name, jobs[name].Skip, part)
				}
			}
		})
	}
}

func TestFailures(t *testing.T) {
	ok := data(t, "squeue-22.05.json")
	for name, c := range map[string]struct {
		scripts map[string]string
		want    string
	}{
		"no Slurm": {nil, "squeue: the program is not in PATH"},
		"controller down": {
			map[string]string{
				"squeue": "echo note >&2; echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1\n"},
			"squeue --json: slurm_load_jobs error: Unable to contact slurm controller"},
		"no list of jobs": {map[string]string{"squeue": "echo '{}'\n"}, "got no list of jobs"},
		"error in JSON": {
			map[string]string{
				"squeue": "echo '{\"jobs\":[],\"errors\":[{\"error\":\"Zero Bytes were transmitted\"}]}'\n"},
			"Slurm reports an error: Zero Bytes were transmitted"},
		"many GPUs": {
			map[string]string{
				"squeue": ok, "scontrol": "echo '{\"nodes\":[{\"name\":\"a\",\"gres\":\"gpu:v:99999999999\"}]}'\n"},
			"at most 1048576"},
		"text": {map[string]string{"squeue": "echo JOBID\n"}, "want JSON from Slurm"},
		"nodes twice wrong": {map[string]string{"squeue": ok, "scontrol": "exit 1\n", "sinfo": "exit 2\n"},
			"sinfo --json: exit status 2"},
		"no nodes": {map[string]string{"squeue": ok, "scontrol": "echo '{\"nodes\":[]}'\n"}, "got no nodes"},
		"damaged GPUs": {
			map[string]string{
				"squeue": ok, "scontrol": "echo '{\"nodes\":[{\"name\":\"a\",\"gres\":\"gpu:x:y:1\"}]}'\n"},
			`node a: GPUs "gpu:x:y:1"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := fake(t, c.scripts)
			if c.scripts == nil {
				t.Setenv("PATH", dir)
			}
			_, err := new(Client).Read(context.Background(), 0)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		fake(t, map[string]string{"squeue": "exec sleep 100\n"})
		ctx, cancel := context.WithCancelCause(context.Background())
		why := errors.New("stopped")
		cancel(why)
		if _, err := new(Client).Read(ctx, 0); !errors.Is(err, why) {
			t.Errorf("got error %v, want %v", err, why)
		}
	})
}

func TestParseGRES(t *testing.T) {
	for text, want := range map[string][]gpus{
		"":                                    nil,
		"(null)":                              nil,
		"gpu":                                 {{"", 1}},
		"gpu:4":                               {{"", 4}},
		"gres:gpu:2":                          {{"", 2}},
		"gres/gpu=3":                          {{"", 3}},
		"gres/gpu:a100=8":                     {{"a100", 8}},
		"gpu:v100:4(S:0-1),shard:v100:16":     {{"v100", 4}},
		"gpu:v100:2(IDX:0,3),gpu:t4:1(IDX:1)": {{"v100", 2}, {"t4", 1}},
		"gpu:a100_3g.20gb:2":                  {{"a100_3g.20gb", 2}},
		"license:matlab:1":                    nil,
	} {
		if got, err := parseGRES(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestExpand(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "volta1": "volta1", "volta[1-3]": "volta1 volta2 volta3",
		"gpu[008-010,12],login": "gpu008 gpu009 gpu010 gpu12 login",
		"a[1-2]-ib,b3":          "a1-ib a2-ib b3",
	} {
		if got := strings.Join(expand(text), " "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestNodeStates(t *testing.T) {
	for _, c := range []struct {
		state words
		down  bool
	}{
		{words{"idle"}, false}, {words{"MIXED", "CLOUD"}, false}, {words{"idle~"}, false}, {words{"idle*"}, true},
		{words{"ALLOCATED", "DRAIN"}, true},
		{words{"down"}, true}, {words{"IDLE", "NOT_RESPONDING"}, true}, {words{"IDLE", "PLANNED"}, false},
		{words{"down*"}, true},
	} {
		n := node{Name: "a", State: c.state, Reason: "fan"}
		got, err := n.node()
		if err != nil || (got.Down != "") != c.down || c.down && !strings.HasSuffix(got.Down, ": fan") {
			t.Errorf("%v: got %q, %v, want down %v", c.state, got.Down, err, c.down)
		}
	}
}

func TestApply(t *testing.T) {
	dir := fake(t, map[string]string{"scontrol": "echo \"$@\" >> $(dirname $0)/calls; case $2 in *=9) echo 'Invalid node name specified for job 9' >&2; exit 1;; esac\n"})
	client := Client{}
	if err := client.Apply(context.Background(),
		jobqueue.Placement{Job: "7", Nodes: []string{"volta1", "volta2"}}); err != nil {
		t.Fatal(err)
	}
	err := client.Apply(context.Background(), jobqueue.Placement{Job: "9", Nodes: []string{"volta1"}})
	if err == nil || !strings.Contains(err.Error(), "Invalid node name specified for job 9") {
		t.Errorf("refused update: got error %v", err)
	}
	for _, nodes := range [][]string{nil, {"a b"}, {"-x"}, {"a,b"}} {
		if err := client.Apply(context.Background(), jobqueue.Placement{Job: "8", Nodes: nodes}); err == nil {
			t.Errorf("nodes %q: got no error", nodes)
		}
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if want := "update JobId=7 ReqNodeList=volta1,volta2\nupdate JobId=9 ReqNodeList=volta1\n"; err != nil ||
		string(calls) != want {
		t.Errorf("got calls %q, %v, want %q", calls, err, want)
	}
}

func FuzzSnapshot(f *testing.F) {
	for _, name := range []string{"squeue-22.05.json", "squeue-23.11.json", "sinfo-22.05.json", "scontrol-23.11.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"jobs":[{"job_state":"PENDING","tres_per_job":"gpu:9999999999999999999","node_count":1e300,"nodes":"a[1-99999999]"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := parse("fuzz", text)
		if err != nil {
			return
		}
		s, err := new(Client).snapshot(a, a, 0)
		if err != nil {
			return
		}
		for _, j := range s.Jobs {
			if j.Skip == "" && (j.GPUs < 1 || j.Nodes < 0) {
				t.Errorf("job %+v has no GPUs", j)
			}
		}
	})
}

func TestComments(t *testing.T) {
	for _, c := range []struct {
		comment, kind string
		work          float64
		skip          string
	}{
		{"", "", 0, "does not opt in"}, {"nightly", "", 0, "does not opt in"}, {"hetero-train:", "", 0, ""},
		{"mine; hetero-train: ", "", 0, ""}, {"hetero-train: kind=LM (batch size 5)", "LM (batch size 5)", 0, ""},
		{"hetero-train: kind=LM; steps=5e4", "LM", 5e4, ""},
		{"hetero-train: kind=LM; steps=-4", "LM", -4, "steps: got -4"},
		{"hetero-train: kind=LM; steps=1e308", "LM", 1e308, "at most 1e+15"},
		{"hetero-train: kind=LM; foo=1", "", 0, "the comment of the job is invalid"},
	} {
		j := job{ID: 1, State: words{"PENDING"}, TRESPerJob: "gpu:1", NodeCount: 1, Comment: c.comment}
		got, ok := j.job()
		if !ok || got.Kind != c.kind || got.Work != c.work || !strings.Contains(got.Skip, c.skip) ||
			(got.Skip == "") != (c.skip == "") {
			t.Errorf("%q: got %+v", c.comment, got)
		}
	}
}
