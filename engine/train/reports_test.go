package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// listening is a Splitter that stores the reports, and never changes the shares.
type listening struct{ heard *[][]RankStep }

func (l listening) Split(_ int64, ranks []RankStep, _ bool) []int {
	*l.heard = append(*l.heard, slices.Clone(ranks))
	return nil
}

func TestReportsAreOfTheStepThatIsTheirs(t *testing.T) {
	o := testOptions()
	o.Accumulation = 2
	var heard [2][][]RankStep
	ranks := crew{open: openReference, options: o, shares: []int{2, 1}, sync: true, cap: 200, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
			o.Splitter = listening{&heard[rank]}
			o.Telemetry = func() telemetry.Sample {
				return telemetry.Sample{telemetry.Utilization: float64(10 + rank), telemetry.Memory: 0.5,
					telemetry.OtherProcesses: 1}
			}
			o.Links = func() LinkReport {
				return LinkReport{First: 3 + rank, Traffic: [LinksPerStep]telemetry.Traffic{
					{Sent: 100, SentBytes: 1<<40 + 1}, {Received: float64(1 + rank)}}}
			}
		}}.start(t)
	for rank, s := range ranks {
		if s.err != nil {
			t.Fatalf("rank %d: %v", rank, s.err)
		}
		before := replica.StepTimes{}
		for i, step := range s.steps {
			own, there := step.Ranks[rank], ranks[1-rank].steps[i].Ranks[rank]
			if own.Times != step.Times || own.Times.Total() <= 0 || own.Buckets != step.Buckets ||
				own.Bytes != step.Bytes {
				t.Errorf("rank %d, step %d: its own part is %+v, want the step's times %+v", rank, step.Step, own,
					step.Times)
			}
			want := own // the report that the other rank should receive
			want.Times.Communication, want.Times.Hidden, want.Times.Optimizer = before.Communication, before.Hidden,
				before.Optimizer
			if there != want {
				t.Errorf("rank %d, step %d: the other rank has %+v, want %+v", rank, step.Step, there, want)
			}
			if there.Telemetry[telemetry.Utilization] != float64(10+rank) || there.Samples != o.Accumulation*[]int{
				2, 1}[rank] || there.Times.Exchanges <= 0 ||
				there.Links.First != 3+rank || there.Links.Traffic[0].SentBytes != 1<<40+1 ||
				there.Links.Traffic[1].Received != float64(1+rank) {
				t.Errorf("rank %d, step %d: got %+v", rank, step.Step, there)
			}
			before = own.Times
		}
	}
	if len(heard[0]) != testSteps || heard[0][0] != nil {
		t.Fatalf("the splitter was asked %d times, first with %+v; want %d times, first with nothing", len(heard[0]),
			heard[0][0], testSteps)
	}
	for i := range heard[0] {
		if !slices.Equal(heard[0][i], heard[1][i]) {
			t.Errorf("before step %d: the splitters were told %+v and %+v, want the same", i+1, heard[0][i],
				heard[1][i])
		}
	}
}

func TestComputeIsTheRanksOwnTime(t *testing.T) {
	s := RankStep{Other: 1, Times: replica.StepTimes{Data: 20, Forward: 300, Backward: 4000, Exchanges: 500,
		Optimizer: 60000, Communication: 1e6, Hidden: 1e7}}
	if got, want := s.Compute(), time.Duration(1+20+300+4000-500+60000); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}

