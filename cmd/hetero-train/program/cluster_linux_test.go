package program

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// onCluster runs a bash script on the central machine of a simulated network of machines (testdata/cluster.sh). Before,
// testdata/servers starts servers on the machines. $folder is the folder for the files of the script. onCluster returns
// this folder and the output.
func onCluster(t *testing.T, servers, hosts, script string, variables ...string) (folder, output string) {
	t.Helper()
	needtest.Root(t, "network namespaces")
	needtest.Programs(t, "iproute2", "ip")
	needtest.Programs(t, "tools", "unshare", "nsenter", "script")
	if err := gloo.Available(); err != nil {
		needtest.Missing(t, "gloo", err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// Slurm and sshd refuse a folder that other users can write to. The path of a socket must be short.
	folder, err = os.MkdirTemp("", "cluster")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	args := []string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		filepath.Join(here, "testdata", "cluster.sh"), folder, hosts, filepath.Join(here, "testdata", servers), folder}
	if servers == "sshd.sh" {
		args = append(args, hosts)
	}
	cmd := exec.Command("unshare", append(args, "bash", "-c", script)...)
	cmd.Env = append(os.Environ(), variables...)
	cmd.WaitDelay = time.Second
	kill := time.AfterFunc(10*time.Minute, func() { cmd.Process.Kill() })
	defer kill.Stop()
	out, err := cmd.CombinedOutput()
	if !strings.Contains(string(out), "cluster\n") {
		needtest.Missing(t, "namespaces", fmt.Sprintf("network namespaces: %v: %s", err, out))
	}
	if err != nil {
		t.Errorf("%v", err)
	}
	return folder, string(out)
}

// slurmTrials submits runs of deploy/slurm: uninterrupted runs, a run that reaches its time limit, a run that Slurm
// preempts, and a heterogeneous run that receives SIGTERM. It also trains in a shell of srun --pty.
const slurmTrials = `
cd "$folder"
submit() { # NAME SCRIPT STEPS OPTION...
	local name=$1 script=$2 steps=$3
	shift 3
	sbatch --parsable --output="$name.log" "$@" "$scripts/$script" -c "$config" --set experiment.output_dir="$folder/$name" \
		--set train.steps="$steps" --set device.kind=cpu --set device.threads=1 --set balance.policy=none
}
reached() { for _ in $(seq 600); do ! grep -q "^step 100/" "$1.log" 2>/dev/null || break; sleep 0.2; done; }
export HETERO_LAB_SLOWDOWN=15 # idle time, so that a run takes longer than a minute
plain=$(submit plain train.sbatch 3000)
limit=$(submit limit train.sbatch 3000 --time=1 --signal=TERM@50)
preempted=$(submit preempted train.sbatch 3000)
reached preempted
scontrol requeue "$preempted" # what a preemption with requeue does
mixed=$(submit mixed hetero.sbatch 800)
stopped=$(submit stopped hetero.sbatch 800)
reached stopped
scancel --signal=TERM "$stopped"
unset HETERO_LAB_SLOWDOWN
(sleep 2; echo "'$HETERO_TRAIN' train -c '$config' --set experiment.output_dir='$folder/shell' --set train.steps=5" \
	"--nproc-per-node 2; exit"; sleep 20) | timeout 60 script -qec "srun -N2 -n2 --pty bash" /dev/null >shell.log
for _ in $(seq 150); do
	sleep 2
	[ -n "$(squeue --noheader)" ] || break
	for job in $(squeue --noheader --states PENDING --format %i); do # at once, and to the end
		scontrol update JobId="$job" StartTime=now TimeLimit=10 2>/dev/null
	done
done
for job in $plain $limit $preempted $mixed $stopped; do
	scontrol show job $job | grep -oE "JobState=[A-Z]*|Restarts=[0-9]*" | paste -sd " "
done | sort | uniq -c | tr -s " "
`

func TestSlurmContinuesRuns(t *testing.T) {
	needtest.Cluster.Need(t, "runs five jobs on a real Slurm, one of them for longer than a minute")
	needtest.Programs(t, "slurm", "munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scontrol", "scancel")
	dev, err := cpu.Driver{}.Open(0, device.Options{Threads: 1})
	if err != nil {
		needtest.Missing(t, "cpu", err)
	}
	dev.Close()
	p := buildRanks(t)
	scripts, err := filepath.Abs("../../../deploy/slurm")
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "private", "token")
	folder, out := onCluster(t, "slurm.sh", "a1,a2,b1", slurmTrials, "scripts="+scripts, "config="+p.config,
		"HETERO_TRAIN="+p.path, "HETERO_TOKEN_FILE="+token)
	// Slurm requeues three jobs. On a slow machine, it requeues some of them more than once.
	if strings.Contains(out, "FAILED") || strings.Contains(out, "TIMEOUT") || !strings.Contains(out, "Restarts=1") {
		t.Errorf("got\n%s", out)
	}
	model := func(name string, step int) []byte {
		return clitest.ReadFile(t, filepath.Join(folder, name, "run", "checkpoints", checkpoint.StepName(int64(step)),
			"model.safetensors"))
	}
	log := func(name string) string { return string(clitest.ReadFile(t, filepath.Join(folder, name+".log"))) }
	for _, c := range []struct {
		name, as string
		steps    int
		says     []string
	}{
		{"limit", "plain", 3000, []string{"stopped by SIGTERM: saved", "train.sbatch: the run is saved; job "}},
		{"preempted", "plain", 3000, []string{"stopped by SIGTERM: saved", "DUE TO JOB REQUEUE"}},
		{"stopped", "mixed", 800, []string{"stopped by SIGTERM: saved", "hetero.sbatch: the run is saved; job ",
			"rank 2 of 4 (local rank 0 of 2), decided by Slurm, rank 0 at a1:"}},
	} {
		for _, text := range c.says {
			if !strings.Contains(log(c.name), text) {
				t.Errorf("%s: %q is not in\n%s", c.name, text, log(c.name))
			}
		}
		if !bytes.Equal(model(c.name, c.steps), model(c.as, c.steps)) {
			t.Errorf("%s: the parameters differ from those of an uninterrupted run", c.name)
		}
	}
	if text := log("shell"); !strings.Contains(text, "starts 2 ranks, decided by one process") ||
		!strings.Contains(text, "this shell is one of the 2 tasks of step 0") {
		t.Errorf("a shell of srun --pty: got\n%s", text)
	}
	secret := strings.TrimSpace(string(clitest.ReadFile(t, token)))
	if info, err := os.Stat(token); err != nil || info.Mode().Perm() != 0o600 || len(secret) != 64 {
		t.Errorf("token: got %v (error %v) and %d characters, want mode 0600 and 64 characters", info, err, len(secret))
	}
	for _, name := range []string{"plain", "limit", "preempted", "mixed", "stopped"} {
		if strings.Contains(log(name), secret) {
			t.Errorf("the log of %s has the token", name)
		}
	}
}

