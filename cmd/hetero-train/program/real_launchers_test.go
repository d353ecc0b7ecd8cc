package program

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// The real launchers start two ranks. The result must be bit-equal to that of two ranks that the program starts.
// scripts/check_launchers.sh checks the same with torchrun.
func TestRealLaunchersStartRanks(t *testing.T) {
	set := []string{"train.steps=20", "balance.policy=none", "parallel.rendezvous_timeout_seconds=60"}
	var want []byte
	for _, c := range []struct {
		name     string
		launcher func(t *testing.T) []string
		says     string
	}{
		{"hetero-train", func(*testing.T) []string { return nil }, "starts 2 ranks"},
		{"Open MPI", func(t *testing.T) []string {
			launcher := []string{needtest.Program(t, "openmpi", "mpirun.openmpi"), "--oversubscribe", "-np", "2"}
			if os.Geteuid() == 0 {
				launcher = append(launcher, "--allow-run-as-root")
			}
			return launcher
		}, "decided by MPI"},
		{"MPICH", func(t *testing.T) []string {
			return []string{needtest.Program(t, "mpich", "mpirun.mpich"), "-np", "2"}
		}, "decided by MPI"},
		{"Slurm", func(t *testing.T) []string {
			startSlurm(t, "sched_interval=1")
			return []string{"srun", "--ntasks", "2"}
		}, "decided by Slurm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, dir := buildRanks(t), t.TempDir()
			var cmd *exec.Cmd
			if launcher := c.launcher(t); launcher == nil {
				cmd = p.command(dir, append(set, "parallel.ranks=2")...)
			} else {
				cmd = exec.Command(launcher[0], append(launcher[1:], p.command(dir, set...).Args...)...)
			}
			e := finish(t, cmd, 0)
			e.check(t, exit.Done, "")
			if !strings.Contains(e.stdout+e.stderr, c.says) {
				t.Errorf("%q is not in\n%s%s", c.says, e.stdout, e.stderr)
			}
			if got := resultOf(t, filepath.Join(dir, "run")); got.SamplesSeen != 20*8 {
				t.Errorf("got %+v, want 20 steps of 8 samples", got)
			}
			got := clitest.ReadFile(t, filepath.Join(dir, "run", "checkpoints", checkpoint.StepName(20),
				"model.safetensors"))
			if want == nil {
				want = got
			}
			if !bytes.Equal(got, want) {
				t.Error("the parameters differ from those of a run without a launcher")
			}
		})
	}
}

