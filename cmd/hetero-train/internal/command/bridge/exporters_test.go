package bridge

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/bridge"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
)

// TestExporters checks that Prometheus and MLflow get the steps of a run whose ranks are another program.
func TestExporters(t *testing.T) {
	dir, address := t.TempDir(), "127.0.0.1:"+strconv.Itoa(porttest.Free(t))
	runs := filepath.Join(dir, "mlruns")
	r := startRank(t)
	shares := r.open(dir, 0, fmt.Sprintf(`,"metrics.address":%q`, address), fmt.Sprintf(`,"tracking.mlflow":%q`, runs),
		`,"tracking.interval":"5"`)
	var losses []string // values and steps of the points sent to MLflow
	for number := 1; number <= 20; number++ {
		if number == 1 || number%5 == 0 { // a sample of rank 2 has four times the loss of other samples
			loss := 2 * float64(shares[0]+shares[1]+4*shares[2]) / 48
			losses = append(losses, fmt.Sprintf("%v %d", loss, number))
		}
		if d := r.step(number, shares); d.Shares != nil {
			shares = d.Shares
		}
	}
	_, body := clitest.Get(t, "http://"+address+"/metrics")
	for rank, share := range shares {
		line := fmt.Sprintf("hetero_train_share{rank=\"%d\"} %d\n", rank, share)
		if !strings.Contains(body, line) {
			t.Errorf("the metrics have no line %s", line)
		}
	}
	for _, text := range []string{"hetero_train_run_step 20\n", `model="Net"`, "hetero_train_decisions_total"} {
		if !strings.Contains(body, text) {
			t.Errorf("the metrics have no %s", text)
		}
	}
	if t.Failed() {
		t.Logf("%s", body)
	}
	r.send(`{"type":"evaluation","step":20,"samples":100,"loss":1.5,"seconds":0.1}`)
	r.receive("done", new(bridge.Done))
	r.send(`{"type":"end","step":0,"error":"","stopped":false,"closed":true}`)
	r.receive("ended", new(bridge.Ended))
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	for metric, want := range map[string][]string{"train/loss": losses, "eval/loss": {"1.5 20"}} {
		files, err := filepath.Glob(filepath.Join(runs, "*", "*", "metrics", metric))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: got files %q, %v, want one", metric, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(string(text)) {
			_, value, _ := strings.Cut(strings.TrimSpace(line), " ") // each line contains the time, and then the value
			got = append(got, value)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got the points %q, want %q", metric, got, want)
		}
	}
}
