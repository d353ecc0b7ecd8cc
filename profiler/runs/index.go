package runs

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// An index is a file with everything that a Run has read from its records. A later process continues with it, and reads
// only the records that were added since then. An index that is missing, damaged, of another program version or of
// other records has no effect: the records are then read from their start.
//
// Indexes are in a folder of the user, not in the folder of the run: a run may belong to another user, and files in its
// folder are untrusted.

// indexEvery is the number of bytes of records after which an index is written again. A later process reads at most as
// many bytes before its first figures, which takes about 0.5 s. Larger: fewer writes, and a later first figure. Tests
// change it.
var indexEvery int64 = 8 << 20

const (
	// mostIndexBytes limits the size of an index that is read.
	mostIndexBytes = 128 << 20
	// mostIndexes is the number of indexes that a folder keeps, those that were written last.
	mostIndexes = 32

	indexSuffix = ".index"
)

// indexLayout names what the numbers of an index mean. An index with another layout is stale.
var indexLayout = func() string {
	names := []string{"1"}
	for _, list := range [][]column{rankColumns, runColumns, decisionColumns} {
		for _, c := range list {
			names = append(names, c.Name)
		}
		names = append(names, ";")
	}
	return strings.Join(names, " ")
}()

// index is the content of an index file.
type index struct {
	Layout        string             `json:"layout"`
	Segment       runtime.Segment    `json:"segment"`
	Ranks         []rankIndex        `json:"ranks"`
	Decisions     runtime.Mark       `json:"decisions"`
	Events        runtime.Mark       `json:"events"`
	Traffic       runtime.Mark       `json:"traffic"`
	Decided       decidedIndex       `json:"decided"`
	Happened      happenedIndex      `json:"happened"`
	Communication *CommunicationView `json:"communication"`
	Damaged       int                `json:"communication_damaged"`
}

type rankIndex struct {
	Mark   runtime.Mark         `json:"mark"`
	Grid   []byte               `json:"grid"`
	Last   *runtime.Record      `json:"last"`
	Shares map[int64][4]float64 `json:"shares"` // steps, sum, min and max of compute times, by number of samples
}

type decidedIndex struct {
	Damaged int                 `json:"damaged"`
	Grid    []byte              `json:"grid"`
	Last    *Decision           `json:"last"`
	Changes listIndex[Decision] `json:"changes"`
	Settled []straggler.Settled `json:"settled"`
	Alerts  listIndex[Alert]    `json:"alerts"`
}

type happenedIndex struct {
	Damaged  int                      `json:"damaged"`
	Starts   listIndex[runtime.Event] `json:"starts"`
	Evals    listIndex[runtime.Event] `json:"evaluations"`
	Saves    listIndex[runtime.Event] `json:"checkpoints"`
	Verdicts listIndex[Verdict]       `json:"verdicts"`
	Length   int64                    `json:"length"`
	Fresh    bool                     `json:"fresh"`
}

// listIndex is a history.
type listIndex[T any] struct {
	List  []T   `json:"list"`
	Sizes []int `json:"sizes"`
}

func (h *history[T]) index() listIndex[T] { return listIndex[T]{h.list, h.sizes} }

func (i *listIndex[T]) history() (h history[T]) {
	for k, x := range i.List {
		h.add(x, i.Sizes[k], len(i.List))
	}
	return h
}

// sound reports whether every element has a size.
func (i *listIndex[T]) sound() bool { return len(i.List) == len(i.Sizes) }

// SaveIndex writes the index of the run, if the folder of runs has a folder of indexes, and if indexEvery bytes of
// records were read since the last index.
func (r *Run) SaveIndex() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.indexPath == "" || r.logs == nil || r.progress()-r.indexed < indexEvery {
		return nil
	}
	r.indexed = r.progress()
	text, err := json.Marshal(r.index())
	if err == nil {
		err = os.MkdirAll(filepath.Dir(r.indexPath), 0o700)
	}
	if err == nil {
		err = experiment.Replace(r.indexPath, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%08x\n%s", crc32.ChecksumIEEE(text), text)
			return err
		})
	}
	if err == nil {
		err = dropIndexes(filepath.Dir(r.indexPath))
	}
	if err != nil {
		return fmt.Errorf("index of run %s: %w", r.Name, err)
	}
	return nil
}

