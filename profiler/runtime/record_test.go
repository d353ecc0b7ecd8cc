package runtime

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

func sample(iteration int64) Record {
	r := Record{
		Epoch: 1, Iteration: iteration, Rank: 2, Timestamp: time.UnixMicro(1_700_000_000_123_456), BatchSize: 32,
		Values: telemetry.Values{telemetry.Loss: 2.25, telemetry.Accuracy: 0.5, telemetry.LearningRate: 1e-7,
			telemetry.GradNorm: 1.5e30, telemetry.LossScale: 65536},
		DataLoading: 1, Forward: 100 * time.Millisecond, Backward: 200_000_001, Communication: 3 * time.Microsecond,
		Optimizer: 2 * time.Second, CommunicationHidden: 7 * time.Millisecond, Exchanges: 8 * time.Millisecond,
		Bytes: 1 << 20, Buckets: 3,
		StepTime: 2400 * time.Millisecond, TrainingTime: 16_800_000_007,
		Telemetry: telemetry.Sample{telemetry.Utilization: 97.5, telemetry.Memory: 12,
			telemetry.Temperature: math.NaN(), telemetry.Power: math.Inf(1)},
	}
	r.Telemetry = withoutTraffic(r.Telemetry)
	r.Telemetry[telemetry.NetworkSent], r.Telemetry[telemetry.RDMAReceived] = 1.25e8, 0
	return r
}

// withoutTraffic returns a copy of s in which the optional sensors are unknown.
func withoutTraffic(s telemetry.Sample) telemetry.Sample {
	for i, d := range telemetry.Declared {
		if d.Optional {
			s[i] = math.NaN()
		}
	}
	return s
}

func TestRecordText(t *testing.T) {
	cases := []struct {
		name   string
		record Record
		want   string
	}{
		{"typical", sample(7),
			`{"epoch":1,"iteration":7,"loss":2.25,"throughput":13.333333333333334,"iteration_time":2.300003002,` +
				`"data_loading_time":0.000000001,"forward_time":0.1,"backward_time":0.200000001,"communication_time":0.000003,"optimizer_time":2,` +
				`"communication_hidden_time":0.007,"exchange_time":0.008,"communication_bytes":1048576,"communication_buckets":3,"gpu_utilization":97.5,"gpu_memory_percent":12,"batch_size":32,"timestamp":1700000000.123456,"rank":2,` +
				`"accuracy":0.5,"learning_rate":1e-07,"grad_norm":1.5e+30,"loss_scale":65536,"skipped":false,"step_time":2.4,"training_time":16.800000007,"temperature":null,"power":null,"network_sent":1.25e+08,"rdma_received":0}`},
		{"nothing measured", Record{Values: telemetry.Values{telemetry.Loss: math.NaN()}, Skipped: true,
			Forward: -time.Millisecond}, `{"epoch":0,"iteration":0,"loss":null,"throughput":null,` +
			`"iteration_time":-0.001,"data_loading_time":0,"forward_time":-0.001,"backward_time":0,"communication_time":0,"optimizer_time":0,` +
			`"communication_hidden_time":0,"exchange_time":0,"communication_bytes":0,"communication_buckets":0,"gpu_utilization":0,"gpu_memory_percent":0,"batch_size":0,"timestamp":null,"rank":0,"accuracy":0,` +
			`"learning_rate":0,"grad_norm":0,"loss_scale":0,"skipped":true,"temperature":null,"power":null}`},
	}
	cases[1].record.Telemetry[telemetry.Temperature], cases[1].record.Telemetry[telemetry.Power] = math.NaN(),
		math.NaN()
	cases[1].record.Telemetry = withoutTraffic(cases[1].record.Telemetry)
	for _, c := range cases {
		if got := string(c.record.appendJSON(nil)); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestRecordsComeBack(t *testing.T) {
	want := sample(7)
	var got Record
	if err := json.Unmarshal(want.appendJSON(nil), &got); err != nil {
		t.Fatal(err)
	}
	for sensor, d := range telemetry.Declared {
		v := math.NaN() // for a sensor without a column, or with an unknown value
		if d.Column != "" && !math.IsInf(want.Telemetry[sensor], 0) {
			v = want.Telemetry[sensor]
		}
		if !sameFloat(got.Telemetry[sensor], v) {
			t.Errorf("%s: got %v, want %v", d.Name, got.Telemetry[sensor], v)
		}
	}
	got.Telemetry, want.Telemetry = telemetry.Sample{}, telemetry.Sample{}
	if !got.Timestamp.Equal(want.Timestamp) {
		t.Errorf("got time %v, want %v", got.Timestamp, want.Timestamp)
	}
	got.Timestamp = want.Timestamp
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if err := json.Unmarshal([]byte(`{"loss":1}`), &got); err == nil {
		t.Error("without an iteration: no error")
	}
}

// Like other programs, the test parses the numbers of the text as float64.
func TestPartsSumToTheTotal(t *testing.T) {
	record := sample(1)
	for i := range 1000 {
		record.Forward += time.Duration(i*i*7919 + 13)
		record.Backward += time.Duration(i * 104729)
		var keys map[string]any
		if err := json.Unmarshal(record.appendJSON(nil), &keys); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for key, value := range keys {
			if strings.HasSuffix(key, "_time") && key != "iteration_time" && key != "step_time" &&
				key != "training_time" && key != "communication_hidden_time" && key != "exchange_time" {
				sum += value.(float64)
			}
		}
		if total := keys["iteration_time"].(float64); math.Abs(sum-total) > 1e-12*total {
			t.Fatalf("parts sum to %.15g, iteration_time is %.15g", sum, total)
		}
	}
}
