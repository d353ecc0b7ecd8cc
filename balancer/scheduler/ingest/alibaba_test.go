package ingest

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

const alibabaText = "\ufeff,worker,gpu,time,batch_time_norm\n0,0,25,1,100\n1,1,25,1,200\n2,0,25,11,120\n3,1,25,11,200\n4,0,25,21,100\n5,1,25,21,220\n6,0,25,31,100\n"

func TestReadAlibaba(t *testing.T) {
	it, err := ReadAlibaba("a.csv", strings.NewReader(alibabaText))
	if err != nil {
		t.Fatal(err)
	}
	s := it.Summary()
	if s.Workers != 2 || s.Iterations != 3 || s.Spread != 2 || it.Workers[0].GPU != 0.25 {
		t.Errorf("got %+v", s)
	}
	// Iterations 1, 11 and 21 have the ratio slowest/mean: 200/150, 200/160, 220/160.
	if want := (200.0/150 + 200.0/160 + 220.0/160) / 3; math.Abs(s.Barrier-want) > 1e-12 ||
		math.Abs(s.Levels-200.0/150) > 1e-12 {
		t.Errorf("barrier: got %v and %v, want %v and %v", s.Barrier, s.Levels, want, 200.0/150)
	}
	if list := it.Slowdowns(); len(list) != 7 || list[0] != 1 || list[6] != 1.2 || s.Most != 1.2 {
		t.Errorf("slowdowns: got %v", list)
	}
}

func TestFaultyIterationsAreErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"worker,gpu\n", `a.csv:1: header: got "worker,gpu", want ,worker,gpu,time,batch_time_norm`},
		{"", "rows: got none"},
		{alibabaHeader + "\n", "rows: got none"},
		{alibabaText[:60], "want a complete file"},
		{strings.Replace(alibabaText, "2,0,25,11,120\n", "", 1), "a.csv:4: number of the row: got \"3\", want 2"},
		{strings.Replace(alibabaText, "2,0,25,11,120", "2,0,25,0,120", 1), "a.csv:4: time of worker 0: got 0 after 1"},
		{strings.Replace(alibabaText, "2,0,25,11,120", "2,0,30,11,120", 1), "a.csv:4: gpu of worker 0: got 30 %"},
		{strings.Replace(alibabaText, "2,0,25,11,120", "2,0,25,11,-1", 1), `a.csv:4: batch_time_norm: got "-1"`},
		{strings.Replace(alibabaText, "2,0,25,11,120", "2,x,25,11,1", 1), `a.csv:4: worker: got "x"`},
		{strings.Replace(alibabaText, "2,0,25,11,120", "2,0,0,11,1", 1), `a.csv:4: gpu: got "0"`},
		{strings.Replace(alibabaText, "2,0,25,11,120", "2,0,25,1.5,1", 1), `a.csv:4: time: got "1.5"`},
		{strings.Replace(alibabaText, "2,0,25,11,120", "2,0,25,11", 1), "a.csv:4: fields: got 4"},
	} {
		if _, err := ReadAlibaba("a.csv", strings.NewReader(c.text)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

// The wanted values are rounded figures of the trace's two jobs, which Python's module statistics computed
// independently.
func TestAlibabasOwnFiles(t *testing.T) {
	for name, want := range map[string]Summary{
		"job_1_norm.csv": {Workers: 10, Iterations: 300, Spread: 1.123, Jitter: 0.046, Barrier: 1.110, Levels: 1.081,
			P50: 1, P90: 1.070, P99: 1.164, Most: 2.328},
		"job_2_norm.csv": {Workers: 10, Iterations: 238, Spread: 1.321, Jitter: 0.015, Barrier: 1.124, Levels: 1.122,
			P50: 1, P90: 1.021, P99: 1.047, Most: 1.104},
	} {
		it, err := ReadAlibaba(name, dataFile(t, "alibaba", name))
		if err != nil {
			t.Fatal(err)
		}
		s := it.Summary()
		t.Logf("%s: %+v", name, s)
		if s.Workers != want.Workers || s.Iterations != want.Iterations {
			t.Errorf("%s: got %d workers and %d iterations, want %d and %d", name, s.Workers, s.Iterations,
				want.Workers, want.Iterations)
		}
		for what, pair := range map[string][2]float64{"spread": {s.Spread, want.Spread},
			"jitter": {s.Jitter, want.Jitter}, "barrier": {s.Barrier, want.Barrier},
			"levels": {s.Levels, want.Levels}, "P50": {s.P50, want.P50}, "P90": {s.P90, want.P90},
			"P99": {s.P99, want.P99}, "most": {s.Most, want.Most}} {
			if math.Abs(pair[0]-pair[1]) > 0.0006 {
				t.Errorf("%s: %s: got %.4f, want %.3f", name, what, pair[0], pair[1])
			}
		}
	}
}

func FuzzReadAlibaba(f *testing.F) {
	f.Add([]byte(alibabaText))
	f.Add([]byte(alibabaHeader + "\n0,0,25,1,1e-320\n1,0,25,2,1e308\n"))
	f.Add([]byte(alibabaText[:80]))
	f.Fuzz(func(t *testing.T, text []byte) {
		it, err := ReadAlibaba("f", bytes.NewReader(text))
		if err != nil {
			return
		}
		s := it.Summary()
		if s.Workers < 1 || math.IsNaN(s.P50) {
			t.Fatalf("got %+v", s)
		}
	})
}