// dropIndexes removes the oldest indexes of a folder.
func dropIndexes(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var all []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), indexSuffix) {
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, old := range all[min(len(all), mostIndexes):] {
		if removed := os.Remove(filepath.Join(dir, old.Name())); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}
	return err
}

// indexPathOf returns the path of the index of a run.
func indexPathOf(dir, runs, name string) string {
	if dir == "" {
		return ""
	}
	full, err := filepath.Abs(filepath.Join(runs, name))
	if err != nil {
		return ""
	}
	return filepath.Join(dir, fmt.Sprintf("%x%s", sha256.Sum256([]byte(full)), indexSuffix))
}

// index returns the content of an index.
func (r *Run) index() *index {
	d, h := &r.decided, &r.happened
	x := &index{Layout: indexLayout, Segment: r.segment, Decisions: r.decisions.Mark(), Events: r.events.Mark(),
		Traffic: r.traffic.Mark(),
		Decided: decidedIndex{d.damaged, d.grid.bytes(), d.last, d.changes.index(), d.settled,
			d.alerts.index()},
		Happened: happenedIndex{h.damaged, h.starts.index(), h.evals.index(), h.saves.index(), h.verdicts.index(),
			h.length, h.fresh},
		Communication: r.communicated.last, Damaged: r.communicated.damaged}
	for _, k := range r.ranks {
		one := rankIndex{Mark: k.tail.Mark(), Grid: k.grid.bytes(), Shares: map[int64][4]float64{}}
		if k.found {
			one.Last = &k.last
		}
		for samples, s := range k.shares {
			one.Shares[samples] = [4]float64{float64(s.n), s.sum, s.min, s.max}
		}
		x.Ranks = append(x.Ranks, one)
	}
	return x
}

// loadIndex continues with the index of the run, if it is that of the present records.
func (r *Run) loadIndex() {
	if r.indexPath == "" || len(r.ranks) > 0 {
		return
	}
	x, err := readIndex(r.indexPath)
	if err != nil || !r.resume(x) {
		r.forgetRecords()
	}
	r.indexed = r.progress()
}

// errIndex reports an index that cannot be used.
var errIndex = errors.New("stale or damaged index")

func readIndex(path string) (*index, error) {
	file, info, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // read only
	if info.Size() > mostIndexBytes {
		return nil, errIndex
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	sum, text, _ := bytes.Cut(text, []byte("\n"))
	x := new(index)
	if string(sum) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) || json.Unmarshal(text, x) != nil ||
		x.Layout != indexLayout {
		return nil, errIndex
	}
	return x, nil
}

// resume takes the content of an index. It returns false if a file of records is another one, and the caller must then
// forget what was taken.
func (r *Run) resume(x *index) bool {
	d, h := &x.Decided, &x.Happened
	if len(x.Ranks) > mostRanks || !d.Changes.sound() || !d.Alerts.sound() || !h.Starts.sound() || !h.Evals.sound() ||
		!h.Saves.sound() || !h.Verdicts.sound() ||
		slices.ContainsFunc(h.Starts.List, func(e runtime.Event) bool { return e.Start == nil }) {
		return false
	}
	if !r.decisions.Resume(x.Decisions) || !r.events.Resume(x.Events) || !r.traffic.Resume(x.Traffic) {
		return false
	}
	grid, ok := gridOf(d.Grid, len(decisionColumns))
	if !ok {
		return false
	}
	r.decided = decided{damaged: d.Damaged, grid: grid, last: d.Last, changes: d.Changes.history(),
		settled: d.Settled, alerts: d.Alerts.history()}
	r.happened = happened{damaged: h.Damaged, starts: h.Starts.history(), evals: h.Evals.history(),
		saves: h.Saves.history(), verdicts: h.Verdicts.history(), length: h.Length, fresh: h.Fresh}
	r.communicated = communicated{damaged: x.Damaged, last: x.Communication}
	r.segment = x.Segment
	for i, one := range x.Ranks {
		k := newRank(r.logs, i, 0)
		if k.grid, ok = gridOf(one.Grid, len(k.grid.cells)); !ok || !k.tail.Resume(one.Mark) {
			return false
		}
		if k.found = one.Last != nil; k.found {
			k.last = *one.Last
		}
		for samples, s := range one.Shares {
			k.shares[samples] = &shareTotal{int64(s[0]), s[1], s[2], s[3]}
		}
		r.ranks = append(r.ranks, k)
	}
	return true
}
