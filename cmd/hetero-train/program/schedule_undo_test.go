package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The fake Slurm stores the node list and the hold of two jobs. The log must limit the changes, and undo must revert
// them.
func TestScheduleUndoesItsChanges(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"squeue": `cd ` + dir + `; job() { echo '{"job_id":'$1',"name":"j","comment":"hetero-train:","submit_time":5,"priority":1,"job_state":["PENDING"],"state_reason":"'$(cat hold$1)'","required_nodes":"'$(cat list$1)'","tres_per_job":"gres/gpu:1","node_count":{"set":true,"number":1}}'; }
			echo '{"jobs":['; job 7; echo ','; job 8; echo ']}'`,
		"scontrol": `cd ` + dir + `
			case $1 in
			update) echo ${3#ReqNodeList=} > list${2#JobId=} ;;
			release) echo Resources > hold$2 ;;
			uhold) echo JobHeldUser > hold$2 ;;
			show) [ "$2" = config ] && { cat config; exit; }
				echo '{"nodes":[{"name":"n1","state":["IDLE"],"gres":"gpu:v100:3","cpus":8,"real_memory":1000}]}' ;;
			*) exit 1 ;;
			esac`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	set := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	state := func() (all string) {
		for _, name := range []string{"hold7", "list7", "hold8", "list8"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			all += strings.TrimSpace(string(text)) + " "
		}
		return all
	}
	const one, two = "ClusterName = one\nSlurmctldHost[0] = h(127.0.0.1)", "ClusterName = two\nSlurmctldHost[0] = h"
	set("config", one)
	set("hold7", "JobHeldUser")
	set("hold8", "JobHeldUser")
	set("list7", "")
	set("list8", "")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	log := filepath.Join(dir, "log.jsonl")
	run := func(want string, args ...string) {
		t.Helper()
		o := execute(append([]string{"schedule", "advise"}, args...))
		if o.code != 0 || !strings.Contains(o.stdout+o.stderr, want) {
			t.Errorf("%q: got exit code %d, %q and %q, want %q", args, o.code, o.stdout, o.stderr, want)
		}
	}
	run("1 placement not applied, because --changes-per-hour is 1", "--slurm", "--apply", "--log", log,
		"--changes-per-hour", "1")
	if got := state(); got != "Resources n1 JobHeldUser  " {
		t.Errorf("after one change: got %q", got)
	}
	run("job 8 (j) is now restricted to n1", "--slurm", "--apply", "--log", log, "--changes-per-hour", "2")
	run("job 8 (j) can be reverted: hold the job again, remove its node list n1", "undo", "--slurm", "--log", log)
	if got := state(); got != "Resources n1 Resources n1 " {
		t.Errorf("after two changes and undo without --apply: got %q", got)
	}
	run("job 8 (j) reverted", "undo", "--slurm", "--log", log, "--apply", "--job", "8")
	if got := state(); got != "Resources n1 JobHeldUser  " {
		t.Errorf("after undo of job 8: got %q", got)
	}
	before, _ := os.ReadFile(log)
	set("config", two) // configuration of another cluster that shares the home folder
	run("1 more change of other clusters, which stay as they are; this cluster is two on h", "undo", "--slurm", "--log",
		log, "--apply")
	set("config", one)
	set("hold7", "JobHeldAdmin")
	run("job 7 (j) cannot be reverted: Slurm holds the job: JobHeldAdmin", "undo", "--slurm", "--log", log, "--apply")
	if got := state(); got != "JobHeldAdmin n1 JobHeldUser  " {
		t.Errorf("a hold of an administrator, and another cluster: got %q", got)
	}
	if after, _ := os.ReadFile(log); string(after) != string(before) {
		t.Errorf("got events %q after undo without a change, want %q", after, before)
	}
	set("hold7", "Resources")
	set("list7", "n1,n2") // an administrator sets this node list
	run("job 7 (j) cannot be reverted: the job has another node list now", "undo", "--slurm", "--log", log, "--apply")
	set("list7", "n1")
	run("job 7 (j) reverted", "undo", "--slurm", "--log", log, "--apply")
	if got := state(); got != "JobHeldUser  JobHeldUser  " {
		t.Errorf("after undo: got %q", got)
	}
	run("no change of this cluster that is left to revert", "undo", "--slurm", "--log", log, "--apply")
	if o := execute([]string{"schedule", "advise", "undo", "--slurm", "--log", log, "--job", "7"}); o.code != 2 ||
		!strings.Contains(o.stderr, "no change of this job") {
		t.Errorf("a job without a change: got exit code %d and %q", o.code, o.stderr)
	}
	older := log + ".1"
	set("log.jsonl.1", `{"id":1,"time":"2020-01-02T03:00:00Z","event":"begins","queue_system":"slurm","cluster":"one on h","change":{"job":"7","name":"j","identity":"submitted at 5","nodes":["n1"],"released":true}}`)
	run(older+" has 1 older change of this cluster, which stay as they are; to revert them, use advise undo with --log "+older,
		"undo", "--slurm", "--log", log)
	if o := execute([]string{"schedule", "advise", "undo", "--slurm", "--log", log, "--job", "7"}); o.code != 2 ||
		!strings.Contains(o.stderr, older+" has one, so use --log "+older) {
		t.Errorf("a job with an older change: got exit code %d and %q", o.code, o.stderr)
	}
	missing := filepath.Join(dir, "chnages.jsonl")
	for _, apply := range []string{"--apply=false", "--apply"} {
		o := execute([]string{"schedule", "advise", "undo", "--slurm", "--log", missing, apply})
		if left, _ := filepath.Glob(missing + "*"); o.code != 2 || !strings.Contains(o.stderr, missing) ||
			len(left) > 0 {
			t.Errorf("%s, no log: got exit code %d and %q, and files %v", apply, o.code, o.stderr, left)
		}
	}
}
