package runtime

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// If parse accepts a record, the record must be valid JSON with the same values. Writing it again must give the same
// text.
func FuzzRecord(f *testing.F) {
	whole, err := json.Marshal(Record{Epoch: 1, Iteration: 7, Values: telemetry.Values{telemetry.Loss: 2.5},
		BatchSize: 8, Forward: 1500, StepTime: 3e9})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(bytes.Replace(whole, []byte(`"iteration":7`), []byte(`"iteration":9223372036854775807`), 1))
	f.Add([]byte(`{"iteration": 3, "loss": null, "forward_time": 1e300}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var fast, slow Record
		parsed, err := fast.parse(text), json.Unmarshal(text, &slow)
		if err == nil && (slow.Iteration < 0 || slow.Iteration > MostStep) {
			t.Errorf("%q: got step %d", text, slow.Iteration)
		}
		if !parsed {
			return
		}
		if err != nil || fast.Iteration != slow.Iteration ||
			math.Float64bits(fast.Values[telemetry.Loss]) != math.Float64bits(slow.Values[telemetry.Loss]) ||
			fast.BatchSize != slow.BatchSize {
			t.Errorf("%q: parse got %+v, encoding/json %+v, %v", text, fast, slow, err)
		}
		again := fast.appendJSON(nil)
		if !slow.parse(again) || slow.Iteration != fast.Iteration || slow.Forward != fast.Forward {
			t.Errorf("%q: written as %q, which is another record", text, again)
		}
	})
}

// Every scan must end, independent of the content of the file.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("[\n{\"epoch\":1,\"iteration\":1},\n{\"iteration\":2}\n]\n"), int64(10))
	f.Add([]byte("[{\"iteration\":1}]"), int64(0))
	f.Fuzz(func(t *testing.T, text []byte, end int64) {
		for offset, rounds := int64(0), 0; ; rounds++ {
			s, err := scan(bytes.NewReader(text), offset, max(end, offset+1), func(int64, *Record) bool { return true })
			if err != nil || s.next < offset || s.next > int64(len(text)) {
				t.Fatalf("%q: got position %d after %d, %v", text, s.next, offset, err)
			}
			if !s.more || s.next == offset {
				return
			}
			if offset = s.next; rounds > len(text)+1 {
				t.Fatalf("%q: no end", text)
			}
		}
	})
}
