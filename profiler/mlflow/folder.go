package mlflow

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// folder is a store in the format of MLflow's file store:
//
//	<folder>/<experiment>/meta.yaml
//	<folder>/<experiment>/<run>/{meta.yaml,metrics/…,params/…,tags/…,artifacts/…}
type folder struct {
	path string
	last map[string]int64 // newest step of each metric, by name; read from the metric's file at the first use
}

func newFolder(path string) (*folder, error) {
	if path == "" {
		return nil, errors.New("got no folder")
	}
	whole, err := filepath.Abs(path)
	return &folder{path: whole, last: map[string]int64{}}, err
}

// mostStoreFile is the largest size of a file that is read, in bytes. Except for metrics, all files of a run are much
// smaller.
const mostStoreFile = 1 << 20

// validID matches the ids of runs. They are checked because they become names of folders and the spool may be
// untrusted.
var validID = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

// statuses maps the statuses to their numbers in meta.yaml.
var statuses = map[string]int{Running: 1, Finished: 3, Failed: 4, Killed: 5}

func (f *folder) open(_ context.Context, start *Start, _ string) (string, int64, error) {
	clear(f.last) // after a failure, the newest steps are read from the files again
	if !validID.MatchString(start.ID) {
		return "", 0,
			&Refused{fmt.Errorf("%s: got %q as the id of the run, want letters and digits", SpoolFile, start.ID)}
	}
	experimentID, err := f.experiment(start.Experiment)
	if err != nil {
		return "", 0, err
	}
	id := strings.ToLower(start.ID)
	run := filepath.Join(f.path, experimentID, id)
	for _, sub := range []string{"metrics", "params", "tags", "artifacts"} {
		if err := os.MkdirAll(filepath.Join(run, sub), 0o755); err != nil {
			return "", 0, err
		}
	}
	run = experimentID + "/" + id
	if text, err := regular.Read(filepath.Join(f.path, run, "tags", SentTag), mostStoreFile); err == nil {
		sent, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || sent < 0 {
			return "", 0, &Refused{fmt.Errorf("tag %s in %s: got %q, want a position in the spool", SentTag, run, text)}
		}
		return run, sent, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", 0, err
	}
	if err := f.meta(run, start, Running, 0); err != nil {
		return "", 0, err
	}
	tags := map[string]string{"mlflow.runName": start.Name, idTag: start.ID}
	maps.Copy(tags, start.Tags)
	return run, 0, f.texts(run, "tags", tags)
}

// experiment finds or creates the experiment with a name.
func (f *folder) experiment(name string) (string, error) {
	entries, err := os.ReadDir(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	newest := int64(0)
	for _, e := range entries {
		id, err := strconv.ParseInt(e.Name(), 10, 64)
		if err != nil || !e.IsDir() {
			continue
		}
		newest = max(newest, id)
		text, err := regular.Read(filepath.Join(f.path, e.Name(), "meta.yaml"), mostStoreFile)
		if err == nil && slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
			value, ok := strings.CutPrefix(line, "name: ")
			return ok && (value == name || value == quoted(name) || value == "'"+name+"'")
		}) {
			return e.Name(), nil
		}
	}
	id := strconv.FormatInt(newest+1, 10)
	if err := os.MkdirAll(filepath.Join(f.path, id), 0o755); err != nil {
		return "", err
	}
	text := fmt.Sprintf("artifact_location: %s\ncreation_time: 0\nexperiment_id: '%s'\nlast_update_time: 0\nlifecycle_stage: active\nname: %s\n",
		quoted("file://"+filepath.Join(f.path, id)), id, quoted(name))
	return id, experiment.ReplaceText(filepath.Join(f.path, id, "meta.yaml"), []byte(text))
}

// quoted returns a text as a YAML scalar. Each JSON string is a YAML scalar.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(b)
}

// meta writes meta.yaml of a run.
func (f *folder) meta(run string, start *Start, status string, end int64) error {
	experimentID, id, _ := strings.Cut(run, "/")
	ended := "null"
	if end > 0 {
		ended = strconv.FormatInt(end, 10)
	}
	text := fmt.Sprintf("artifact_uri: %s\nend_time: %s\nentry_point_name: ''\nexperiment_id: '%s'\nlifecycle_stage: active\nrun_id: %s\nrun_name: %s\nrun_uuid: %s\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: %d\nstatus: %d\ntags: []\nuser_id: ''\n",
		quoted("file://"+filepath.Join(f.path, run, "artifacts")), ended, experimentID, id, quoted(start.Name), id,
		start.Time, statuses[status])
	return experiment.ReplaceText(filepath.Join(f.path, run, "meta.yaml"), []byte(text))
}

