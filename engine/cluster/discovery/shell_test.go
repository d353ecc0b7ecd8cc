package discovery

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/golden"
)

// environment.txt contains the environment of every task of some steps. The slurmd of Slurm 22.05 set these variables.
func TestFindsTheRanksOfRealSteps(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "slurm", "environment.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var found bytes.Buffer
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		_, variables, task := strings.Cut(line, ": ")
		if !task {
			found.WriteString(line + "\n")
			continue
		}
		assigned, err := Find(Options{}, strings.Fields(variables))
		if err != nil {
			found.WriteString(err.Error() + "\n")
			continue
		}
		found.WriteString(assigned.String() + "\n")
	}
	golden.Check(t, filepath.Join("testdata", "slurm", "found.txt"), found.String())
}

func TestAShellOfALauncherStartsLocalRanks(t *testing.T) {
	shell := step("SLURM_TASK_PID=19647", "SLURM_PTY_PORT=41255")
	pmi := append(slices.Clone(shell), "PMI_RANK=3", "PMI_SIZE=4")
	tests := []struct {
		name       string
		env, shell []string
		want       string // Assignment.String
		warns      bool
	}{
		{"srun --pty bash", shell, shell, "starts 2 ranks, decided by one process", true},
		{"srun --mpi=pmi2 --pty bash", pmi, pmi, "starts 2 ranks, decided by one process", true},
		{"srun --pty hetero-train", shell, nil,
			"rank 3 of 4 (local rank 1 of 2), decided by Slurm, rank 0 at gpu07:24711 (first host of SLURM_STEP_NODELIST)",
			false},
		{"srun in this shell", step("SLURM_TASK_PID=20000", "SLURM_STEP_ID=1"), shell,
			"rank 3 of 4 (local rank 1 of 2), decided by Slurm, rank 0 at gpu07:24711 (first host of SLURM_STEP_NODELIST)",
			false},
		{"mpirun in this shell", append(slices.Clone(pmi), "PMI_RANK=3", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=4"), pmi,
			"rank 3 of 4 (local rank 0 of 4), decided by MPI, rank 0 at 127.0.0.1:29500 (all ranks are on this machine)",
			false},
		{"a shell outside Slurm", shell, []string{"HOME=/root"},
			"rank 3 of 4 (local rank 1 of 2), decided by Slurm, rank 0 at gpu07:24711 (first host of SLURM_STEP_NODELIST)",
			false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			assigned, err := Find(Options{Shell: test.shell, Devices: 2}, test.env)
			if err != nil {
				t.Fatal(err)
			}
			if got := assigned.String(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if warns := len(assigned.Warnings) > 0; warns != test.warns {
				t.Errorf("got warnings %q, want some: %v", assigned.Warnings, test.warns)
			}
		})
	}
}

func TestFindsAnInteractiveShell(t *testing.T) {
	const terminal = "/dev/pts/1"
	tests := []struct {
		command string // arguments, separated by blanks
		input   string
		want    bool
	}{
		{"/usr/bin/bash", terminal, true},
		{"-zsh", terminal, true},
		{"bash --rcfile /etc/rc -i", terminal, true},
		{"bash -o vi +e", "/dev/tty1", true},
		{"/usr/bin/bash", "pipe:[7]", false},
		{"/bin/bash ./train.sh", terminal, false},
		{"bash -c hetero-train", terminal, false},
		{"bash -lc hetero-train", terminal, false},
		{"python3", terminal, false},
		{"", terminal, false},
	}
	for _, test := range tests {
		if got := interactive(strings.Fields(test.command), test.input); got != test.want {
			t.Errorf("%q with input %s: got %v, want %v", test.command, test.input, got, test.want)
		}
	}
}

func TestSearchesTheAncestors(t *testing.T) {
	proc := t.TempDir()
	process := func(pid, parent, command, input, environment string) {
		folder := filepath.Join(proc, pid)
		if err := os.MkdirAll(filepath.Join(folder, "fd"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(input, filepath.Join(folder, "fd", "0")); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cmdline": strings.ReplaceAll(command, " ", "\x00") + "\x00",
			"environ": strings.ReplaceAll(environment, " ", "\x00") + "\x00", "stat": pid + " (a) b) S " + parent + " 1"} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	process("50", "40", "make train", "/dev/pts/1", "A=1")
	process("40", "30", "bash", "/dev/pts/1", "SLURM_PROCID=0 SLURM_STEP_ID=0")
	process("30", "1", "slurmstepd:", "/dev/null", "B=1")
	if got := shellEnvironment(proc, 50); !slices.Equal(got, []string{"SLURM_PROCID=0", "SLURM_STEP_ID=0"}) {
		t.Errorf("got %q, want that of the shell", got)
	}
	for _, pid := range []int{30, 1, 99} {
		if got := shellEnvironment(proc, pid); got != nil {
			t.Errorf("process %d: got %q, want nil", pid, got)
		}
	}
	process("60", "60", "loop", "/dev/null", "")
	if got := shellEnvironment(proc, 60); got != nil {
		t.Errorf("a process that is its own parent: got %q", got)
	}
}
