package program

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

// profileJSON is the output of profile --json.
type profileJSON struct {
	Ranks   profiles.Ranks  `json:"gpu_profiles"`
	Machine profiles.System `json:"system_profile"`
	Files   []string        `json:"files"`
}

// profiled runs profile on the reference device and returns its output.
func profiled(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	args = append([]string{"profile", "--quick", "--set", "device.kind=reference"}, args...)
	if code := runLine(t.Context(), args, session.Environment{Stdout: &out, Stderr: &log}); code != exit.Done {
		t.Fatalf("%v: exit code %d\n%s", args, code, &log)
	}
	return out.String(), log.String()
}

func TestProfileWritesBothFilesAndSaysSo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "profiles")
	var stdout, stderr string
	var got profileJSON
	for range 4 { // repeated: on a busy machine, the time of --quick can end before all measurements
		got = profileJSON{}
		stdout, stderr = profiled(t, "--json", "--output-dir", dir)
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || strings.Count(stdout, "\n") != 1 {
			t.Fatalf("got %v from %q, want one line of JSON", err, stdout)
		}
		if len(got.Ranks.Ranks) > 0 && len(got.Ranks.Ranks[0].Skipped) == 0 {
			break
		}
	}
	if want := []string{filepath.Join(dir, "gpu_profiles.json"),
		filepath.Join(dir, "system_profile.json")}; !slices.Equal(got.Files, want) {
		t.Errorf("got files %v, want %v", got.Files, want)
	}
	file, err := profiles.Load(filepath.Join(dir, profiles.RanksFile))
	if err != nil || !reflect.DeepEqual(*file, got.Ranks) {
		t.Errorf("the file holds %+v, %v, printed was %+v", file, err, got.Ranks)
	}
	r := got.Ranks.Ranks[0]
	if len(got.Ranks.Ranks) != 1 || r.Device.Kind != "reference" || r.Measured.DType != "f32" ||
		!(r.Measured.TFLOPS > 0) || !(r.Measured.Memory.Copy > 0) ||
		!(r.Measured.Copies.ToHost > 0) || !(r.ComputeScore > 0) || r.RelativeScore != 1 || r.MemoryBytes <= 0 ||
		!got.Ranks.Quick || len(r.Skipped) != 0 {
		t.Errorf("got %+v", got.Ranks)
	}
	h := got.Machine.Hosts
	if len(h) != 1 || !slices.Equal(h[0].Ranks, []int{0}) || h[0].CPU.Model == "" || !(h[0].TriadGBytes > 0) ||
		h[0].Output == nil || h[0].Output.Folder != dir ||
		(len(h[0].GPUs) == 0) == (h[0].NoGPU == "") || got.Machine.Fingerprint != got.Ranks.Fingerprint {
		t.Errorf("got %+v", got.Machine)
	}
	if !strings.Contains(stderr, "matrix products and memory bandwidth, in turns") {
		t.Errorf("progress: got %q", stderr)
	}
	j := compute.NewRank(nil, session.Options{})
	j.Device = reference.New()
	defer j.Device.Close()
	// The fingerprint includes the memory of the GPU, and the driver limits this memory.
	if id := j.DescribeItself(); id.DeviceType != r.DeviceType {
		t.Errorf("a run sees %+v, the profile has %q", id, r.DeviceType)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("the folder holds %v, %v, want the two files alone", left, err)
	}
}

func TestProfilePrintsATable(t *testing.T) {
	dir := t.TempDir()
	stdout, _ := profiled(t, "--set", "experiment.output_dir="+dir, "--set", "experiment.name=e")
	for _, want := range []string{"TFLOP/s", "Registered 1 nodes", "Node 0: Compute score ", "no model given",
		filepath.Join(dir, "e", "configs", "gpu_profiles.json")} {
		if !strings.Contains(stdout, want) {
			t.Errorf("got %s\nwant %q in it", stdout, want)
		}
	}
	if _, err := profiles.Load(filepath.Join(dir, "e", "configs", profiles.RanksFile)); err != nil {
		t.Error(err)
	}
}

