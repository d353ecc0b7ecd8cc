package observe

import (
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/profiler/prometheus"
)

func TestNoiseIsCountedByCause(t *testing.T) {
	e := &Exporter{causes: straggler.NoiseCauses()}
	e.Metrics = prometheus.New(prometheus.Run{NoiseCauses: e.causes}, 0)
	for _, cause := range []string{"unknown", "CPU quota", "", "CPU quota"} {
		var d balancer.Decision
		d.NoiseCause, d.Lost.Noise = cause, 0.25
		e.Decided(10, &d, nil)
	}
	text := string(e.Text())
	for _, want := range []string{`{cause="unknown"} 2.5`, `{cause="CPU quota"} 5`} {
		if want = "hetero_train_noise_seconds_total" + want + "\n"; !strings.Contains(text, want) {
			t.Errorf("got no %q in\n%s", want, text)
		}
	}
}
