package analysis

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runs"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Trial is a run that is compared with other runs side by side. Its curves have at most trialPoints points, so memory
// does not depend on the length of the run. Unknown numbers are null in JSON.
type Trial struct {
	diverged bool // the run ended because its loss was not finite

	Name   string `json:"name"` // unique in a comparison
	Path   string `json:"path"`
	Source string `json:"source"` // "records": files of this program; "mlflow": file store or server of MLflow

	Status    string `json:"status"` // running, finished, stopped, failed, crashed, unknown
	Model     string `json:"model,omitempty"`
	Dataset   string `json:"dataset,omitempty"`
	Device    string `json:"device,omitempty"`
	Precision string `json:"precision,omitempty"`
	Ranks     int    `json:"ranks,omitempty"`
	BatchSize int64  `json:"batch_size,omitempty"` // global batch size
	Unit      string `json:"unit,omitempty"`       // what the throughput counts: img, tok, samples; "" if unknown

	Steps int64 `json:"steps"` // newest recorded step
	// FirstStep is the first step with Ranks ranks; 0 if unknown. Throughput, StepTime and the means over ranks cover
	// only the steps from FirstStep on. TrainingTime, RankHours and the losses cover the whole run.
	FirstStep         int64  `json:"first_step,omitempty"`
	TrainLoss         Number `json:"final_train_loss"`
	EvalLoss          Number `json:"final_eval_loss"`
	Throughput        Number `json:"throughput_per_sec"` // Unit per second, all ranks, without pauses
	StepTime          Number `json:"step_time"`          // mean, s
	CommunicationTime Number `json:"communication_time_per_step"`
	Imbalance         Number `json:"load_imbalance"`       // fraction 0…1
	ShareOfOracle     Number `json:"share_of_oracle_mean"` // fraction 0…1, for the mean step
	Gain              Number `json:"gain_over_equal_shares"`
	Utilization       Number `json:"gpu_utilization"` // fraction 0…1, mean over ranks and steps
	TimeToLoss        Number `json:"time_to_loss"`    // training time until the run reaches SideBySide.Target, s
	TrainingTime      Number `json:"training_time"`   // sum of the times of all steps, s
	RankHours         Number `json:"rank_hours"`      // sum of (step time × number of ranks) over all steps, h
	// energy of the devices of all ranks, kWh; unknown if a rank has no power sensor, or if the number of ranks changed
	Energy Number `json:"energy_kwh"`

	// GainUnknown is the reason why Gain is unknown.
	GainUnknown string `json:"gain_over_equal_shares_unknown,omitempty"`

	Settings map[string]string `json:"-"`
	Curves   []Curve           `json:"curves"`
	Changes  []Change          `json:"changes_of_shares,omitempty"` // the newest changes whose outcome is known
	Damaged  []string          `json:"damaged,omitempty"`           // descriptions of unreadable parts of the records

	metrics []trialMetric // evaluated metrics, with their last values
	newest  time.Time     // time of the newest point of MLflow; zero for other sources
}

// Change is a change of shares with its predicted and achieved speed-up. Both exclude the noise of steps.
type Change struct {
	Step      int64  `json:"step"` // last step before the change
	Predicted Number `json:"predicted"`
	Achieved  Number `json:"achieved"`
	Low       Number `json:"achieved_low"` // ends of the 90 % interval of Achieved
	High      Number `json:"achieved_high"`
}

// Curve is a value over the steps of a run.
type Curve struct {
	// "loss", "accuracy", "throughput", "share_of_oracle", or "eval_" followed by the key of a metric
	Key    string       `json:"key"`
	Title  string       `json:"title"` // for display
	Unit   string       `json:"unit,omitempty"`
	Points []TrialPoint `json:"points"`
}

// TrialPoint is a point of a curve. With many steps, it is the mean of successive steps.
type TrialPoint struct {
	Step    int64  `json:"step"`    // last step of the point
	Seconds Number `json:"seconds"` // training time up to this step, without pauses, s
	Value   Number `json:"value"`
}

// trialMetric is the last value of an evaluated metric.
type trialMetric struct {
	key, title string
	percent    bool
	value      float64
}

const (
	trialPoints = 600     // points of a curve: more than a figure can show
	readBytes   = 8 << 20 // bytes of records read at a time
)

// Keys of curves.
const (
	lossCurve       = "loss"
	accuracyCurve   = "accuracy"
	throughputCurve = "throughput"
	oracleCurve     = "share_of_oracle"
	evalPrefix      = "eval_"
)