// texts writes one file for each entry.
func (f *folder) texts(run, sub string, texts map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		path, err := f.inside(run, sub, name)
		if err != nil {
			return err
		}
		if err := experiment.ReplaceText(path, []byte(texts[name])); err != nil {
			return err
		}
	}
	return nil
}

// inside returns the path of the file name in the folder sub of a run. It returns an error if the name leads out of
// this folder.
func (f *folder) inside(run, sub, name string) (string, error) {
	if !filepath.IsLocal(name) || strings.Contains(name, "\\") {
		return "", &Refused{fmt.Errorf("%s %q is not the name of a file", sub, name)}
	}
	path := filepath.Join(f.path, run, sub, name)
	return path, os.MkdirAll(filepath.Dir(path), 0o755)
}

// add appends the points that the files do not contain yet. The steps of a metric only increase, so its newest step
// shows which points are missing.
func (f *folder) add(_ context.Context, run string, b *batch) error {
	points, tags := map[string][]byte{}, map[string]string{}
	for _, l := range b.lines {
		for name, v := range l.Metrics {
			last, err := f.newest(run, name)
			if err != nil {
				return err
			}
			if l.Step > last {
				points[name] = fmt.Appendf(points[name], "%d %s %d\n", l.Time, number(float64(v)), l.Step)
				f.last[name] = l.Step
			}
		}
		maps.Copy(tags, l.Tags)
	}
	for _, name := range slices.Sorted(maps.Keys(points)) {
		path, err := f.inside(run, "metrics", name)
		if err != nil {
			return err
		}
		if err := appendTo(path, points[name]); err != nil {
			return err
		}
	}
	if err := f.texts(run, "tags", tags); err != nil {
		return err
	}
	return f.texts(run, "tags", map[string]string{SentTag: strconv.FormatInt(b.end, 10)})
}

// number formats a value as Python reads it.
func number(v float64) string {
	if math.IsNaN(v) {
		return "nan"
	}
	if math.IsInf(v, 0) {
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(v, 'g', -1, 64)), "+")
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// newest returns the newest step in the file of a metric, or -1. It removes an incomplete last line.
func (f *folder) newest(run, name string) (int64, error) {
	if step, known := f.last[name]; known {
		return step, nil
	}
	path, err := f.inside(run, "metrics", name)
	if err != nil {
		return 0, err
	}
	step, whole := int64(-1), int64(0)
	file, _, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		f.last[name] = -1
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadString('\n')
		if err != nil { // end of the file; the last line is incomplete
			if line != "" {
				if err := os.Truncate(path, whole); err != nil {
					return 0, err
				}
			}
			break
		}
		whole += int64(len(line))
		if fields := strings.Fields(line); len(fields) == 3 {
			if n, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
				step = max(step, n)
			}
		}
	}
	f.last[name] = step
	return step, nil
}

func appendTo(path string, text []byte) error {
	file, err := regular.Write(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

func (f *folder) params(_ context.Context, run string, params map[string]string) error {
	return f.texts(run, "params", params)
}

func (f *folder) status(_ context.Context, run, status string, time int64) error {
	path := filepath.Join(f.path, run, "meta.yaml")
	text, err := regular.Read(path, mostStoreFile)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		switch key, _, _ := strings.Cut(line, ":"); key {
		case "status":
			lines[i] = "status: " + strconv.Itoa(statuses[status])
		case "end_time":
			lines[i] = "end_time: null"
			if status != Running {
				lines[i] = "end_time: " + strconv.FormatInt(time, 10)
			}
		}
	}
	return experiment.ReplaceText(path, []byte(strings.Join(lines, "\n")))
}

func (f *folder) artifact(_ context.Context, run, name string, content []byte) error {
	path, err := f.inside(run, "artifacts", name)
	if err != nil {
		return err
	}
	return experiment.ReplaceText(path, content)
}
