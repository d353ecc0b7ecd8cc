package prometheus

import (
	"bytes"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// full returns metrics in which every family has a value.
func full() *Metrics {
	links := []telemetry.Link{{Kind: telemetry.LinkPCIe, Name: "pcie", Limit: 32e9}, {Kind: telemetry.LinkNVLink,
		Name: "nvlink", Limit: 450e9}, {Kind: telemetry.LinkRDMA, Name: "mlx5_0/1", Limit: 50e9},
		{Kind: telemetry.LinkNetwork, Name: "eth0", Limit: 1.25e8}, {Kind: telemetry.LinkLoopback, Name: "lo"}}
	m := New(Run{Name: "a \"run\"\nof \\two", Model: "gpt2", Dataset: "text", Policy: "hybrid", Program: "1.0",
		Ranks: []Rank{{Number: 0, GPU: true, Links: links}, {Number: 1}}, Metrics: []string{"top1"},
		NoiseCauses: []string{"unknown", "CPU quota"}}, 1e9)
	m.Update(func(s *State) {
		s.Step, s.Planned, s.Steps, s.Samples, s.Evaluations, s.Checkpoints, s.Decisions, s.Changes = 12, 100, 2, 64, 1,
			1, 1, 1
		s.StepSeconds.Add(0.0005)
		s.StepSeconds.Add(0.3)
		s.StepSeconds.Add(300)
		s.Values[telemetry.LossScale] = 1
		s.Values[telemetry.Loss], s.Oracle, s.Gain, s.Lost[0] = math.NaN(), 0.97, 1.56, 1.5
		s.Noise[1] = 2.5
		for i := range s.Ranks {
			s.Ranks[i].Share, s.Ranks[i].Verdict = 32, i
			s.Ranks[i].Bytes, s.Ranks[i].Hidden, s.Ranks[i].Bus = 1000, 0.5, 1e9
			for j := range s.Ranks[i].Links {
				s.Ranks[i].Links[j] = telemetry.Traffic{Sent: 1, Received: 2, SentBytes: float64(100 + j),
					ReceivedBytes: float64(200 + j)}
			}
			if i == 0 {
				s.Ranks[i].Links[0] = telemetry.UnknownTraffic() // NVML has no byte counters for PCIe
			}
			for sensor := range s.Ranks[i].Sensors {
				s.Ranks[i].Sensors[sensor] = 50
			}
		}
	})
	return m
}

// names returns the names of all samples in a text.
func names(text []byte) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			all[line[:strings.IndexAny(line, "{ ")]] = true
		}
	}
	return all
}

func TestText(t *testing.T) {
	text := string(full().Text())
	for _, want := range []string{
		`hetero_train_run_info{run="a \"run\"\nof \\two",model="gpt2",dataset="text",policy="hybrid",version="1.0"} 1` +
			"\n",
		"# TYPE hetero_train_step_seconds histogram\nhetero_train_step_seconds_bucket{le=\"0.001\"} 1\n",
		`hetero_train_step_seconds_bucket{le="0.25"} 1` + "\n", `hetero_train_step_seconds_bucket{le="0.5"} 2` + "\n",
		`hetero_train_step_seconds_bucket{le="+Inf"} 3` + "\n",
		"hetero_train_step_seconds_sum 300.3005\nhetero_train_step_seconds_count 3\n",
		"hetero_train_loss NaN\n", "hetero_train_gain_ratio 1.56\n",
		`hetero_train_lost_seconds_total{cause="imbalance"} 1.5` + "\n",
		`hetero_train_noise_seconds_total{cause="unknown"} 0` + "\n" +
			`hetero_train_noise_seconds_total{cause="CPU quota"} 2.5` + "\n",
		`hetero_train_rank_verdict{rank="1",verdict="healthy"} 0` + "\n" +
			`hetero_train_rank_verdict{rank="1",verdict="slow_type"} 1` + "\n",
		`hetero_train_device_memory_ratio{rank="1"} 0.5` + "\n", `DCGM_FI_DEV_GPU_TEMP{rank="0"} 50` + "\n",
		"# TYPE hetero_train_device_ecc_errors_total counter\n",
		"# TYPE hetero_train_network_transmit_bytes_total counter\n" +
			`hetero_train_network_transmit_bytes_total{rank="0",device="eth0"} 103` + "\n" +
			`hetero_train_network_transmit_bytes_total{rank="0",device="lo"} 104` + "\n",
		`hetero_train_network_speed_bytes{rank="0",device="eth0"} 1.25e+08` + "\n# ", // the speed of lo is unknown
		`hetero_train_infiniband_port_data_received_bytes_total{rank="0",device="mlx5_0",port="1"} 202` + "\n",
		`hetero_train_nvlink_transmit_bytes_total{rank="0",device="nvlink"} 101` + "\n",
		`hetero_train_pcie_speed_bytes{rank="0",device="pcie"} 3.2e+10` + "\n",
		`hetero_train_device_network_sent_bytes_per_second{rank="1"} 50` + "\n",
		`DCGM_FI_PROF_NVLINK_TX_BYTES{rank="0"} 50` + "\n",
		`hetero_train_rank_bus_bytes_per_second{rank="1",basis="computed"} 1e+09` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, `DCGM_FI_DEV_GPU_TEMP{rank="1"}`) {
		t.Error("a CPU rank has a field of DCGM")
	}
	if strings.Contains(text, "pcie_transmit_bytes_total") {
		t.Error("PCIe has a counter, want none, because its traffic is only sampled")
	}
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			if name, _, _ = strings.Cut(name, " "); seen[name] {
				t.Errorf("%s: two families have this name", name)
			}
			seen[name] = true
		}
	}
}