// Command schedule advise --slurm must read the queue of a real Slurm, and restrict a pending job to a node. The
// configuration prevents this Slurm from starting jobs.
func TestScheduleAdvisesARealSlurm(t *testing.T) {
	startSlurm(t, "defer,sched_interval=3600")
	var jobs []string
	// All three jobs are held by their owner. Two of them opt in, and one of these two fits. The last job does not opt
	// in, so the command must not change it.
	for _, args := range [][]string{{"--gres=gpu:2", "--hold", "--comment", "hetero-train:"},
		{"--gres=gpu:1", "--hold", "--comment", "hetero-train: kind=LM; steps=9"}, {"--gres=gpu:1", "--hold"}} {
		out, err := exec.Command("sbatch", append([]string{"--parsable", "--output", os.DevNull, "--wrap", "sleep 300"},
			args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		jobs = append(jobs, strings.TrimSpace(string(out)))
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	log := filepath.Join(t.TempDir(), "changes.jsonl")
	for _, apply := range []bool{false, true} {
		args, places := []string{"schedule", "advise", "--slurm", "--policy", "fcfs"}, "can start on "
		if apply {
			args, places = append(args, "--apply", "--log", log), "is now restricted to "
		}
		o := execute(args)
		for _, text := range []string{"1 node, 0 running jobs with GPUs or known nodes, 3 pending jobs",
			"job " + jobs[0] + " (wrap) " + places + host + " with 2 v100: ", "job " + jobs[1] + " (wrap) waits: ",
			"job " + jobs[2] + " (wrap) waits: the job does not opt in"} {
			if o.code != exit.Done || !strings.Contains(o.stdout, text) {
				t.Errorf("%q: got exit code %d and %q %q, want %q", args, o.code, o.stdout, o.stderr, text)
			}
		}
		for i, job := range jobs {
			out, err := exec.Command("scontrol", "show", "job", job).CombinedOutput()
			if restricted := strings.Contains(string(out), "ReqNodeList="+host); err != nil ||
				restricted != (apply && i == 0) {
				t.Errorf("%q: job %s: got %v and\n%s", args, job, err, out)
			}
			if held := strings.Contains(string(out), "Reason=JobHeldUser"); held != (i > 0 || !apply) {
				t.Errorf("%q: job %s: got held %v\n%s", args, job, held, out)
			}
		}
	}
	scontrol := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("scontrol", args...).CombinedOutput(); err != nil {
			t.Fatalf("scontrol %q: %v: %s", args, err, out)
		}
	}
	scontrol("hold", jobs[0]) // an administrator holds this job
	o := execute([]string{"schedule", "advise", "undo", "--slurm", "--log", log, "--apply"})
	out, err := exec.Command("scontrol", "show", "job", jobs[0]).CombinedOutput()
	if err != nil || o.code != exit.Done ||
		!strings.Contains(o.stdout, "cannot be reverted: Slurm holds the job: JobHeldAdmin") ||
		!strings.Contains(string(out), "Reason=JobHeldAdmin") || !strings.Contains(string(out), "ReqNodeList="+host) {
		t.Errorf("a hold of an administrator: got exit code %d and %q %q, %v and\n%s", o.code, o.stdout, o.stderr,
			err, out)
	}
	scontrol("release", jobs[0])
	for _, apply := range []bool{false, true} {
		args, says := []string{"schedule", "advise", "undo", "--slurm", "--log", log}, "can be reverted: "
		if apply {
			args, says = append(args, "--apply"), "reverted: "
		}
		o := execute(args)
		if want := "job " + jobs[0] + " (wrap) " + says + "hold the job again, remove its node list " + host; o.code !=
			exit.Done || !strings.Contains(o.stdout, want) {
			t.Errorf("%q: got exit code %d and %q %q, want %q", args, o.code, o.stdout, o.stderr, want)
		}
		out, err := exec.Command("scontrol", "show", "job", jobs[0]).CombinedOutput()
		if err != nil || strings.Contains(string(out), "ReqNodeList="+host) == apply ||
			strings.Contains(string(out), "Reason=JobHeldUser") != apply {
			t.Errorf("%q: got %v and\n%s", args, err, out)
		}
	}
}

// slurmConf configures Slurm with one node. The node has two GPUs, which are plain files.
const slurmConf = `ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[3]d
SlurmdPort=%[4]d
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge.socket
CryptoType=crypto/munge
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MailProg=/bin/true
SwitchType=switch/none
SchedulerType=sched/builtin
SchedulerParameters=%[5]s
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=2 Gres=gpu:v100:2
PartitionName=all Nodes=%[1]s Default=YES
`

// startSlurm starts Slurm on this machine and sets SLURM_CONF to its configuration. Slurm stops at the end of the test.
// scheduler is the value of SchedulerParameters.
func startSlurm(t *testing.T, scheduler string) {
	t.Helper()
	needtest.Programs(t, "slurm", "munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scontrol", "scancel")
	if os.Geteuid() != 0 {
		needtest.Missing(t, "slurm", "slurmd needs root")
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	// munge refuses a folder that other users can write to. The path of a socket must be short.
	dir, err := os.MkdirTemp("", "slurm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, folder := range []string{"state", "spool"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	key := make([]byte, 1024)
	rand.Read(key)
	for name, text := range map[string]string{
		"munge.key": string(key), "gpu0": "", "gpu1": "",
		"gres.conf":  "Name=gpu Type=v100 File=" + dir + "/gpu[0-1]\n",
		"slurm.conf": fmt.Sprintf(slurmConf, host, dir, porttest.Free(t), porttest.Free(t), scheduler),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conf := filepath.Join(dir, "slurm.conf")
	t.Setenv("SLURM_CONF", conf)
	for _, server := range [][]string{
		{"munged", "--foreground", "--force", "--key-file=" + dir + "/munge.key", "--socket=" + dir + "/munge.socket",
			"--pid-file=" + dir + "/munge.pid",
			"--log-file=" + dir + "/munge.log", "--seed-file=" + dir + "/munge.seed"},
		{"slurmctld", "-D", "-f", conf},
		{"slurmd", "-D", "-N", host, "-f", conf},
	} {
		var messages bytes.Buffer
		cmd := exec.Command(server[0], server[1:]...)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &messages, &messages, time.Second
		diesWithTest(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Signal(syscall.SIGTERM)
			kill := time.AfterFunc(patience, func() { cmd.Process.Kill() })
			cmd.Wait()
			kill.Stop()
			if t.Failed() {
				t.Logf("%s: %s", server[0], &messages)
			}
		})
		if server[0] == "munged" {
			eventually(t, "munged listens", func() bool { _, err := os.Stat(dir + "/munge.socket"); return err == nil })
		}
	}
	// slurmd leaves its jobs running when it ends, so scancel ends them.
	t.Cleanup(func() { exec.Command("scancel", "--user", "root", "--quiet").Run() })
	if !eventually(t, "Slurm's node is idle", func() bool {
		out, _ := exec.Command("sinfo", "--noheader", "--format", "%T").Output()
		return strings.TrimSpace(string(out)) == "idle"
	}) {
		t.FailNow()
	}
}