// setupTrials calls setup_cluster.sh for machines with sshd, first without faults and then with faults.
const setupTrials = `
export HOME=$folder/controller
mkdir "$HOME"
setup() { "$script" --ssh-config "$folder/ssh_config" "$@" 2>&1; echo "code $?"; }
setup --dry-run n1 n2 >dry.txt
ls "$folder/home-n1" >after_dry.txt
setup n1 n2 >first.txt
setup n1 n2 >again.txt
grep "^  ssh" first.txt | sed "s|-c [^ ]*|-c $config --set train.steps=5 --set experiment.output_dir=run|" >start.sh
bash start.sh >train.txt 2>&1
setup n1 unknown >fault.txt
chmod 755 "$folder/home-n2/hetero-train/token"
echo other >"$folder/home-n2/hetero-train/token"
setup n1 n2 >repair.txt
stat -c %a "$folder/home-n2/hetero-train/token" "$folder/home-n1/hetero-train/token" >>repair.txt
setup --master 10.78.0.254 n1 n2 >network.txt
`

func TestSetupClusterPreparesMachines(t *testing.T) {
	needtest.Cluster.Need(t, "copies the program to two machines and trains there")
	needtest.Programs(t, "sshd", "ssh", "ssh-keygen", "sshd")
	p := buildRanks(t)
	script, err := filepath.Abs("../../../scripts/setup_cluster.sh")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	folder, out := onCluster(t, "sshd.sh", "n1,n2", "cd '"+work+"'\n"+setupTrials,
		"script="+script, "config="+p.config, "HETERO_TRAIN="+p.path)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			t.Errorf("%v, after\n%s", err, out)
		}
		return string(text)
	}
	for _, c := range []struct {
		file string
		says []string
	}{
		{"dry.txt", []string{"n1: would copy hetero-train-", "n2: would write hetero-train/token, mode 0600", "code 0"}},
		{"first.txt", []string{"n1: copied hetero-train-", "n2: token copied", "0 faults", "on 2 machines",
			"--nnodes 2 --node-rank 1 --master-addr n1 --master-port 29500'; wait", "code 0"}},
		{"again.txt", []string{"is there", "n1: token there", "n2: token there", "code 0"}},
		{"train.txt", []string{"done: 5 steps"}},
		{"fault.txt", []string{"fault    unknown: ssh fails: ", "cure: make 'ssh -o BatchMode=yes unknown true' work",
			"nothing was changed", "code 1"}},
		{"network.txt", []string{"fault    n2: doctor: ", "cure: let TCP connections of the other hosts to 10.78.0.254:29500",
			"code 5"}},
		{"repair.txt", []string{"n2: token copied", "code 0\n600\n600"}},
	} {
		text := read(c.file)
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", c.file, want, text)
			}
		}
	}
	if text := read("after_dry.txt"); text != "" {
		t.Errorf("--dry-run left %q", text)
	}
	secret := clitest.ReadFile(t, filepath.Join(folder, "controller", ".config", "hetero-train", "token"))
	for _, file := range []string{"first.txt", "again.txt", "train.txt"} {
		if bytes.Contains([]byte(read(file)), secret) {
			t.Errorf("%s has the token", file)
		}
	}
}

