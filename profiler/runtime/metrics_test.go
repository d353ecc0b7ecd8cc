package runtime

import (
	"bytes"
	"os"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// testdata/records.json contains records of two ranks, which a run wrote. Writing them again must give the same bytes.
func TestRecordsOfAFileAreWrittenWithEqualBytes(t *testing.T) {
	file, err := os.ReadFile("testdata/records.json")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(bytes.TrimPrefix(file, []byte("[\n")), []byte("\n]\n")), []byte(",\n"))
	if len(lines) != 8 {
		t.Fatalf("got %d records, want 8", len(lines))
	}
	for i, line := range lines {
		var fast, slow Record
		if !fast.parse(line) {
			t.Fatalf("record %d: refused", i)
		}
		if err := slow.UnmarshalJSON(line); err != nil {
			t.Fatal(err)
		}
		for name, r := range map[string]*Record{"parse": &fast, "encoding/json": &slow} {
			if got := r.appendJSON(nil); !bytes.Equal(got, line) {
				t.Errorf("record %d, read by %s: got\n%s\nwant\n%s", i, name, got, line)
			}
		}
	}
	buffer := make([]byte, 0, 2*len(lines[0]))
	var r Record
	if n := testing.AllocsPerRun(100, func() {
		if !r.parse(lines[0]) || len(r.appendJSON(buffer[:0])) == 0 {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("to read and write a record: got %v allocations, want 0", n)
	}
}

// A record must have a field for the value of each metric.
func TestEachMetricHasAPlaceInARecord(t *testing.T) {
	var r Record
	for _, e := range entries {
		if e.sensor < telemetry.Count {
			continue
		}
		switch e.kind {
		case telemetry.Integer:
			if r.setInteger(e.metric, 7); r.integer(e.metric) != 7 {
				t.Errorf("%s: got %d, want 7", e.key, r.integer(e.metric))
			}
		case telemetry.Seconds:
			*r.Seconds(e.metric) = 7
		}
	}
	if r.Forward != 7 || r.TrainingTime != 7 || r.Rank != 7 || r.Bytes != 7 {
		t.Errorf("got %+v, want 7 in each integer and time", r)
	}
}