func TestAReportComesBackAsItWasPut(t *testing.T) {
	grads := localGroup(t, 1)[0]
	defer grads.Close()
	dev := openReference(t)
	defer dev.Close()
	x, err := newReports(dev, &gradsync.Group{Grads: grads})
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	var figures telemetry.Sample // each sensor has a different value
	for i := range figures {
		figures[i] = 1.5 + float64(i)
	}
	figures[telemetry.ECCErrors] = 1 << 20
	for _, want := range []wish{{}, {stop: true}, {timeOver: true}, {unready: true},
		{stop: true, timeOver: true, unready: true}} {
		own := RankStep{Sums: replica.Sums{Samples: 1 << 20, Count: 1 << 30, Top1: 3, Top5: 5,
			Loss: math.Nextafter(7, 8), SampleLoss: math.Nextafter(2, 3), SampleTop1: 1 << 19}, Other: 9,
			Times: replica.StepTimes{Data: 1, Forward: 2, Backward: math.MaxInt64, Communication: 4, Optimizer: 5,
				Hidden: 6, Exchanges: 7},
			Telemetry: figures,
			Links: LinkReport{
				First: 7, Traffic: [LinksPerStep]telemetry.Traffic{
					{Sent: 1.5, Received: 2.5, SentBytes: 1<<40 + 1, ReceivedBytes: 1<<41 + 1},
					{Sent: 3, Received: 4, SentBytes: 5, ReceivedBytes: 6}}}}
		all, asked, err := x.exchange(context.Background(), own, want)
		if err != nil {
			t.Fatal(err)
		}
		if all[0] != own || asked != want {
			t.Errorf("got %+v, %+v; want %+v, %+v", all[0], asked, own, want)
		}
	}
	own := RankStep{Sums: replica.Sums{Loss: math.Inf(1)}, Telemetry: telemetry.Unknown(), Links: unknownLinks()}
	all, _, err := x.exchange(context.Background(), own, wish{})
	if err != nil || !math.IsInf(all[0].Loss, 1) ||
		fmt.Sprint(all[0].Telemetry, all[0].Links) != fmt.Sprint(telemetry.Unknown(), unknownLinks()) {
		// The test compares texts, because NaN is not equal to NaN.
		t.Errorf("got %+v, %v; want nothing known", all, err)
	}
	if got := unsafe.Sizeof(reportRow{}); got > 248 {
		t.Errorf("a report has %d bytes, want at most 248", got)
	}
	for i := range x.rows.All() {
		x.rows.All()[i] ^= 4
		if _, _, err := x.read(); !errors.Is(err, collective.ErrDamaged) ||
			!strings.Contains(err.Error(), "report of rank 0") {
			t.Fatalf("byte %d changed: got %v", i, err)
		}
		x.rows.All()[i] ^= 4
	}
}

// logged is a communicator that logs the operations that it receives.
type logged struct {
	collective.Communicator
	log []string
}

func (l *logged) Enqueue(op collective.Op) error {
	l.log = append(l.log, op.Tags().Name)
	return l.Communicator.Enqueue(op)
}

func (l *logged) Sync(ctx context.Context) error {
	l.log = append(l.log, "sync")
	return l.Communicator.Sync(ctx)
}

// The reports must follow the last bucket. The ranks must synchronize only once per step.
func TestAStepMeetsOnce(t *testing.T) {
	for name, sequential := range map[string]bool{"overlap": false, "sequential": true} {
		t.Run(name, func(t *testing.T) {
			spies := make([]*logged, 2)
			var logs [2][]string
			ranks := crew{open: openReference, options: testOptions(), shares: []int{4, 2}, sync: true, cap: 200,
				sequential: sequential, dir: t.TempDir(),
				listen: func(rank int, grads collective.Communicator) collective.Communicator {
					spies[rank] = &logged{Communicator: grads}
					return spies[rank]
				},
				change: func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
					o.Eval, o.CompareSteps = nil, 0
					rec.after = func(int64) {
						logs[rank] = append(logs[rank], strings.Join(spies[rank].log, " "))
						spies[rank].log = nil
					}
				}}.start(t)
			for rank, s := range ranks {
				if s.err != nil {
					t.Fatalf("rank %d: %v", rank, s.err)
				}
				for i, log := range logs[rank][1:] { // the first log also contains operations of the start of the run
					if !strings.HasPrefix(log, "bucket 0 bucket 1 ") || !strings.HasSuffix(log, " reports sync") ||
						strings.Count(log, "sync") != 1 || strings.Count(log, "reports") != 1 {
						t.Errorf("rank %d, step %d: got %q, want the buckets, the reports, and to wait once", rank, i+2,
							log)
					}
				}
			}
		})
	}
}