func newTrial(path, source string) *Trial {
	n := Number(unknown)
	t := &Trial{Name: filepath.Base(path), Path: path, Source: source, TrainLoss: n, EvalLoss: n, Throughput: n,
		StepTime: n, CommunicationTime: n, Imbalance: n,
		ShareOfOracle: n, Gain: n, Utilization: n, TimeToLoss: n, TrainingTime: n, RankHours: n, Energy: n,
		Settings: map[string]string{}}
	if whole, err := filepath.Abs(path); err == nil {
		t.Name = filepath.Base(whole)
	}
	return t
}

// ReadTrial reads a run, which may be running, finished or killed. path is the folder of a run of this program, the
// folder of a run in a file store of MLflow, or the address of a run on an MLflow server (mlflow.ErrAddress). environ
// contains the credentials for the server. If the server fails, the error is a ServerError.
func ReadTrial(ctx context.Context, path string, environ []string) (*Trial, error) {
	if isAddress(path) {
		return readRemote(ctx, path, environ)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no folder %s", path)
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is a file, want the folder of a run", path)
	}
	if isMLflowRun(path) {
		return readMLflow(path)
	}
	folder, err := runs.OpenFolder(path)
	if err != nil {
		return nil, err
	}
	defer folder.Close() // read only
	name, ok := folder.Single()
	if !ok {
		return nil, fmt.Errorf("%s is not the folder of a run: it has neither configs/resolved.toml nor records in logs, and no meta.yaml of MLflow",
			path)
	}
	run, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	defer run.Close() // read only
	return TrialOf(ctx, run, path)
}

