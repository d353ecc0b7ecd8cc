package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/golden"
)

// TestTranscript reads recorded messages of a PyTorch rank, which the Python package hetero_train wrote. It compares
// their values with the golden file.
func TestTranscript(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "rank_0.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	conn, kinds := Open(bytes.NewReader(text), io.Discard), map[string]int{}
	var got bytes.Buffer
	for {
		m, err := conn.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds[typeOf(m)]++
		line, err := json.MarshalIndent(m, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString(typeOf(m) + " " + string(line) + "\n")
	}
	for _, kind := range []string{"hello", "start", "gathered", "steps", "evaluation", "saved", "end"} {
		if kinds[kind] == 0 {
			t.Errorf("the transcript has no message %s", kind)
		}
	}
	golden.Check(t, filepath.Join("testdata", "rank_0.golden"), got.String())
}

func TestFaults(t *testing.T) {
	const step = `{"epoch":0,"epoch_step":1,"epoch_steps":2,"time":1,"seconds":[1],"samples":[1],"count":[1],"loss":[1],"data":[0],"forward":[0],"backward":[0],"exposed":[0],"hidden":[0],"optimizer":[0],"other":[0],"bytes":[0],"buckets":[0]}`
	if _, err := Parse([]byte(`{"type":"steps","first":1,"steps":[` + step + `]}`)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, want string }{
		{"", "no JSON object"},
		{"[]", "no JSON object"},
		{`{"type":"goodbye"}`, "hello, lookup, start"},
		{`{"type":"hello","rank":3,"world_size":3}`, "got rank 3 of 3"},
		{`{"type":"end","reason":"x"}`, "unknown field"},
		{`{"type":"end","error":""}`, "step is missing"},
		{`{"type":"evaluation","loss":1}`, "step is missing"},
		{`{"type":"saved","step":-1}`, "got step -1"},
		{`{"type":"gathered","values":[]}`, "got 0 values"},
		{`{"type":"start","model":{"name":"a b"}}`, "model.name"},
		{`{"type":"steps","first":0,"steps":[` + step + `]}`, "from step 0"},
		{`{"type":"steps","first":1,"steps":[` + strings.Replace(step, `"seconds":[1]`, `"seconds":[1,2]`, 1) + `]}`,
			"seconds: got 2 ranks"},
		{`{"type":"steps","first":1,"steps":[` + strings.Replace(step, `"forward":[0]`, `"forward":[null]`, 1) + `]}`,
			"forward of rank 0"},
		{`{"type":"steps","first":1,"steps":[` + strings.Replace(step, `"data":[0]`, `"data":[1e9]`, 1) + `]}`,
			"data of rank 0"},
		{`{"type":"steps","first":1,"steps":[` + strings.Replace(step, `"samples":[1]`, `"samples":[-1]`, 1) + `]}`,
			"-1 samples"},
		{`{"type":"steps","first":1,"steps":[` + strings.Replace(step, `"epoch_steps":2`, `"epoch_steps":0`, 1) + `]}`,
			"of the 0 steps"},
	} {
		_, err := Parse([]byte(c.line))
		var fault *Fault
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want a fault with %q", c.line, err, c.want)
		}
	}
}

func TestHelloOfAnotherVersionIsReadable(t *testing.T) {
	m, err := Parse([]byte(`{"type":"hello","protocol":9,"package":"7","rank":0,"world_size":1,"colour":"blue"}`))
	if err != nil {
		t.Fatal(err)
	}
	if h := m.(*Hello); h.Protocol != 9 {
		t.Errorf("got version %d, want 9", h.Protocol)
	}
}

func TestExchange(t *testing.T) {
	var out bytes.Buffer
	conn := Open(strings.NewReader(`{"type":"gathered","values":[1,{"a":2}]}`+"\n"+`{"type":"gathered","values":[1]}`+
		"\n"+`{"type":"end","step":1}`+"\n"), &out)
	values, err := conn.Exchange(context.Background(), "numbers", []byte("1"), 2)
	if err != nil || len(values) != 2 || string(values[1]) != `{"a":2}` {
		t.Fatalf("got %q, %v", values, err)
	}
	if got, want := out.String(), `{"type":"gather","what":"numbers","value":1}`+"\n"; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	if _, err := conn.Exchange(context.Background(), "numbers", nil, 2); err == nil ||
		!strings.Contains(err.Error(), "1 ranks, want 2") {
		t.Errorf("one value: got %v", err)
	}
	var order *OrderError
	if _, err := conn.Exchange(context.Background(), "numbers", nil, 2); !errors.As(err, &order) ||
		!strings.Contains(err.Error(), "got a message end, want gathered") {
		t.Errorf("another message: got %v", err)
	}
}

// If a program dies while it writes, its last line is incomplete. Such a line must not count as a message.
func TestIncompleteLineIsTheEnd(t *testing.T) {
	conn := Open(strings.NewReader(`{"type":"end","step":1}`), io.Discard)
	if _, err := conn.Next(context.Background()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "rank_0.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		f.Add(bytes.TrimSpace(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := Parse(line)
		if err != nil {
			if !errors.As(err, new(*Fault)) {
				t.Fatalf("got an error of type %T, want *Fault", err)
			}
			return
		}
		if s, ok := m.(*Steps); ok { // the lists of this message have one value per rank
			for i := range s.Steps {
				if len(s.Steps[i].Samples) != len(s.Steps[0].Samples) ||
					len(s.Steps[i].Hidden) != len(s.Steps[0].Samples) {
					t.Fatal("a step has lists of different lengths")
				}
			}
		}
	})
}
