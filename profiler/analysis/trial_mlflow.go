package analysis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/mlflow"
)

// mlflowMeta is the name of a file that each run in an MLflow file store contains.
const mlflowMeta = "meta.yaml"

// Limits of a run of MLflow.
const (
	mostMLflowText   = 64 << 10 // bytes of a parameter, a tag, or the description of a run
	mostMLflowPoints = 4 << 20  // points of a metric
	mostMLflowParams = 4096
)

// mlflowStatuses maps the statuses in meta.yaml and in replies of servers to the words of Trial.Status.
var mlflowStatuses = map[string]string{
	"1": "running", "2": "scheduled", "3": "finished", "4": "failed", "5": "stopped",
	mlflow.Running: "running", "SCHEDULED": "scheduled", mlflow.Finished: "finished", mlflow.Failed: "failed",
	mlflow.Killed: "stopped",
}

// mlflowCurves are the curves that are read, with the names of their metrics. This program uses the first name of each
// curve; the other names are common in other programs.
var mlflowCurves = []struct {
	Curve
	names []string
	scale float64
}{
	{Curve{Key: lossCurve, Title: "training loss"}, []string{"train/loss", "train_loss", "training_loss", "loss"}, 1},
	{Curve{Key: accuracyCurve, Title: "training accuracy", Unit: "%"},
		[]string{"train/top1", "train_accuracy", "train_acc", "accuracy"}, 100},
	{Curve{Key: evalPrefix + "loss", Title: "evaluation loss"},
		[]string{"eval/loss", "eval_loss", "val_loss", "validation_loss", "test_loss"}, 1},
	{Curve{Key: evalPrefix + "top1", Title: "evaluation accuracy", Unit: "%"},
		[]string{"eval/top1", "eval_accuracy", "val_accuracy", "val_acc", "test_accuracy"}, 100},
	{Curve{Key: evalPrefix + "top5", Title: "evaluation top-5", Unit: "%"}, []string{"eval/top5"}, 100},
	{Curve{Key: evalPrefix + "perplexity", Title: "evaluation perplexity"},
		[]string{"eval/perplexity", "eval_perplexity", "val_perplexity"}, 1},
	{Curve{Key: evalPrefix + "next_sentence", Title: "evaluation next sentence", Unit: "%"},
		[]string{"eval/next_sentence"}, 100},
	{Curve{Key: evalPrefix + "f1", Title: "evaluation F1"}, []string{"eval/f1", "eval_f1", "val_f1"}, 1},
	{Curve{Key: oracleCurve, Title: "fraction of the oracle", Unit: "%"}, []string{"balance/oracle_ratio"}, 100},
}

// mlflowRates are the metrics of throughput, by unit.
var mlflowRates = map[string]string{"img": "speed/images_per_second", "tok": "speed/tokens_per_second",
	"samples": "speed/samples_per_second"}

// mlflowCounts are the metrics with the number of images, tokens or samples since the start of the run, by unit.
var mlflowCounts = map[string]string{"img": "progress/images", "tok": "progress/tokens", "samples": "progress/samples"}

// isMLflowRun reports whether a folder is that of a run in a file store of MLflow.
func isMLflowRun(path string) bool {
	for _, name := range []string{mlflowMeta, "metrics"} {
		if _, err := os.Stat(filepath.Join(path, name)); err != nil {
			return false
		}
	}
	return true
}

// mlflowMetrics returns the points of a metric, in the order in which they were written; nil if there is no such
// metric.
type mlflowMetrics func(name string) ([]mlflow.Point, error)

