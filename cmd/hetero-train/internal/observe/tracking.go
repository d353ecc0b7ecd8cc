package observe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/mlflow"
	"github.com/hetero-train/hetero-train/profiler/trace"
)

// Tracking is the observer that sends the run to MLflow. Its observer methods write only to memory.
type Tracking struct {
	run    *assembly.Run
	spool  *mlflow.Spool
	sender *mlflow.Sender
	oracle float64 // fraction of the oracle at the latest decision; 0: unknown
	*points
}

// OpenTracking opens the spool of points, and starts to send them. It returns nil if tracking.mlflow is empty.
func OpenTracking(a *assembly.Run, resume *checkpoint.State) (*Tracking, error) {
	c := a.Process.Cfg.Tracking
	if c.MLflow == "" {
		return nil, nil
	}
	log := a.Process.Opts.LogOf(logs.ComponentProfiler)
	hide := logs.SecretsIn(a.Process.Opts.Env.Environ)
	start := mlflow.Start{Experiment: c.Experiment, Name: a.Folder.Name, Time: time.Now().UnixMilli(),
		Params: map[string]string{}, Tags: map[string]string{
			"mlflow.source.name": "hetero-train", "mlflow.source.type": "LOCAL", "hetero_train.version": version.Text(),
			"hetero_train.device":    a.Rank.Device.Info().Name,
			"hetero_train.precision": compute.TypesText(a.Rank.Types),
			"hetero_train.ranks":     fmt.Sprint(max(a.Process.Opts.Assignment.WorldSize, 1)),
			"hetero_train.folder":    a.Folder.Dir}}
	if host, err := os.Hostname(); err == nil {
		start.Tags["hetero_train.host"] = host
	}
	for _, s := range a.Settings() {
		value := s.Value
		if text, err := strconv.Unquote(value); err == nil {
			value = text
		}
		start.Params[s.Key] = hide.Text(value)
	}
	t := &Tracking{run: a, points: newPoints(a, c.Interval)}
	var err error
	t.spool, err = mlflow.OpenSpool(a.Folder.LogDir(), start, resume == nil, a.Queue, func(err error) {
		if err == nil {
			log.Info("the spool of MLflow can be written again")
			return
		}
		log.Warn("the spool of MLflow cannot be written and is kept in memory", "error", err)
	})
	if err != nil {
		return nil, exit.With(exit.FolderCode(err), fmt.Errorf("tracking: %w", err))
	}
	t.sender = mlflow.StartSender(mlflow.SenderOptions{RunDir: a.Folder.Dir, LogDir: a.Folder.LogDir(),
		Target: c.MLflow, Environ: a.Process.Opts.Env.Environ,
		OnFault: func(err error) {
			if err == nil {
				log.Info("MLflow takes points again; the points on the disk are sent")
				return
			}
			log.Warn("MLflow does not take points; training continues, and the points are kept on the disk until MLflow takes them",
				"error", err)
		},
		OnSkip: func(file string, err error) {
			log.Warn("a file could not be sent to MLflow", "file", file, "error", err)
		},
		OnRefuse: func(err error) {
			log.Warn(
				"MLflow refuses the run; training continues without MLflow; remove the cause, then send the run with: "+
					t.syncCommand(), "error", err)
		}})
	a.Process.Later(func() error { t.close(); return nil })
	log.Info("metrics go to MLflow", "target", c.MLflow, "experiment", c.Experiment)
	return t, nil
}

// End adds the status and the files of the run to the spool, and sends the rest of the spool.
func (t *Tracking) End(r train.Result, err error) {
	if t == nil {
		return
	}
	status := mlflow.Finished
	switch {
	case errors.As(err, new(exit.Stopped)), err == nil && r.OutOfTime: // the run can resume
		status = mlflow.Killed
	case err != nil:
		status = mlflow.Failed
	}
	dir, logDir := t.run.Folder.Dir, t.run.Folder.LogDir()
	for _, name := range []string{"configs/resolved.toml", "configs/gpu_profiles.json", "results/result.json",
		"results/results.md"} {
		t.addFile(name, filepath.Join(dir, filepath.FromSlash(name)))
	}
	for _, name := range []string{SummaryFile, LatencyFile, "curves.csv"} {
		t.addFile("logs/"+name, filepath.Join(logDir, name))
	}
	t.spool.Add(mlflow.Line{Status: status, Time: time.Now().UnixMilli()})
	t.close()
}

// addFile adds a file of the run to the spool, if the file exists.
func (t *Tracking) addFile(name, path string) {
	if parts.Exists(path) {
		t.spool.Add(mlflow.Line{Artifact: name})
	}
}

// syncCommand returns the command that sends the rest of the run to MLflow. The command names the server, because the
// program sends credentials only to a server that the user names.
func (t *Tracking) syncCommand() string {
	return fmt.Sprintf("hetero-train tracking sync %s --mlflow %s", t.run.Folder.Dir, t.run.Process.Cfg.Tracking.MLflow)
}

// close sends the rest of the spool, which takes at most tracking.flush_seconds. A second call does nothing.
func (t *Tracking) close() {
	if t.sender == nil {
		return
	}
	sender := t.sender
	t.sender = nil
	log := t.run.Process.Opts.LogOf(logs.ComponentProfiler)
	if err := t.spool.Close(); err != nil {
		log.Warn("the spool of MLflow is incomplete", "error", err)
	}
	if n := t.spool.Dropped(); n > 0 {
		log.Warn("points for MLflow were lost because the disk could not be written", "points", n)
	}
	if sender.Close(session.Seconds(t.run.Process.Cfg.Tracking.FlushSeconds)) {
		log.Warn("MLflow does not have the whole run; send the rest with: " + t.syncCommand())
	}
}

func line(step int64, at time.Time, values []trace.Scalar) mlflow.Line {
	l := mlflow.Line{Step: step, Time: at.UnixMilli(), Metrics: make(map[string]mlflow.Value, len(values))}
	for _, v := range values {
		l.Metrics[v.Tag] = mlflow.Value(v.Value)
	}
	return l
}

// StepDone implements [train.Observer].
func (t *Tracking) StepDone(r *train.StepRecord) {
	values := t.add(r)
	if values == nil {
		return
	}
	l := line(r.Step, r.Time, values)
	if t.oracle > 0 {
		l.Metrics["balance/oracle_ratio"] = mlflow.Value(t.oracle)
	}
	t.spool.Add(l)
}

// Decided stores the fraction of the oracle at this decision (see docs/balancing.md), or 0 if it is unknown. StepDone
// sends it as balance/oracle_ratio.
func (t *Tracking) Decided(_ int, d *balancer.Decision, _ []straggler.Verdict) {
	t.oracle = 0
	if v := d.ShareOfOracle(); v > 0 {
		t.oracle = v
	}
}

// EvalDone implements train.Observer.
func (t *Tracking) EvalDone(e train.Evaluation) {
	l := line(e.Step, time.Now(), t.evaluation(e))
	l.Evaluation = true
	t.spool.Add(l)
}

// RolledBack implements [train.Observer]. MLflow cannot remove points, so the points of repeated steps stay.
func (t *Tracking) RolledBack(int64) { t.reset() }

// Saving implements [train.Observer]. It flushes the spool, so that the spool on the disk contains the points of all
// steps before the checkpoint.
func (t *Tracking) Saving() { t.spool.SyncSoon() } // OnFault reports an error

// Saved implements train.Observer.
func (t *Tracking) Saved(checkpoint.Saved, time.Duration) {}

// Warn implements train.Observer.
func (t *Tracking) Warn(error) {}