func TestSetupClusterRefusesArguments(t *testing.T) {
	t.Parallel()
	needtest.Programs(t, "bash", "bash")
	for _, c := range []struct{ args, says string }{
		{"", "got no HOST"},
		{"a a", "HOST: got a twice"},
		{"-oProxyCommand=x", "unknown option -oProxyCommand=x"},
		{"a;b", "HOST: got 'a;b'"},
		{"--dir ../x a", "--dir: got '../x'"},
		{"--dir a$(b) a", "--dir: got 'a$(b)'"},
		{"--port 80 a", "--port: got '80', want a port from 1024 to 65535"},
		{"--ports 1:2 a", "--ports: got '1:2'"},
		{"--ports 29663-29600 a", "--ports: got '29663-29600', want a range of ports from 1 to 65535"},
		{"--ports 29600-70000 a", "--ports: got '29600-70000'"},
		{"--master x;y a", "--master: got 'x;y'"},
		{"--token", "--token: got no value"},
		{"--release /nowhere a", "there is no file /nowhere"},
		{"--token /etc a", "--token: got /etc, want a file"},
		{"--ssh-config /nowhere a", "--ssh-config: cannot read a file /nowhere"},
		{"--ssh-config /etc a", "--ssh-config: cannot read a file /etc"},
		// ssh accepts the first two arguments; the script refuses the next one.
		{"--ssh-config none --port 80 a", "--port: got '80'"},
		{"--ssh-config /dev/null --port 80 a", "--port: got '80'"},
		// Relative paths refer to the folder of the caller.
		{"--release cluster_linux_test.go a", "/cmd/hetero-train/program/cluster_linux_test.go is no release"},
	} {
		out, err := exec.Command("../../../scripts/setup_cluster.sh", strings.Fields(c.args)...).CombinedOutput()
		if code := exitOf(t, err); code != 2 || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: got exit code %d and %q, want 2 and %q", c.args, code, out, c.says)
		}
	}
}