// readMLflow reads a run from a file store of MLflow.
func readMLflow(path string) (*Trial, error) {
	t := newTrial(path, "mlflow")
	if err := stayIn(path, mlflowMeta, "metrics", "params", "tags"); err != nil {
		return nil, fmt.Errorf("read the run of MLflow: %w", err)
	}
	meta, err := regular.Read(filepath.Join(path, mlflowMeta), mostMLflowText)
	if err != nil {
		return nil, fmt.Errorf("read the run of MLflow: %w", err)
	}
	for line := range strings.Lines(string(meta)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if text, err := strconv.Unquote(value); err == nil {
			value = text
		}
		value = strings.Trim(value, "'")
		switch key {
		case "run_name":
			t.Name = value
		case "status":
			t.Status = mlflowStatuses[value]
		}
	}
	if err := t.readParams(path); err != nil {
		return nil, err
	}
	t.addMLflowFacts(func(name string) string {
		text, err := regular.Read(filepath.Join(path, "tags", name), mostMLflowText)
		if err != nil {
			return "" // tags are optional
		}
		return strings.TrimSpace(string(text))
	})
	return t, t.addMLflowMetrics(func(name string) ([]mlflow.Point, error) { return t.readMetric(path, name) })
}

// stayIn is regular.StayIn for the folder path.
func stayIn(path string, names ...string) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close() // read only
	return regular.StayIn(root, names...)
}

// readRemote reads a run from a server of MLflow.
func readRemote(ctx context.Context, address string, environ []string) (*Trial, error) {
	server, run, err := mlflow.OpenRun(ctx, address, environ)
	if server, _, _ := strings.Cut(address, "#"); strings.Contains(server, "@") {
		address = "http://…" + address[strings.LastIndexByte(server, '@'):] // without a password
	}
	if err != nil {
		return nil, remoteError(address, err)
	}
	t := newTrial(run.Address, "mlflow")
	t.Name, t.Status = cmp.Or(run.Name, run.ID), mlflowStatuses[run.Status]
	if len(run.Params) > mostMLflowParams {
		return nil, fmt.Errorf("%s: got %d parameters, want at most %d", address, len(run.Params), mostMLflowParams)
	}
	t.Settings = run.Params
	t.addMLflowFacts(func(name string) string { return run.Tags[name] })
	return t, t.addMLflowMetrics(func(name string) ([]mlflow.Point, error) {
		if _, has := slices.BinarySearch(run.Metrics, name); !has {
			return nil, nil
		}
		points, err := server.History(ctx, run.ID, name, mostMLflowPoints)
		return points, remoteError(address, err)
	})
}

// remoteError wraps err, the failure to read a run from a server. The result is a ServerError, unless the user must
// change the command.
func remoteError(address string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, mlflow.ErrAddress), errors.Is(err, mlflow.ErrNotFound), errors.Is(err, mlflow.ErrAmbiguous),
		errors.Is(err, mlflow.ErrLimit):
		return fmt.Errorf("%s: %w", address, err)
	}
	return &ServerError{address, err}
}

// ServerError reports that an MLflow server did not return a run.
type ServerError struct {
	Address string // address of the run
	Err     error
}

func (e *ServerError) Error() string { return fmt.Sprintf("read %s from MLflow: %v", e.Address, e.Err) }

// Unwrap returns the cause.
func (e *ServerError) Unwrap() error { return e.Err }

// addMLflowFacts sets the fields that follow from parameters and from the tags of this program.
func (t *Trial) addMLflowFacts(tag func(name string) string) {
	if t.Status == "" {
		t.Status = "unknown"
	}
	t.Model, t.Dataset, t.Precision = t.Settings["model.name"], t.Settings["data.dataset"],
		t.Settings["train.precision"]
	t.BatchSize, _ = strconv.ParseInt(t.Settings["data.batch_size"], 10, 64) // 0 if unknown
	t.Device, t.Precision = tag("hetero_train.device"), cmp.Or(tag("hetero_train.precision"), t.Precision)
	t.Ranks, _ = strconv.Atoi(tag("hetero_train.ranks")) // 0 if unknown
}

