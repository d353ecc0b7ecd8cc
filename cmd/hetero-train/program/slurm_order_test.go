package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// Command schedule advise --slurm --nice gives the jobs of a real Slurm the order of a policy, and undo reverts it.
func TestScheduleOrdersARealSlurm(t *testing.T) {
	// A change of a priority also starts the scheduler, so a second interval, in us, must keep it from starting jobs.
	startSlurm(t, "defer,sched_interval=3600,sched_min_interval=2000000000")
	var jobs []string
	// Policy srf starts the second job first, because it is shorter. The last job does not opt in.
	for _, args := range [][]string{{"--gres=gpu:2", "--comment", "hetero-train: kind=LM; steps=900"},
		{"--gres=gpu:1", "--comment", "hetero-train: kind=LM; steps=9"}, {"--gres=gpu:1"}} {
		out, err := exec.Command("sbatch", append([]string{"--parsable", "--output", os.DevNull, "--wrap", "sleep 300"},
			args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		jobs = append(jobs, strings.TrimSpace(string(out)))
	}
	ranks := func() (priority []int, nice string) {
		t.Helper()
		for _, job := range jobs {
			out, err := exec.Command("scontrol", "show", "job", job).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			found := regexp.MustCompile(`Priority=(\d+) Nice=(-?\d+)`).FindStringSubmatch(string(out))
			if found == nil || !strings.Contains(string(out), "ReqNodeList=(null)") {
				t.Fatalf("job %s: got no priority, or a node list\n%s", job, out)
			}
			n, _ := strconv.Atoi(found[1])
			priority, nice = append(priority, n), nice+found[2]+" "
		}
		return priority, nice
	}
	before, zero := ranks()
	if zero != "0 0 0 " || !(before[0] > before[1] && before[1] > before[2]) {
		t.Fatalf("got priorities %v and nice values %q, want the order of submission", before, zero)
	}
	log := filepath.Join(t.TempDir(), "changes.jsonl")
	speeds := filepath.Join(t.TempDir(), "speeds.toml")
	if err := os.WriteFile(speeds, []byte(orderSpeeds), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"schedule", "advise", "--slurm", "--nice", "--policy", "srf", "--speeds", speeds}
	step := before[0] - before[1]
	for _, apply := range []bool{false, true} {
		says := "can get the nice value"
		if apply {
			args, says = append(args, "--apply", "--log", log), "now has the nice value"
		}
		o := execute(args)
		for _, text := range []string{fmt.Sprintf("job %s (wrap) %s %d instead of 0: ", jobs[1], says, -step),
			fmt.Sprintf("job %s (wrap) %s %d instead of 0: ", jobs[0], says, step),
			"job " + jobs[2] + " (wrap) stays as it is: the job does not opt in"} {
			if o.code != exit.Done || !strings.Contains(o.stdout, text) {
				t.Errorf("%q: got exit code %d and %q %q, want %q", args, o.code, o.stdout, o.stderr, text)
			}
		}
		priority, nice := ranks()
		if moved := priority[1] == before[0] && priority[0] == before[1] && priority[2] == before[2]; moved != apply {
			t.Errorf("%q: got priorities %v with nice values %q, before %v", args, priority, nice, before)
		}
	}
	o := execute(args) // Slurm has this order now
	if _, nice := ranks(); o.code != exit.Done || strings.Contains(o.stdout, "nice value") || nice != fmt.Sprintf("%d %d 0 ",
		step, -step) {
		t.Errorf("again: got exit code %d, %q %q and nice values %q", o.code, o.stdout, o.stderr, nice)
	}
	for _, apply := range []bool{false, true} {
		args, says := []string{"schedule", "advise", "undo", "--slurm", "--log", log}, "can be reverted: "
		if apply {
			args, says = append(args, "--apply"), "reverted: "
		}
		o := execute(args)
		want := fmt.Sprintf("job %s (wrap) %sset its nice value from %d to 0", jobs[1], says, -step)
		if o.code != exit.Done || !strings.Contains(o.stdout, want) {
			t.Errorf("%q: got exit code %d and %q %q, want %q", args, o.code, o.stdout, o.stderr, want)
		}
		if priority, nice := ranks(); (nice == zero && slices.Equal(priority, before)) != apply {
			t.Errorf("%q: got priorities %v and nice values %q, before %v", args, priority, nice, before)
		}
	}
}

// orderSpeeds are the speeds of a kind of job on one and two GPUs.
const orderSpeeds = `[[gpu_types]]
name = "v100"
memory = "16 GiB"

[[kinds]]
name = "LM"
class = "learning"

[[speeds]]
kind = "LM"
gpu_type = "v100"
gpus = 1
speed = 1

[[speeds]]
kind = "LM"
gpu_type = "v100"
gpus = 2
speed = 2
`
