package program

import (
	"encoding/json"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

func TestDoctorNamesFaultsWithTheirCures(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	args := []string{"doctor", "--set", "experiment.output_dir=" + t.TempDir(), "--set", "dashboard.enabled=true", "--set",
		"dashboard.port=" + port}
	o := execute(append(args, "--json"))
	var got struct {
		Faults   int
		Findings []struct{ Check, Level, Found, Cure string }
		Machines []struct{ Host struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.code != exit.Unexpected || got.Faults != 1 ||
		len(got.Machines) != 1 || got.Machines[0].Host.Name == "" {
		t.Fatalf("a taken port: got exit code %d, %v: %s%s", o.code, err, o.stdout, o.stderr)
	}
	for _, f := range got.Findings {
		if f.Level == "fault" && (f.Check != "port" || !strings.Contains(f.Found, "dashboard.port") || f.Cure == "") {
			t.Errorf("got %+v, want the port of the dashboard and the cure", f)
		}
	}
	taken.Close()
	if o := execute(append(args, "--all")); o.code != exit.Done || !strings.Contains(o.stdout, "dashboard.port: 127.0.0.1:"+
		port+" is free") || !strings.Contains(o.stdout, "0 faults") {
		t.Errorf("a free port: got exit code %d and\n%s%s", o.code, o.stdout, o.stderr)
	}
}

func TestDoctorConnectsRanks(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	out, err := exec.Command(p.path, "doctor", "--json", "--nproc-per-node", "3", "--set", "experiment.output_dir="+
		t.TempDir()).Output()
	var got struct{ Machines []struct{ Rank, Ranks int } }
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil || len(got.Machines) != 3 || got.Machines[2].Rank != 2 ||
		got.Machines[0].Ranks != 3 {
		t.Errorf("got %v and %s; want the facts of three ranks", err, out)
	}
}
