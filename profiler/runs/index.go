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
	"time"

	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// An index is a file with all values that a Run has computed from the records. A later process continues from the
// index, and reads only the records that were added since then. An index is ignored if it is damaged, or belongs to
// another program version or to other records. Without a valid index, the records are read from their start.
//
// Indexes are in a folder of the user, not in the folder of the run: a run may belong to another user, and files in its
// folder are untrusted.

// An index is written again after indexEvery bytes of new records, or after indexGrowth times the size of the index if
// that is larger. A later process must read at most this number of bytes before it can show figures; 8 MiB take about
// 0.5 s. Larger values give fewer writes, but later first figures. Tests change indexEvery.
var indexEvery int64 = 8 << 20

const (
	indexGrowth = 4
	// mostIndexBytes limits the size of an index that is read.
	mostIndexBytes = 128 << 20
	// A folder keeps the mostIndexes newest indexes, with at most mostIndexesBytes bytes in all.
	mostIndexes      = 32
	mostIndexesBytes = 256 << 20

	indexSuffix = ".index"
	// partSuffix is the end of the name of an index that is being written. If such a file is older than abandoned, its
	// process was killed.
	partSuffix = ".tmp"
	abandoned  = time.Hour
)

// indexLayout describes the meaning of the numbers in an index. An index with another layout is stale. An index of
// another program version is also stale, because it contains derived values, such as texts of alerts.
var indexLayout = func() string {
	names := []string{"2"}
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
	Program       string             `json:"program"`
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
	Shares map[int64][4]float64 `json:"shares"` // by number of samples: steps, and sum, min and max of compute times
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

// listIndex is the form of a history in an index.
type listIndex[T any] struct {
	List  []T   `json:"list"`
	Sizes []int `json:"sizes"`
}

func (h *history[T]) index() listIndex[T] {
	return listIndex[T]{slices.Clone(h.list), slices.Clone(h.sizes)}
}

func (i *listIndex[T]) history() (h history[T]) {
	for k, x := range i.List {
		h.add(x, i.Sizes[k], len(i.List))
	}
	return h
}

// sound reports whether there is exactly one size for each element.
func (i *listIndex[T]) sound() bool { return len(i.List) == len(i.Sizes) }

// SaveIndex writes the index of the run, if the folder of runs has a folder of indexes, and if enough records were read
// since the last index. It does not block other methods while it writes.
func (r *Run) SaveIndex() error {
	r.saving.Lock()
	defer r.saving.Unlock()
	x := r.dueIndex()
	if x == nil {
		return nil
	}
	size, err := writeIndex(r.indexPath, x)
	if err == nil {
		r.mu.Lock()
		r.indexSize = size
		r.mu.Unlock()
		err = dropIndexes(filepath.Dir(r.indexPath), filepath.Base(r.indexPath))
	}
	if err != nil {
		return fmt.Errorf("index of run %s: %w", r.Name, err)
	}
	return nil
}

// dueIndex returns the content of an index, or nil if none should be written now.
func (r *Run) dueIndex() *index {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.indexPath == "" || r.logs == nil || r.progress()-r.indexed < max(indexEvery, indexGrowth*r.indexSize) {
		return nil
	}
	r.indexed = r.progress()
	return r.index()
}

// writeIndex replaces the file of an index. The file contains the index, and a checksum on the last line. It is not
// synced to the disk, because an incomplete index is ignored. Two processes may write the same index.
func writeIndex(path string, x *index) (size int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return 0, err
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+partSuffix)
	if err != nil {
		return 0, err
	}
	sum := crc32.NewIEEE()
	if err = encodeIndex(io.MultiWriter(file, sum), x); err == nil {
		_, err = fmt.Fprintf(file, "%08x", sum.Sum32())
	}
	if err == nil {
		size, err = file.Seek(0, io.SeekCurrent)
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(file.Name()))
	}
	return size, nil
}

// encodeIndex writes the content of an index. Tests change it.
var encodeIndex = func(w io.Writer, x *index) error { return json.NewEncoder(w).Encode(x) }

// dropIndexes removes the oldest indexes of a folder, but never the one whose name is the parameter keep. It also
// removes the incomplete files of killed processes.
func dropIndexes(dir, keep string) (err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	remove := func(name string) {
		if removed := os.Remove(filepath.Join(dir, name)); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}
	var all []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		part := strings.HasSuffix(e.Name(), partSuffix) && strings.Contains(e.Name(), indexSuffix+".")
		if part && time.Since(info.ModTime()) > abandoned {
			remove(e.Name())
		} else if strings.HasSuffix(e.Name(), indexSuffix) {
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int {
		switch keep {
		case a.Name():
			return -1
		case b.Name():
			return 1
		}
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	size := int64(0)
	for i, old := range all {
		if i > 0 && (i >= mostIndexes || size+old.Size() > mostIndexesBytes) {
			remove(old.Name())
			continue
		}
		size += old.Size()
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

// index returns the content of an index. The result shares no memory with the run, because the run may change.
func (r *Run) index() *index {
	d, h := &r.decided, &r.happened
	x := &index{Layout: indexLayout, Program: r.program, Segment: r.segment,
		Decisions: r.decisions.Mark(), Events: r.events.Mark(), Traffic: r.traffic.Mark(),
		Decided: decidedIndex{d.damaged, d.grid.bytes(), d.last, d.changes.index(), slices.Clone(d.settled),
			d.alerts.index()},
		Happened: happenedIndex{h.damaged, h.starts.index(), h.evals.index(), h.saves.index(), h.verdicts.index(),
			h.length, h.fresh},
		Communication: r.communicated.last, Damaged: r.communicated.damaged}
	for _, k := range r.ranks {
		one := rankIndex{Mark: k.tail.Mark(), Grid: k.grid.bytes(), Shares: map[int64][4]float64{}}
		if k.found {
			last := k.last
			one.Last = &last
		}
		for samples, s := range k.shares {
			one.Shares[samples] = [4]float64{float64(s.n), s.sum, s.min, s.max}
		}
		x.Ranks = append(x.Ranks, one)
	}
	return x
}

// loadIndex continues from the index of the run if the index belongs to the present records.
func (r *Run) loadIndex() {
	if r.indexPath == "" {
		return
	}
	x, size, err := readIndex(r.indexPath)
	if err == nil && x.Program == r.program && r.resume(x) {
		r.indexSize = size
	} else {
		r.forgetRecords()
	}
	r.indexed = r.progress()
}

// errIndex reports an index that cannot be used.
var errIndex = errors.New("stale or damaged index")

func readIndex(path string) (x *index, size int64, err error) {
	file, info, err := regular.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close() // read only
	if info.Size() > mostIndexBytes {
		return nil, 0, errIndex
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, 0, err
	}
	x = new(index)
	end := bytes.LastIndexByte(text, '\n') + 1
	if string(text[end:]) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(text[:end])) ||
		json.Unmarshal(text[:end], x) != nil || x.Layout != indexLayout {
		return nil, 0, errIndex
	}
	return x, info.Size(), nil
}

// resume restores the run from an index. It returns false if the index belongs to other files of records. The caller
// must then discard the restored values.
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