// addMLflowMetrics reads the metrics. It adds the curves and the figures about speed.
func (t *Trial) addMLflowMetrics(of mlflowMetrics) error {
	times, err := of.sorted("progress/training_seconds")
	if err != nil {
		return err
	}
	counted, err := of.sorted("progress/steps")
	if err != nil {
		return err
	}
	for _, c := range mlflowCurves {
		for _, name := range c.names {
			points, err := of.sorted(name)
			if err != nil {
				return err
			}
			if len(points) > 0 {
				t.addMLflowCurve(c.Curve, points, c.scale, times)
				break
			}
		}
	}
	for _, unit := range sortedKeys(mlflowRates) {
		points, err := of.sorted(mlflowRates[unit])
		if err != nil {
			return err
		}
		if len(points) > 0 {
			t.Unit = unit
			t.addMLflowCurve(Curve{Key: throughputCurve, Title: "throughput", Unit: unit + "/s"}, points, 1, times)
			done, err := of.sorted(mlflowCounts[unit])
			if err != nil {
				return err
			}
			t.addMLflowSpeed(points, times, done, counted)
			break
		}
	}
	if len(t.Curves) == 0 {
		return fmt.Errorf(
			"%s: the run of MLflow has no metric that can be compared, such as train/loss, train_loss, loss or val_loss",
			t.Path)
	}
	return nil
}

// sorted returns the points of a metric, one for each step, sorted by step. A resumed run may write several points for
// a step, of which sorted keeps the last one.
func (of mlflowMetrics) sorted(name string) ([]mlflow.Point, error) {
	points, err := of(name)
	slices.Reverse(points) // the last point of a step becomes its first one, which Compact keeps
	slices.SortStableFunc(points, func(a, b mlflow.Point) int { return cmp.Compare(a.Step, b.Step) })
	return slices.CompactFunc(points, func(a, b mlflow.Point) bool { return a.Step == b.Step }), err
}

// readParams reads the parameters from a file store.
func (t *Trial) readParams(path string) error {
	dir := filepath.Join(path, "params")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the run of MLflow: %w", err)
	}
	if len(entries) > mostMLflowParams {
		return fmt.Errorf("%s: got %d parameters, want at most %d", dir, len(entries), mostMLflowParams)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		text, err := regular.Read(filepath.Join(dir, e.Name()), mostMLflowText)
		if err != nil {
			return fmt.Errorf("read the run of MLflow: %w", err)
		}
		t.Settings[e.Name()] = strings.TrimSuffix(string(text), "\n")
	}
	return nil
}

// readMetric returns the points of a metric in a file store, in the order of the file. It returns nil if there is no
// such metric.
func (t *Trial) readMetric(path, name string) ([]mlflow.Point, error) {
	var points []mlflow.Point
	damaged := 0
	file := filepath.Join(path, "metrics", filepath.FromSlash(name))
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return nil, nil // a folder is not a metric: "train" is a folder if there is a metric "train/loss"
	}
	err := regular.EachLine(file, func(line []byte) error {
		fields := strings.Fields(string(line))
		if len(fields) < 2 || len(fields) > 3 {
			damaged++
			return nil
		}
		at, timeErr := strconv.ParseInt(fields[0], 10, 64)
		value, valueErr := strconv.ParseFloat(fields[1], 64)
		step, stepErr := int64(len(points)), error(nil)
		if len(fields) == 3 {
			step, stepErr = strconv.ParseInt(fields[2], 10, 64)
		}
		if timeErr != nil || valueErr != nil || stepErr != nil || step < 0 {
			damaged++
			return nil
		}
		if len(points) == mostMLflowPoints {
			return fmt.Errorf("got more than %d points", mostMLflowPoints)
		}
		points = append(points, mlflow.Point{Step: step, Time: at, Value: value})
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read metric %s of MLflow: %w", name, err)
	}
	if damaged > 0 {
		t.Damaged = append(t.Damaged, ignored(file, damaged))
	}
	return points, nil
}