func TestMetricsBeforeTheFirstStep(t *testing.T) {
	got := names(New(Run{Ranks: []Rank{{}}}, 0).Text())
	for _, name := range []string{"hetero_train_loss", "hetero_train_share", "hetero_train_oracle_ratio",
		"hetero_train_rank_verdict", "hetero_train_evaluation_loss", "hetero_train_run_planned_steps"} {
		if got[name] {
			t.Errorf("%s has a value before the first step", name)
		}
	}
	if !got["hetero_train_run_info"] || !got["hetero_train_last_progress_timestamp_seconds"] {
		t.Errorf("got %v, want the properties and the time of the start", got)
	}
}

// Before the first checkpoint, the metric of its time must be missing.
func TestNoCheckpointHasNoTime(t *testing.T) {
	m := New(Run{Ranks: []Rank{{Number: 0}}}, 1)
	if got := names(m.Text()); got["hetero_train_last_checkpoint_timestamp_seconds"] ||
		!got["hetero_train_checkpoints_total"] || !got["hetero_train_start_timestamp_seconds"] {
		t.Errorf("got metrics %v, want no time of a checkpoint", got)
	}
}

// Ranks other than 0 never save. If they had the metric, their checkpoints would always seem too old.
func TestOnlyRank0ReportsCheckpoints(t *testing.T) {
	for rank, want := range []bool{true, false} {
		m := New(Run{Ranks: []Rank{{Number: rank}}}, 1)
		m.Update(func(s *State) { s.Steps, s.Checkpoints = 2, 1 })
		got := names(m.Text())
		for _, name := range []string{"hetero_train_checkpoints_total",
			"hetero_train_last_checkpoint_timestamp_seconds", "hetero_train_checkpoint_save_seconds"} {
			if got[name] != want {
				t.Errorf("rank %d: got %s: %v, want %v", rank, name, got[name], want)
			}
		}
	}
}

func TestPromtoolAcceptsTheMetrics(t *testing.T) {
	tool := needtest.Program(t, "prometheus", "promtool")
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(full().Text())
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// A scraper that holds the shared copy forever must not block a step.
func TestUpdateDoesNotWaitForAScraper(t *testing.T) {
	m := full()
	m.mu.Lock()
	m.Update(func(s *State) { s.Steps = 1234 }) // would block forever if it waited for the scraper
	m.mu.Unlock()
	if strings.Contains(string(m.Text()), "hetero_train_steps_total 1234\n") {
		t.Error("the copy of scrapers changed while a scraper was reading it")
	}
	m.Update(func(*State) {})
	if !strings.Contains(string(m.Text()), "hetero_train_steps_total 1234\n") {
		t.Error("the next update did not renew the copy of scrapers")
	}
}

func TestUpdateAllocatesNothing(t *testing.T) {
	m := full()
	step := func(s *State) { s.Steps++; s.StepSeconds.Add(0.1) }
	if n := testing.AllocsPerRun(100, func() { m.Update(step) }); n != 0 {
		t.Errorf("got %v allocations per update, want 0", n)
	}
}

func TestEverySensorHasItsOwnMetric(t *testing.T) {
	valid, seen := regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`), map[string]bool{}
	for _, d := range telemetry.Declared {
		for _, name := range []string{export(d).name, d.DCGM} {
			if name != "" && (!valid.MatchString(name) || seen[name]) {
				t.Errorf("%s: got the name %q, want a valid name of its own", d.Name, name)
			}
			seen[name] = true
		}
	}
	// This package does not know this sensor.
	got := export(telemetry.Declaration{Name: "fan speed", Unit: "turns/s"})
	if got.name != "hetero_train_device_fan_speed_turns_s" || got.kind != "gauge" || got.factor != 1 {
		t.Errorf("a sensor with an unknown unit: got %+v", got)
	}
	got = export(telemetry.Declaration{Name: "retries", Window: telemetry.Increase})
	if got.name != "hetero_train_device_retries_total" || got.kind != "counter" {
		t.Errorf("a counter: got %+v", got)
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, ranks := range []int{2, 1000} {
		run := Run{}
		for i := range ranks {
			run.Ranks = append(run.Ranks, Rank{Number: i})
		}
		m := New(run, 0)
		m.Update(func(s *State) { s.Steps = 1 })
		b.Run(fmt.Sprintf("%d ranks", ranks), func(b *testing.B) {
			for b.Loop() {
				m.Update(func(s *State) { s.Steps++ })
			}
		})
		b.Run(fmt.Sprintf("%d ranks, text", ranks), func(b *testing.B) {
			for b.Loop() {
				b.SetBytes(int64(len(m.Text())))
			}
		})
	}
}
