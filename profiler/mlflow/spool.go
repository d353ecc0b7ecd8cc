package mlflow

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/spool"
)

// Names of files in the folder of logs.
const (
	SpoolFile = "mlflow.jsonl"
	StateFile = "mlflow_state.json"
)

// Statuses of a run in MLflow.
const (
	Running  = "RUNNING"
	Finished = "FINISHED"
	Failed   = "FAILED"
	Killed   = "KILLED"
)

// Line is a line of the spool. Only the first line sets Start. Every other line has one kind of content: metrics, tags,
// an artifact or a status.
type Line struct {
	Start *Start `json:"start,omitempty"`

	Step    int64            `json:"step,omitempty"`
	Time    int64            `json:"time,omitempty"` // time of Metrics or Status, ms since 1970
	Metrics map[string]Value `json:"metrics,omitempty"`
	// Evaluation is true if Metrics come from an evaluation. Metrics of evaluations and of training have different
	// names.
	Evaluation bool `json:"evaluation,omitempty"`

	Tags map[string]string `json:"tags,omitempty"`

	// Artifact is the name of a file in MLflow: its path relative to the folder of the run. Names of files in the
	// folder of logs begin with "logs/", even if this folder is outside the folder of the run.
	Artifact string `json:"artifact,omitempty"`

	Status string `json:"status,omitempty"`
}

// Start describes the run.
type Start struct {
	ID         string            `json:"id"` // random, identifies the run for the server; OpenSpool sets it
	Experiment string            `json:"experiment"`
	Name       string            `json:"name"`
	Time       int64             `json:"time"` // ms since 1970
	Params     map[string]string `json:"params"`
	Tags       map[string]string `json:"tags"`
}

// Value is a number that may be NaN or infinite. MLflow's JSON represents these values as strings.
type Value float64

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) {
	switch f := float64(v); {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return strconv.AppendFloat(nil, f, 'g', -1, 64), nil
	}
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(text []byte) error {
	f, err := strconv.ParseFloat(string(bytes.Trim(text, `"`)), 64)
	*v = Value(f)
	return err
}

// Spool is the file that the training goroutine fills.
type Spool struct {
	buffer *spool.Spool
	last   int64 // step of the newest point of training
	eval   int64 // step of the newest evaluation
}

// newest returns the field with the step of the newest point of the same kind as l: training or evaluation.
func (s *Spool) newest(l *Line) *int64 {
	if l.Evaluation {
		return &s.eval
	}
	return &s.last
}

// OpenSpool opens or creates the spool in a folder of logs. If fresh is true, it starts a new spool: the logs of an
// earlier run were moved. queue, which may be nil, performs the regular writes. onFault is called when writing starts
// to fail, and with nil when it works again.
func OpenSpool(dir string, start Start, fresh bool, queue *spool.Queue, onFault func(error)) (*Spool, error) {
	path := filepath.Join(dir, SpoolFile)
	s := &Spool{}
	whole, torn := false, false
	if fresh {
		for _, name := range []string{SpoolFile, StateFile} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	err := regular.EachLine(path, func(line []byte) error {
		torn = !bytes.HasSuffix(line, []byte("\n"))
		var l Line
		if json.Unmarshal(line, &l) != nil { // skips an incomplete line, as readers do
			return nil
		}
		whole = whole || l.Start != nil
		if l.Metrics != nil {
			last := s.newest(&l)
			*last = max(*last, l.Step)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := regular.Write(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	s.buffer = spool.Start(spool.Options{Every: time.Second, MostBytes: 4 << 20, Queue: queue, File: path,
		OnFault: onFault, Sync: f.Sync, Close: f.Close,
		Write: func(records []byte) ([]byte, error) {
			if len(records) == 0 {
				return nil, nil
			}
			if torn { // ends the incomplete line, so that readers skip it
				if _, err := f.Write([]byte("\n")); err != nil {
					return records, err
				}
				torn = false
			}
			n, err := f.Write(records)
			torn = err != nil && n > 0 && records[n-1] != '\n'
			return remaining(records, n), err
		}})
	if !whole {
		start.ID = rand.Text()
		s.Add(Line{Start: &start})
	}
	s.Add(Line{Status: Running, Time: start.Time})
	return s, s.buffer.Flush()
}

// remaining returns the records that are still to be written after a write of n bytes. A record that was written only
// in part is repeated as a whole, unless only its line break is missing.
func remaining(records []byte, n int) []byte {
	if n > 0 && n < len(records) && records[n] == '\n' {
		return records[n+1:]
	}
	return records[bytes.LastIndexByte(records[:n], '\n')+1:]
}

// Add appends a line. It drops points of steps that the spool already contains.
func (s *Spool) Add(l Line) {
	if l.Metrics != nil {
		last := s.newest(&l)
		if l.Step <= *last {
			return
		}
		*last = l.Step
	}
	text, err := json.Marshal(l)
	if err != nil {
		return // a Line has only texts and Values, which always encode
	}
	s.buffer.Add(func(records []byte) []byte { return append(append(records, text...), '\n') })
}

// SyncSoon flushes the lines to the disk, without waiting.
func (s *Spool) SyncSoon() { s.buffer.SyncSoon() }

// Dropped returns the number of lines that were lost because writing to the disk failed.
func (s *Spool) Dropped() int64 { return s.buffer.Dropped() }

// Close writes the lines and closes the file.
func (s *Spool) Close() error { return s.buffer.Close() }

// batch is a part of the spool that one request sends.
type batch struct {
	lines   []Line
	metrics int
	end     int64 // position after the batch
}

// Limits of a batch. MLflow allows 1,000 metrics and 1 MiB.
const (
	mostMetrics = 900
	mostBytes   = 256 << 10 // bytes of lines; a metric in a request is longer than in the spool
	mostLine    = 1 << 20
)

// readBatch reads the lines from a position of the spool on. A batch contains only lines with metrics, or one other
// line. It is empty if the spool contains no further complete line.
func readBatch(f io.ReaderAt, from int64) (batch, error) {
	b := batch{end: from}
	text := make([]byte, mostBytes)
	for {
		n, err := f.ReadAt(text, from)
		if err != nil && err != io.EOF {
			return b, err
		}
		text = text[:n]
		if bytes.IndexByte(text, '\n') >= 0 || n < cap(text) {
			break
		}
		if n >= mostLine {
			return b, fmt.Errorf("%s: a line is longer than %d bytes", SpoolFile, mostLine)
		}
		text = make([]byte, 2*cap(text))
	}
	for {
		at := bytes.IndexByte(text, '\n')
		if at < 0 {
			return b, nil
		}
		var l Line
		if err := json.Unmarshal(text[:at], &l); err == nil {
			plain := l.Metrics != nil
			if len(b.lines) > 0 && (!plain || b.metrics+len(l.Metrics) > mostMetrics) {
				return b, nil
			}
			b.lines, b.metrics = append(b.lines, l), b.metrics+len(l.Metrics)
			if !plain {
				b.end += int64(at) + 1
				return b, nil
			}
		} // lines that a crash has truncated are skipped
		b.end += int64(at) + 1
		text = text[at+1:]
	}
}