// TrialOf returns the figures of an open run of this program, whose folder is path. It makes run read the records that
// it has not read yet. For the figures of a Summary, all records are read a second time.
func TrialOf(ctx context.Context, run *runs.Run, path string) (*Trial, error) {
	for ctx.Err() == nil && run.Update(readBytes) {
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	v := run.View()
	if v.Last == 0 {
		if v.State.Why != "" {
			return nil, fmt.Errorf("%s has no records of steps: %s", path, v.State.Why)
		}
		return nil, fmt.Errorf("%s: %w", path, ErrNoRecords)
	}
	s, err := summarize(ctx, path, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t := newTrial(path, "records")
	t.Status, t.Ranks, t.BatchSize, t.Steps, t.Damaged = string(v.State.Kind), s.Ranks, s.BatchSize, s.Steps, s.Damaged
	t.Model, t.Dataset, t.Precision, t.Device = v.Settings.Model.Name, v.Settings.Data.Dataset, v.Precision, s.Device
	if s.Model != "" {
		t.Model, t.Dataset, t.Precision = s.Model, s.Dataset, s.Precision
	}
	units := 1.0
	titles := map[string]trialMetric{}
	for _, e := range v.Starts {
		t.Unit, units = e.Start.Unit, float64(max(e.Start.Units, 1))
		for _, m := range e.Start.Metrics {
			titles[m.Key] = trialMetric{key: m.Key, title: m.Title, percent: m.Percent}
		}
	}
	t.Throughput, t.StepTime, t.CommunicationTime = s.Throughput*Number(units), s.StepTime.Mean, s.CommunicationTime
	t.Imbalance, t.ShareOfOracle, t.Gain, t.Utilization, t.TrainingTime = s.Imbalance, s.ShareOfOracleMean, s.Gain,
		s.Utilization, s.TrainingTime
	t.GainUnknown = s.GainUnknown
	t.FirstStep, t.RankHours = s.FirstStep, Number(s.rankSeconds/3600)
	t.Energy = energy(s)
	if err := t.addSettings(path); err != nil {
		return nil, err
	}
	if err := t.addSteps(ctx, run, units); err != nil {
		return nil, err
	}
	t.diverged = v.Result != nil && v.Result.Exit == exitDiverged
	if r := v.Ranks[0].Record; r != nil {
		t.TrainLoss = Number(r.Values[telemetry.Loss]) // the last point of the curve may be a mean
	}
	for _, c := range v.Changes {
		if o := c.Outcome; o != nil {
			t.Changes = append(t.Changes, Change{c.Step, numberOf(o.Predicted), numberOf(o.Achieved), numberOf(o.Low),
				numberOf(o.High)})
		}
	}
	for _, e := range v.Evals {
		t.addEvaluation(e.Step, e.Evaluation.Loss, e.Evaluation.Metrics, titles)
	}
	return t, nil
}

// exitDiverged is the exit code of a run whose loss was not finite.
const exitDiverged = 4

func numberOf(v *float64) Number {
	if v == nil {
		return Number(unknown)
	}
	return Number(*v)
}

// energy returns the energy of the devices in kWh, or NaN if the power of a rank is unknown. If the number of ranks has
// changed, the power before the change is unknown.
func energy(s *Summary) Number {
	if s.FirstStep > 1 {
		return Number(unknown)
	}
	watts := Number(0)
	for _, r := range s.PerRank {
		watts += r.PowerWatts
	}
	return watts * s.TrainingTime / 3.6e6
}

// addSettings reads the settings of the run. They are optional, because the records are sufficient.
func (t *Trial) addSettings(path string) error {
	settings, err := readSettings(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t.Settings = settings
	return nil
}

// addSteps adds the curves over training steps.
func (t *Trial) addSteps(ctx context.Context, run *runs.Run, units float64) error {
	f, err := run.Figures(ctx, runs.Query{From: 1, Points: trialPoints,
		Columns: []string{"loss", "accuracy", "total_throughput", "share_of_oracle", "training_time"}})
	if err != nil {
		return err
	}
	seconds := trainingTimes(f)
	for _, l := range f.Lines {
		c := Curve{}
		scale := 1.0
		switch l.Column {
		case "loss":
			c.Key, c.Title = lossCurve, "training loss"
		case "accuracy":
			c.Key, c.Title, c.Unit, scale = accuracyCurve, "training accuracy", "%", 100
		case "total_throughput":
			c.Key, c.Title, c.Unit, scale = throughputCurve, "throughput", t.unit()+"/s", units
		case "share_of_oracle":
			c.Key, c.Title, c.Unit, scale = oracleCurve, "fraction of the oracle", "%", 100
		default:
			continue
		}
		for i, v := range l.Mean {
			if !math.IsNaN(v) {
				c.Points = append(c.Points, TrialPoint{f.Steps[i], seconds[i], Number(v * scale)})
			}
		}
		if len(c.Points) == 0 {
			continue
		}
		if c.Key == lossCurve {
			t.Curves = append([]Curve{c}, t.Curves...) // secondsAt needs this curve
			continue
		}
		t.Curves = append(t.Curves, c)
	}
	return nil
}

// trainingTimes returns the training time at the end of each point, in s.
func trainingTimes(f *runs.Figures) []Number {
	seconds := make([]Number, len(f.Steps))
	for _, l := range f.Lines {
		if l.Column != "training_time" {
			continue
		}
		values := l.Mean
		if l.Max != nil { // each point stands for several steps
			values = l.Max
		}
		for i := range seconds {
			seconds[i] = Number(values[i])
		}
	}
	return seconds
}

// unit returns the unit of the throughput.
func (t *Trial) unit() string {
	if t.Unit == "" {
		return "samples"
	}
	return t.Unit
}

// addEvaluation adds the results of one evaluation.
func (t *Trial) addEvaluation(step int64, loss *float64, metrics map[string]*float64, titles map[string]trialMetric) {
	if loss != nil {
		t.EvalLoss = Number(*loss)
		t.addPoint(Curve{Key: evalPrefix + "loss", Title: "evaluation loss"}, step, *loss)
	}
	for _, key := range sortedKeys(metrics) {
		v := metrics[key]
		if v == nil {
			continue
		}
		m, found := titles[key]
		if !found {
			m = trialMetric{key: key, title: key}
		}
		m.value = *v
		t.setMetric(m)
		c, scale := Curve{Key: evalPrefix + key, Title: "evaluation " + m.title}, 1.0
		if m.percent {
			c.Unit, scale = "%", 100
		}
		t.addPoint(c, step, *v*scale)
	}
}

// setMetric sets the last value of a metric.
func (t *Trial) setMetric(m trialMetric) {
	for i := range t.metrics {
		if t.metrics[i].key == m.key {
			t.metrics[i] = m
			return
		}
	}
	t.metrics = append(t.metrics, m)
}

// addPoint adds a point to the curve with the key of c. If there is no such curve, it first adds c.
func (t *Trial) addPoint(c Curve, step int64, value float64) {
	at := t.curve(c.Key)
	if at == nil {
		t.Curves = append(t.Curves, c)
		at = &t.Curves[len(t.Curves)-1]
	}
	at.Points = append(at.Points, TrialPoint{step, Number(t.secondsAt(step)), Number(value)})
}

// curve returns the curve with a key, or nil.
func (t *Trial) curve(key string) *Curve {
	for i := range t.Curves {
		if t.Curves[i].Key == key {
			return &t.Curves[i]
		}
	}
	return nil
}

// secondsAt returns the training time at the end of a step, interpolated between the points of the loss. For a step
// after the last point, it is the time of the last point. Such steps exist if profile.interval is above 1, because the
// last steps may lack a record.
func (t *Trial) secondsAt(step int64) float64 {
	loss := t.curve(lossCurve)
	if loss == nil {
		return unknown
	}
	from := TrialPoint{}
	for _, p := range loss.Points {
		if p.Step >= step {
			part := float64(step-from.Step) / float64(max(p.Step-from.Step, 1))
			return float64(from.Seconds) + part*float64(p.Seconds-from.Seconds)
		}
		from = p
	}
	return float64(from.Seconds)
}