func TestProfileRefusesWhatItCannotDo(t *testing.T) {
	file := clitest.WriteConfig(t, "no folder")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--set", "device.kind=null"}, exit.Usage, "computes no values"},
		{[]string{"--output-dir", ""}, exit.Usage, "--output-dir"},
		{[]string{"--set", "device.kind=reference", "--output-dir", filepath.Join(file, "x")}, exit.Usage,
			"not a directory"},
		{[]string{"more"}, exit.Usage, "takes no arguments"},
	} {
		var log bytes.Buffer
		code := runLine(t.Context(), append([]string{"profile", "--quick"}, c.args...),
			session.Environment{Stdout: new(bytes.Buffer), Stderr: &log})
		if code != c.code || !strings.Contains(log.String(), c.want) {
			t.Errorf("%v: got exit code %d and %s, want %d and %q", c.args, code, &log, c.code, c.want)
		}
	}
}

func TestRanksAreProfiledTogether(t *testing.T) {
	p, dir := buildRanks(t), t.TempDir()
	small := []string{"profile", "--quick", "--json", "--set", "device.kind=reference", "--output-dir", dir}
	check := func(name string, stdout []byte) {
		t.Helper()
		var got profileJSON
		if err := json.Unmarshal(stdout, &got); err != nil {
			t.Fatalf("%s: %v in %q", name, err, stdout)
		}
		if len(got.Ranks.Ranks) != 2 || got.Ranks.Ranks[1].Rank != 1 || got.Ranks.Ranks[1].LocalRank != 1 ||
			len(got.Machine.Hosts) != 1 || !slices.Equal(got.Machine.Hosts[0].Ranks, []int{0, 1}) {
			t.Errorf("%s: got %+v", name, got)
		}
		if links := got.Machine.Links; len(links) != 1 || links[0].Error != "" || !(links[0].AToB > 0) ||
			!(links[0].LatencySeconds > 0) {
			t.Errorf("%s: got links %+v", name, links)
		}
		if sums := got.Machine.AllReduce; len(sums) == 0 || !(sums[0].BusGBytes > 0) {
			t.Errorf("%s: got all-reduce %+v", name, sums)
		}
	}
	// Repeated, because on a busy machine the time of --quick can end before the links are measured.
	patiently := func(run func() []byte) (stdout []byte) {
		for range 4 {
			var got profileJSON
			stdout = run()
			if json.Unmarshal(stdout, &got) == nil && len(got.Machine.Links) > 0 && len(got.Machine.AllReduce) > 0 {
				break
			}
		}
		return stdout
	}
	var log bytes.Buffer
	check("started by this program", patiently(func() []byte {
		started := exec.Command(p.path, append(small, "--nproc-per-node", "2")...)
		started.Stderr = &log
		stdout, err := started.Output()
		if err != nil {
			t.Fatalf("started by this program: %v\n%s", err, &log)
		}
		return stdout
	}))

	check("started by a launcher", patiently(func() []byte {
		port := porttest.Free(t)
		other := asRank(exec.Command(p.path, small...), 1, 2, port)
		other.Stderr = &log
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		stdout, err := asRank(exec.Command(p.path, small...), 0, 2, port).Output()
		if err != nil {
			t.Fatalf("rank 0: %v\n%s", err, &log)
		}
		if err := other.Wait(); err != nil {
			t.Fatalf("rank 1: %v\n%s", err, &log)
		}
		return stdout
	}))
}

func TestAProfileThatIsMissingIsAnErrorForOneRankToo(t *testing.T) {
	p, dir := buildRanks(t), t.TempDir()
	for _, ranks := range []string{"1", "2"} {
		e := finish(t, p.command(dir, "train.steps=2", "parallel.ranks="+ranks, "profile.gpu_profiles=nofile"), 0)
		e.check(t, exit.Usage, "profile.gpu_profiles: hardware profile: open nofile")
	}
}
