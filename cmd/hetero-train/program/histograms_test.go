package program

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
)

// messageFields returns the fields of a message of protocol buffers, by number: nested messages and texts, and doubles.
func messageFields(b []byte) (nested map[int][][]byte, doubles map[int]float64) {
	nested, doubles = map[int][][]byte{}, map[int]float64{}
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		b = b[n:]
		switch number := int(key >> 3); key & 7 {
		case 0:
			v, n := binary.Uvarint(b)
			doubles[number], b = float64(v), b[n:]
		case 1:
			doubles[number], b = math.Float64frombits(binary.LittleEndian.Uint64(b)), b[8:]
		case 2:
			size, n := binary.Uvarint(b)
			nested[number], b = append(nested[number], b[n:n+int(size)]), b[n+int(size):]
		default:
			b = b[4:]
		}
	}
	return nested, doubles
}

// norm is the key of a parameter's histogram at a step.
type norm struct {
	tag  string
	step int64
}

// histogramNorms returns the Euclidean norm of the values of each histogram of a run.
func histogramNorms(t *testing.T, logs string) map[norm]float64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(logs, observe.BoardFolder, "*tfevents*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("event files: %v, %v", files, err)
	}
	out := map[norm]float64{}
	for b := clitest.ReadFile(t, files[0]); len(b) > 16; {
		n := binary.LittleEndian.Uint64(b)
		event, step := messageFields(b[12 : 12+n])
		b = b[16+n:]
		for _, summary := range event[5] {
			values, _ := messageFields(summary)
			for _, value := range values[1] {
				v, _ := messageFields(value)
				for _, h := range v[5] {
					_, of := messageFields(h)
					out[norm{string(v[1][0]), int64(step[2])}] = math.Sqrt(of[5])
				}
			}
		}
	}
	return out
}

// Histograms of weights and gradients must agree with the norms of parameters, which the device computes.
func TestHistogramsAgreeWithTheNormsOfParameters(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	finish(t, p.command(dir, "train.steps=8", "profile.histograms=4", "train.norms_interval=4",
		"train.grad_accumulation=2", "train.clip_norm=0.01"), 0).check(t, exit.Done, "")
	logs := filepath.Join(dir, "run", "logs")
	got, lines := histogramNorms(t, logs), 0
	for line := range strings.Lines(string(clitest.ReadFile(t, filepath.Join(logs, observe.NormsFile)))) {
		var n observe.NormsLine
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			t.Fatal(err)
		}
		for name, of := range n.Params {
			lines++
			for tag, want := range map[string]float64{
				"weights/": float64(of.Weight), "gradients/": float64(of.Gradient)} {
				have, found := got[norm{tag + name, n.Step}]
				if !found || math.Abs(have-want) > 1e-5*want {
					t.Errorf("step %d: %s: got a norm of %v (found: %v), want %v", n.Step, tag+name, have, found, want)
				}
			}
		}
	}
	if lines < 4 || len(got) != 2*lines {
		t.Errorf("got %d histograms and %d norms of parameters, want two of each parameter: %v", len(got), lines,
			fmt.Sprint(got))
	}
}
