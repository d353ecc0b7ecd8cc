package bridge

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
)

// mostRanks is the maximum number of ranks in a message, more than PyTorch has in a process group.
const mostRanks = 1 << 16

// mostSeconds is the longest time that a message may contain. Longer times would overflow a time.Duration.
const mostSeconds = 1e8

func (m *Hello) check() error {
	if m.WorldSize < 1 || m.WorldSize > mostRanks || m.Rank < 0 || m.Rank >= m.WorldSize {
		return fmt.Errorf("got rank %d of %d", m.Rank, m.WorldSize)
	}
	if m.LocalRank < -1 || m.LocalRank >= m.WorldSize || m.LocalWorldSize < 0 || m.LocalWorldSize > m.WorldSize {
		return fmt.Errorf("got local rank %d of %d", m.LocalRank, m.LocalWorldSize)
	}
	return nil
}

// name matches the names of models and data sets that a configuration can contain.
var name = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

var types = []string{"float32", "bfloat16", "float16"}

func (m *Start) check() error {
	switch {
	case !name.MatchString(m.Model.Name):
		return fmt.Errorf("model.name: got %.80q, want letters, digits, _ and -", m.Model.Name)
	case !name.MatchString(m.Dataset.Name):
		return fmt.Errorf("dataset.name: got %.80q, want letters, digits, _ and -", m.Dataset.Name)
	case len(m.Inputs) > 1000:
		return fmt.Errorf("inputs: got %d bytes, want at most 1000", len(m.Inputs))
	case m.Dataset.Samples < 0 || m.Model.Parameters < 0:
		return fmt.Errorf("got %d samples and %d parameters", m.Dataset.Samples, m.Model.Parameters)
	case m.Device.Kind != "cpu" && m.Device.Kind != "cuda":
		return fmt.Errorf("device.kind: got %.40q, want cpu or cuda", m.Device.Kind)
	case m.Device.Threads < 0 || m.Device.MemoryBytes < 0 || m.Device.FreeBytes < 0:
		return fmt.Errorf("device: got %d threads, %d bytes, %d bytes free", m.Device.Threads, m.Device.MemoryBytes,
			m.Device.FreeBytes)
	case !slices.Contains(types, m.DType):
		return fmt.Errorf("dtype: got %.40q, want one of %v", m.DType, types)
	case m.Step < 0 || m.Trained < 0 || m.Steps < 0 || m.Epoch < 0 || m.MaxShare < 0 || m.Workers < 0:
		return fmt.Errorf("got step %d of %d after %d samples, %d steps of an epoch, a largest share of %d, %d workers",
			m.Step, m.Steps, m.Trained, m.Epoch, m.MaxShare, m.Workers)
	case !(m.TFLOPS >= 0) || !(m.Copy >= 0) || math.IsInf(m.TFLOPS+m.Copy, 1):
		return fmt.Errorf("got %v TFLOP/s and %v GB/s", m.TFLOPS, m.Copy)
	}
	last := 0
	for _, p := range m.Curve {
		if p.Samples <= last || !(p.Seconds > 0) || p.Seconds > mostSeconds {
			return fmt.Errorf("curve: got %d samples in %v s after %d samples", p.Samples, p.Seconds, last)
		}
		last = p.Samples
	}
	return nil
}

func (m *Gathered) check() error {
	if len(m.Values) == 0 || len(m.Values) > mostRanks {
		return fmt.Errorf("got %d values", len(m.Values))
	}
	return nil
}

func (m *Steps) check() error {
	if m.First < 1 || m.First > math.MaxInt32 || len(m.Steps) == 0 || len(m.Steps) > math.MaxInt16 {
		return fmt.Errorf("got %d steps from step %d", len(m.Steps), m.First)
	}
	ranks := len(m.Steps[0].Samples)
	for i := range m.Steps {
		if err := m.Steps[i].check(ranks); err != nil {
			return fmt.Errorf("step %d: %w", m.First+int64(i), err)
		}
	}
	if n := len(m.Telemetry); n != 0 && n != ranks {
		return fmt.Errorf("telemetry: got %d ranks, want %d", n, ranks)
	}
	return nil
}

func (s *Step) check(ranks int) error {
	if ranks == 0 || ranks > mostRanks {
		return fmt.Errorf("got %d ranks", ranks)
	}
	if s.Epoch < 0 || s.EpochStep < 1 || s.EpochSteps < s.EpochStep || s.EpochSteps > math.MaxInt32 ||
		s.Epoch > math.MaxInt32 {
		return fmt.Errorf("got step %d of the %d steps of epoch %d", s.EpochStep, s.EpochSteps, s.Epoch)
	}
	if !(s.Time >= 0 && s.Time < 1e11) {
		return fmt.Errorf("time: got %v", s.Time)
	}
	if len(s.Samples) != ranks || len(s.Buckets) != ranks {
		return fmt.Errorf("got %d and %d ranks, want %d", len(s.Samples), len(s.Buckets), ranks)
	}
	for rank := range ranks {
		if s.Samples[rank] < 0 || s.Samples[rank] > math.MaxInt32 || s.Buckets[rank] < 0 ||
			s.Buckets[rank] > math.MaxInt32 {
			return fmt.Errorf("rank %d: got %d samples and %d buckets", rank, s.Samples[rank], s.Buckets[rank])
		}
	}
	for _, list := range []struct {
		name   string
		values []Number
		most   float64
	}{{"seconds", s.Seconds, mostSeconds}, {"data", s.Data, mostSeconds}, {"forward", s.Forward, mostSeconds},
		{"backward", s.Backward, mostSeconds}, {"exposed", s.Exposed, mostSeconds},
		{"hidden", s.Hidden, mostSeconds}, {"optimizer", s.Optimizer, mostSeconds}, {"other", s.Other, mostSeconds},
		{"bytes", s.Bytes, 1e18}, {"count", s.Count, math.MaxInt32}} {
		if len(list.values) != ranks {
			return fmt.Errorf("%s: got %d ranks, want %d", list.name, len(list.values), ranks)
		}
		for rank, v := range list.values {
			if !(v >= 0) || float64(v) > list.most {
				return fmt.Errorf("%s of rank %d: got %v, want a number from 0 to %v", list.name, rank, float64(v),
					list.most)
			}
		}
	}
	if len(s.Loss) != ranks { // a loss may be NaN
		return fmt.Errorf("loss: got %d ranks, want %d", len(s.Loss), ranks)
	}
	return nil
}

func (m *Evaluation) check() error {
	if m.Samples < 0 || !(m.Seconds >= 0) || m.Seconds > mostSeconds {
		return fmt.Errorf("got %d samples in %v s", m.Samples, m.Seconds)
	}
	return checkStep(m.Step)
}

func (m *Saved) check() error {
	if !(m.Seconds >= 0) || m.Seconds > mostSeconds {
		return fmt.Errorf("got %v s", m.Seconds)
	}
	return checkStep(m.Step)
}

func (m *End) check() error { return checkStep(m.Step) }

func checkStep(step *int64) error {
	if step == nil {
		return errors.New("step is missing")
	}
	if *step < 0 {
		return fmt.Errorf("got step %d", *step)
	}
	return nil
}
