package runtime

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// parse must give the same result as encoding/json, on valid and on damaged records.
func TestParsingEqualsJSON(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	float := func() float64 {
		switch random.IntN(5) {
		case 0:
			return math.NaN()
		case 1:
			return 0
		}
		return random.NormFloat64() * math.Pow(10, float64(random.IntN(40)-20))
	}
	took := func() time.Duration {
		return time.Duration(random.Int64N(int64(math.Pow(10, float64(1+random.IntN(13))))))
	}
	for range 2000 {
		want := Record{Epoch: random.Int64N(100), Iteration: random.Int64N(1 << 40), Rank: random.IntN(8),
			Timestamp: time.UnixMicro(random.Int64N(1 << 51)), BatchSize: random.Int64N(1024),
			Values: telemetry.Values{telemetry.Loss: float(), telemetry.Accuracy: float(),
				telemetry.LearningRate: float(), telemetry.GradNorm: float(), telemetry.LossScale: float()},
			Skipped:     random.IntN(2) == 0,
			DataLoading: took(), Forward: took(), Backward: took(), Communication: took(), Optimizer: took(),
			CommunicationHidden: took(), Exchanges: took(),
			Bytes: random.Int64N(1e17), Buckets: 3,
			Telemetry: telemetry.Sample{telemetry.Utilization: math.Abs(float()),
				telemetry.Memory: math.Abs(float()), telemetry.Temperature: float(), telemetry.Power: float()}}
		for s := telemetry.NVLinkSent; s <= telemetry.RDMAReceived; s++ {
			want.Telemetry[s] = float()
		}
		if random.IntN(4) == 0 {
			want.Timestamp = time.Time{}
		}
		line := want.appendJSON(nil)
		var got, slow Record
		if !got.parse(line) {
			t.Fatalf("refused %s", line)
		}
		if err := json.Unmarshal(line, &slow); err != nil {
			t.Fatal(err)
		}
		if !same(got, slow) {
			t.Fatalf("%s:\ngot  %+v\nwant %+v", line, got, slow)
		}
		line[random.IntN(len(line))] = byte(random.IntN(256))
		if got = (Record{}); got.parse(line) { // one digit is replaced by another one
			if err := json.Unmarshal(line, &slow); err != nil || !same(got, slow) {
				t.Fatalf("took %s as %+v, want %+v, %v", line, got, slow, err)
			}
		}
		if cut := line[:random.IntN(len(line))]; got.parse(cut) {
			t.Fatalf("took %s", cut)
		}
	}
}

// Both parsers must refuse negative times, because they are not measurements.
func TestTimesBelowZeroAreRefused(t *testing.T) {
	line := (&Record{Iteration: 3, Forward: -time.Millisecond, Telemetry: telemetry.Unknown()}).appendJSON(nil)
	var got Record
	if got.parse(line) {
		t.Errorf("parse accepted %s", line)
	}
	if err := json.Unmarshal(line, &got); err == nil || !strings.Contains(err.Error(), "forward_time below 0") {
		t.Errorf("got %v, want an error about forward_time", err)
	}
}

func TestUtilizationBelowZeroIsRefused(t *testing.T) {
	r := Record{Iteration: 3, Telemetry: telemetry.Unknown()}
	r.Telemetry[telemetry.Utilization] = -300
	line := r.appendJSON(nil)
	var got Record
	if got.parse(line) {
		t.Errorf("parse accepted %s", line)
	}
	if err := json.Unmarshal(line, &got); err == nil || !strings.Contains(err.Error(), "gpu_utilization below 0") {
		t.Errorf("got %v, want an error about gpu_utilization", err)
	}
	if r = *r.atLeastZero(); r.negative() != "" {
		t.Errorf("got %s, want 0 in its place", r.appendJSON(nil))
	}
}

// strconv accepts these forms of numbers, but encoding/json does not.
func TestNumbersThatJSONLacksAreRefused(t *testing.T) {
	record := sample(7) // the loss of this record is 2.25
	line := string(record.appendJSON(nil))
	for _, number := range []string{"1_0", "1.", "01", ".5", "+1", "Inf", "0x1p3", "1e", "-", "1e+", ""} {
		damaged := []byte(strings.Replace(line, `"loss":2.25`, `"loss":`+number, 1))
		if json.Valid(damaged) {
			t.Fatalf("%s is valid JSON", damaged)
		}
		var r Record
		if r.parse(damaged) {
			t.Errorf("%q: got loss %v, want no record", number, r.Values[telemetry.Loss])
		}
	}
	for _, number := range []string{"-0", "0.5", "1E5", "1e-07", "10", "-1.5e+30"} {
		var r Record
		if !r.parse([]byte(strings.Replace(line, `"loss":2.25`, `"loss":`+number, 1))) {
			t.Errorf("%q: refused", number)
		}
	}
}

// same compares records bit by bit, but all NaN values are equal.
func same(a, b Record) bool {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		switch va.Field(i).Kind() {
		case reflect.Float64:
			if !sameFloat(va.Field(i).Float(), vb.Field(i).Float()) {
				return false
			}
			continue
		case reflect.Array: // the array of sensors, Telemetry
			if !slices.EqualFunc(a.Telemetry[:], b.Telemetry[:], sameFloat) {
				return false
			}
			continue
		}
		if !reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			return false
		}
	}
	return true
}

func sameFloat(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}

// A record must count as damaged if it lacks a key, or if a time or an integer is null. If it were read as zero,
// figures would be wrong.
func TestRecordsLackNoKey(t *testing.T) {
	whole := Record{Iteration: 3, BatchSize: 4, Forward: time.Second, Telemetry: telemetry.Unknown()}
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	for _, d := range telemetry.Metrics {
		if d.Optional || d.Kind == telemetry.Derived {
			continue
		}
		value := keys[d.Key]
		delete(keys, d.Key)
		lacking, err := json.Marshal(keys)
		if err != nil {
			t.Fatal(err)
		}
		var got Record
		if err := json.Unmarshal(lacking, &got); err == nil || !strings.Contains(err.Error(), d.Key) {
			t.Errorf("without %s: got %v", d.Key, err)
		}
		if keys[d.Key] = json.RawMessage("null"); d.Kind == telemetry.Integer || d.Kind == telemetry.Seconds {
			if null, _ := json.Marshal(keys); json.Unmarshal(null, &got) == nil {
				t.Errorf("%s is null: got a record", d.Key)
			}
			keys[d.Key] = json.RawMessage("-1")
			if below, _ := json.Marshal(keys); json.Unmarshal(below, &got) == nil {
				t.Errorf("%s is -1: got a record", d.Key)
			}
		}
		keys[d.Key] = value
	}
}
