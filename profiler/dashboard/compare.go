package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/runs"
)

// comparison is the answer to a request for a comparison.
type comparison struct {
	analysis.Sheet                   // tables of the runs in Compared
	Compared       []string          `json:"compared"` // names of the runs that could be read
	Failed         map[string]string `json:"failed"`   // for each other run, by name: why it cannot be compared
	Why            string            `json:"why"`      // why the runs in Compared cannot be compared; "": they can
}

// mostNamesBytes is the largest size of a request for a comparison. This is enough for about 1,000 names.
const mostNamesBytes = 64 << 10

// compare sends the tables of `analyze --compare` for the runs whose names are in the body of the request, as a list in
// JSON. The names are in the body because an address with hundreds of names would exceed the size of headers that
// servers accept.
func (s *Server) compare(w http.ResponseWriter, r *http.Request) {
	var names []string
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostNamesBytes)).Decode(&names); err != nil {
		http.Error(w, "want a list of names of runs in JSON, of at most 64 KiB", http.StatusBadRequest)
		return
	}
	answer, err := encode(0, func() (any, error) { return s.comparison(r.Context(), names) })
	s.send(w, r, answer, err)
}

// comparison compares runs. The first run that can be read is the reference of the ratios.
func (s *Server) comparison(ctx context.Context, names []string) (*comparison, error) {
	list, err := s.options.Folder.List(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]runs.Summary{}
	for _, r := range list.Runs {
		known[r.Name] = r
	}
	c := &comparison{Compared: []string{}, Failed: map[string]string{}}
	c.Sheet = analysis.Sheet{Runs: []string{}, Labels: []string{}, Results: [][]string{}, Settings: [][]string{},
		Notes: []string{}}
	var trials []*analysis.Trial
	for _, name := range names {
		summary, found := known[name]
		if !found {
			c.Failed[name] = "there is no such run"
			continue
		}
		t, err := s.trials.get(ctx, summary, func() (*analysis.Trial, error) { return s.trial(ctx, name) })
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			c.Failed[name] = strings.ReplaceAll(err.Error(), pathOf(s.options.Folder, name), "the run")
			continue
		}
		c.Compared, trials = append(c.Compared, name), append(trials, t)
	}
	side, err := analysis.CompareTrials(trials)
	if errors.Is(err, analysis.ErrNotComparable) {
		c.Why = strings.ReplaceAll(err.Error(), s.options.Folder.Path+string(filepath.Separator), "")
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c.Sheet = side.Sheet()
	return c, nil
}

// pathOf returns the folder of a run.
func pathOf(f *runs.Folder, name string) string {
	if _, single := f.Single(); single {
		return f.Path
	}
	return filepath.Join(f.Path, name)
}

// trial reads the figures of a run. Records that a follower or an index already contains are not read again.
func (s *Server) trial(ctx context.Context, name string) (*analysis.Trial, error) {
	f, release, err := s.visit(ctx, name)
	if err != nil {
		return nil, err
	}
	defer release()
	t, err := analysis.TrialOf(ctx, f.run, pathOf(s.options.Folder, name))
	if err == nil && !s.options.Folder.Holds(f.run) { // meanwhile, another run may have taken the name
		return nil, errGone
	}
	return t, err
}

// trials keeps the figures of runs that were compared, because reading all records of a run takes long.
type trials struct {
	// reading has an element while a run is being read. Only one run is read at a time, so that other requests get CPU
	// time.
	reading chan struct{}

	mu   sync.Mutex
	kept map[string]keptTrial
}

type keptTrial struct {
	at    runs.Summary // summary of the run when it was read
	trial *analysis.Trial
	used  time.Time
	fresh time.Time // time until which new steps do not count as a change
}

const (
	// mostTrials is the largest number of runs whose figures are kept: about as many as one request can name. The
	// figures of one run take about 25 KiB of memory.
	mostTrials = 1024
	// restFactor limits the fraction of time that the server spends on reading a run that is training. This fraction is
	// at most 1/(restFactor+1), regardless of the number of pages that compare the run.
	restFactor = 10
)

// get returns the figures of a run. The parameter now is its current summary. If the run has changed since its figures
// were read, get calls the function read.
func (k *trials) get(ctx context.Context, now runs.Summary,
	read func() (*analysis.Trial, error)) (*analysis.Trial, error) {
	if t := k.find(now); t != nil {
		return t, nil
	}
	select {
	case k.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-k.reading }()
	if t := k.find(now); t != nil { // meanwhile, another request has read it
		return t, nil
	}
	begin := time.Now()
	t, err := read()
	if err != nil {
		return nil, err
	}
	t.Slim()
	end := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil {
		k.kept = map[string]keptTrial{}
	}
	k.kept[now.Name] = keptTrial{now, t, end, end.Add(restFactor * end.Sub(begin))}
	for len(k.kept) > mostTrials {
		oldest := ""
		for other, t := range k.kept {
			if oldest == "" || t.used.Before(k.kept[oldest].used) {
				oldest = other
			}
		}
		delete(k.kept, oldest)
	}
	return copyOf(t), nil
}

// find returns the kept figures of a run, or nil if the run has changed.
func (k *trials) find(now runs.Summary) *analysis.Trial {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, found := k.kept[now.Name]
	same := t.at.Updated == now.Updated && t.at.Steps == now.Steps
	if !found || t.at.State.Kind != now.State.Kind ||
		!same && (now.State.Kind != runs.Running || time.Now().After(t.fresh)) {
		return nil
	}
	t.used = time.Now()
	k.kept[now.Name] = t
	return copyOf(t.trial)
}

// copyOf returns a copy, because a comparison changes the names of its trials.
func copyOf(t *analysis.Trial) *analysis.Trial {
	c := *t
	return &c
}