// shellcheck must find no fault in the scripts for clusters.
func TestScriptsForClustersPassShellcheck(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../deploy/slurm/*.sbatch")
	if err != nil || len(files) != 2 {
		t.Fatalf("got %q (error %v), want two scripts", files, err)
	}
	files = append(files, "../../../scripts/setup_cluster.sh", "testdata/cluster.sh", "testdata/slurm.sh",
		"testdata/sshd.sh")
	check := needtest.Program(t, "shellcheck", "shellcheck")
	if out, err := exec.Command(check, files...).CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// mpirun returns a command that starts three ranks under Open MPI.
func mpirun(t *testing.T, run *exec.Cmd, options ...string) *exec.Cmd {
	args := append([]string{"--oversubscribe", "-np", "3"}, options...)
	cmd := exec.Command(needtest.Program(t, "openmpi", "mpirun.openmpi"), append(args, run.Args...)...)
	cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	return cmd
}

// ranksIn returns the process ids of the ranks that train in a folder, by their rank in Open MPI.
func ranksIn(t *testing.T, dir string) map[int]int {
	t.Helper()
	ranks := map[int]int{}
	for _, file := range glob(t, "/proc/[0-9]*/cmdline") {
		command, _ := os.ReadFile(file)
		if !bytes.Contains(command, []byte(dir)) || bytes.Contains(command, []byte("mpirun")) {
			continue
		}
		environment, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
		for _, entry := range strings.Split(string(environment), "\x00") {
			if text, ok := strings.CutPrefix(entry, "OMPI_COMM_WORLD_RANK="); ok {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
				rank, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				ranks[rank] = pid
			}
		}
	}
	return ranks
}

func TestMPIRanksOfUnequalSharesEndTogether(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	set := []string{"train.steps=20", "balance.policy=none", "balance.fixed_shares=[4, 1, 3]"}
	finish(t, p.command(filepath.Join(dir, "alone"), append(set, "parallel.ranks=3")...), 0).check(t, exit.Done, "")
	finish(t, mpirun(t, p.command(filepath.Join(dir, "mpi"), set...)), 0).check(t, exit.Done, "")
	model := func(name string) []byte {
		return clitest.ReadFile(t, filepath.Join(dir, name, "run", "checkpoints", checkpoint.StepName(20),
			"model.safetensors"))
	}
	if !bytes.Equal(model("mpi"), model("alone")) {
		t.Error("the parameters differ from those of a run without a launcher")
	}
	endless := []string{"train.steps=1000000", "balance.policy=none"}
	for _, c := range []struct {
		name    string
		options []string
		end     func(mpirun int, ranks map[int]int)
		codes   []int // Open MPI returns the code of the rank whose end it notices first
		says    string
		long    bool // after Ctrl-C, Open MPI waits for its whole time-out
	}{
		{"a killed rank", nil, func(_ int, ranks map[int]int) { syscall.Kill(ranks[1], syscall.SIGKILL) },
			[]int{137, exit.Communication}, "rank 1", false},
		{"Ctrl-C", []string{"--mca", "odls_base_sigkill_timeout", "20"},
			func(mpirun int, _ map[int]int) { syscall.Kill(mpirun, syscall.SIGINT) }, []int{1}, "saved", true},
	} {
		if c.long && !needtest.Cluster.On() {
			continue
		}
		folder := filepath.Join(dir, strings.ReplaceAll(c.name, " ", "_"))
		cmd := mpirun(t, p.command(folder, endless...), c.options...)
		e := finishAfterStep(t, cmd, func() { c.end(cmd.Process.Pid, ranksIn(t, folder)) })
		if !slices.Contains(c.codes, e.code) || !strings.Contains(e.stdout+e.stderr, c.says) {
			t.Errorf("%s: got exit code %d, want one of %d and %q in\n%s%s", c.name, e.code, c.codes, c.says, e.stdout,
				e.stderr)
		}
		eventually(t, c.name+": no rank is left", func() bool { return len(ranksIn(t, folder)) == 0 })
		if found, err := filepath.Glob(filepath.Join(folder, "run", "checkpoints", "step-*")); len(found) == 0 {
			t.Errorf("%s: got no checkpoint (error %v)", c.name, err)
		}
	}
}
