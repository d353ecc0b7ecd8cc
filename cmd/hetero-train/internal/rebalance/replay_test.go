package rebalance

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/hybrid"
	"github.com/hetero-train/hetero-train/balancer/policies"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// replay passes recorded steps of two ranks to the balancer with a policy. It calls decided for every decision, with
// its verdicts.
func replay(t *testing.T, file, policy string,
	decided func(step int64, d *balancer.Decision, verdicts []straggler.Verdict)) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const total = 64
	b := newTestBalancer()
	b.cfg.Balance, b.run = config.Balance{Policy: policy, Interval: 10},
		assembly.New(&config.Config{}, session.Options{})
	b.options = balancer.Options{Batch: divide.Batch{Total: total}, Ranks: 2, Interval: 10, Types: []string{"a", "b"}}
	if b.Policy, err = policies.New(policy, b.options); err != nil {
		t.Fatal(err)
	}
	if b.Policy, err = hybrid.Explained(b.Policy, b.options); err != nil {
		t.Fatal(err)
	}
	b.observed = make([]straggler.Observation, 2)
	b.detector, b.healthy = straggler.NewDetector(2), straggler.NewReferences(2)
	b.detector.SetTypes(b.options.Types)
	now := int64(0)
	b.watchers = append(b.watchers, func(_ int, d *balancer.Decision, v []straggler.Verdict) { decided(now, d, v) })
	lines := bufio.NewScanner(f)
	ranks := make([]train.RankStep, 2)
	for lines.Scan() {
		var settling, rank, samples int
		var data, forward, backward, communication, exchanges, optimizer, other int64 // in µs
		var quota, stolen float64                                                     // in percent
		if _, err := fmt.Sscan(lines.Text(), &now, &settling, &rank, &samples, &data, &forward, &backward,
			&communication, &exchanges, &optimizer, &other, &quota, &stolen); err != nil {
			t.Fatal(err)
		}
		micros := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
		k := train.RankStep{Sums: replica.Sums{Samples: samples}, Other: micros(other), Telemetry: telemetry.Unknown(),
			Times: replica.StepTimes{Data: micros(data),
				Forward: micros(forward), Backward: micros(backward), Communication: micros(communication),
				Exchanges: micros(exchanges), Optimizer: micros(optimizer)}}
		k.Telemetry[telemetry.CPUQuota], k.Telemetry[telemetry.StolenCPU] = quota, stolen
		if ranks[rank] = k; rank == 1 {
			b.Split(now, ranks, settling == 1)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// testdata/cpu_quota.txt contains the steps of two ranks under policy dynamic on a busy machine. From about step 172 to
// 238, the CPU quota of rank 1 was 0.05 CPUs instead of 0.8. The quota had the kernel's usual period of 100 ms. With
// every policy, the verdicts must report this slowdown, although only hybrid needs step-time curves for its decisions.
func TestARankAtAFractionOfItsQuotaIsSlowerThanUsual(t *testing.T) {
	for _, policy := range []string{"none", "dynamic", "hybrid"} {
		found := 0
		replay(t, "testdata/cpu_quota.txt", policy,
			func(step int64, d *balancer.Decision, verdicts []straggler.Verdict) {
				if v := verdicts[0]; v.Kind == straggler.Sick {
					t.Errorf("%s: step %d: got %+v of rank 0, whose quota did not change", policy, step, v)
				}
				v := verdicts[1]
				switch {
				case step < 172 || step > 320:
					if v.Kind == straggler.Sick {
						t.Errorf("%s: step %d: got %+v", policy, step, v)
					}
				case step > 195 && step < 238:
					found++
					if v.Kind != straggler.Sick || v.Cause != straggler.CauseQuota || v.SinceStep < 172 ||
						v.SinceStep > 190 || !strings.Contains(v.Evidence, "a CPU quota stops the rank for ") {
						t.Errorf("%s: step %d: got %+v, want slower than usual because of the CPU quota", policy, step,
							v)
					}
				}
			})
		if found < 3 {
			t.Errorf("%s: got %d decisions while the quota was low, want at least 3", policy, found)
		}
	}
}