// addMLflowCurve adds a curve and its last value. The parameter times contains the points of the training time; it may
// be empty.
func (t *Trial) addMLflowCurve(c Curve, points []mlflow.Point, scale float64, times []mlflow.Point) {
	points = slices.DeleteFunc(slices.Clone(points), func(p mlflow.Point) bool {
		return math.IsNaN(p.Value) || math.IsInf(p.Value, 0)
	})
	if len(points) == 0 {
		return
	}
	width := (len(points) + trialPoints - 1) / trialPoints
	for i := 0; i < len(points); i += width {
		part := points[i:min(i+width, len(points))]
		sum := 0.0
		for _, p := range part {
			sum += p.Value
		}
		last := part[len(part)-1]
		seconds := trainedAt(times, last.Step)
		if len(times) == 0 { // the points contain only wall-clock times, which include pauses
			seconds = float64(last.Time-points[0].Time) / 1e3
		}
		c.Points = append(c.Points, TrialPoint{last.Step, Number(seconds), Number(sum / float64(len(part)) * scale)})
	}
	t.Curves = append(t.Curves, c)
	last := points[len(points)-1]
	t.Steps = max(t.Steps, last.Step)
	if at := time.UnixMilli(last.Time); last.Time > 0 && at.After(t.newest) {
		t.newest = at
	}
	switch key, evaluated := strings.CutPrefix(c.Key, evalPrefix); {
	case c.Key == lossCurve:
		t.TrainLoss = Number(last.Value)
	case key == "loss":
		t.EvalLoss = Number(last.Value)
	case evaluated:
		t.setMetric(trialMetric{key: key, title: strings.TrimPrefix(c.Title, "evaluation "), percent: c.Unit == "%",
			value: last.Value})
	case c.Key == oracleCurve:
		t.ShareOfOracle = oracleMean(points)
	}
}

// oracleMean returns the mean of the balancer's estimates, weighted as in Summary.addDecisions. The points repeat an
// estimate until the next decision, but an estimate describes the steps since the previous decision. The mean is
// approximate, because only some steps have points.
func oracleMean(points []mlflow.Point) Number {
	previous, steps, sum := int64(0), 0.0, 0.0
	for i, p := range points {
		if i > 0 && p.Value == points[i-1].Value {
			continue
		}
		n := float64(max(0, p.Step-previous))
		previous, steps, sum = p.Step, steps+n, sum+n*p.Value
	}
	return Number(sum / steps) // NaN if no step is known
}

// trainedAt returns the training time at the end of a step, interpolated between the points of times.
func trainedAt(times []mlflow.Point, step int64) float64 {
	i, found := slices.BinarySearchFunc(times, step, func(p mlflow.Point, step int64) int {
		return cmp.Compare(p.Step, step)
	})
	switch {
	case found:
		return times[i].Value
	case i == len(times) && i > 0:
		return times[i-1].Value
	case i == len(times):
		return 0
	}
	from := mlflow.Point{}
	if i > 0 {
		from = times[i-1]
	}
	return from.Value + (times[i].Value-from.Value)*float64(step-from.Step)/float64(times[i].Step-from.Step)
}

// addMLflowSpeed sets the figures about speed. Each point of rate is the mean over the steps since the previous point.
// The points of times (s), done (images, tokens or samples) and counted (steps) are totals since the start of the run.
func (t *Trial) addMLflowSpeed(rate, times, done, counted []mlflow.Point) {
	if len(times) == 0 || !(times[len(times)-1].Value > 0) || times[len(times)-1].Step <= 0 {
		return
	}
	last, work, previous := times[len(times)-1], 0.0, 0.0
	for _, p := range rate {
		now := trainedAt(times, p.Step)
		work, previous = work+max(now-previous, 0)*p.Value, now
	}
	if n := len(done); n > 0 && done[n-1].Step == last.Step {
		// this total is exact, even if the first point after a resume covers fewer steps
		work = done[n-1].Value
	}
	steps := float64(last.Step)
	if n := len(counted); n > 0 && counted[n-1].Step == last.Step && counted[n-1].Value > 0 {
		// less than the step number if the run started from a checkpoint of another run
		steps = counted[n-1].Value
	}
	t.Throughput, t.StepTime, t.TrainingTime = Number(work/last.Value), Number(last.Value/steps), Number(last.Value)
	if t.Ranks > 0 {
		t.RankHours = t.TrainingTime * Number(t.Ranks) / 3600
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
