package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"sync/atomic"

	"github.com/pelletier/go-toml/v2"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// mostRanks is the largest number of ranks that are read.
const mostRanks = 4096

// Run reads the files of one run. Its methods are safe for concurrent use.
type Run struct {
	Name string

	identity fs.FileInfo // identity of the folder

	mu       sync.Mutex
	looks    pause // last check by Refresh
	root     *os.Root
	logs     *os.Root // nil until the folder exists
	settings Settings
	config   string // text of the settings
	evidence evidence
	version  int64
	failed   map[string]string // reasons why files cannot be read, by file name
	cut      map[string]bool   // names of files whose end is missing
	lacking  string            // describes the ranks without records
	missing  []int             // ranks without a file of records, in ascending order

	ranks     []*rank
	next      int             // rank whose turn to read is next
	segment   runtime.Segment // segment of the newest step, to which the totals by share belong
	decisions *runtime.LineTail
	decided   decided
	events    *runtime.LineTail
	happened  happened
	traffic   *runtime.LineTail

	communicated communicated
	summary      summarized

	saving    sync.Mutex // held by SaveIndex before mu
	indexPath string     // path of the index; "": there is none
	program   string     // version of this program
	indexed   int64      // value of progress when the index was read or written
	indexSize int64      // size of the index in bytes; 0: there is none
}

// rank contains what was read from the records of one rank.
type rank struct {
	tail     *runtime.Tail
	replaced int // value of tail.Replaced when the fields below were set
	grid     *grid
	values   []float64 // scratch memory for the values of a record
	last     runtime.Record
	found    bool                  // last contains a record
	shares   map[int64]*shareTotal // totals by number of samples
}

// shareTotal contains the totals of a rank over the steps with one share.
type shareTotal struct {
	n             int64
	sum, min, max float64 // compute time, s
}

// leastTurn is the minimum number of bytes that are read for a rank in one turn. With smaller turns, files would be
// opened more often.
const leastTurn = 256 << 10

// mostShares is the largest number of shares for which a run keeps times, summed over all ranks.
const mostShares = 32768

// versions is the newest version of all runs of this process. Every new version is larger. If a folder is opened again,
// its new Run therefore never has a version of the earlier Run.
var versions atomic.Int64

// Open opens a run of the folder.
func (f *Folder) Open(name string) (*Run, error) {
	f.refresh()
	f.mu.RLock()
	defer f.mu.RUnlock()
	root, err := f.openRoot(name)
	if err != nil {
		return nil, err
	}
	identity, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run %s: %w", name, err), root.Close())
	}
	return &Run{Name: name, identity: identity, root: root, version: versions.Add(1), failed: map[string]string{},
		cut: map[string]bool{}, decided: newDecided(),
		indexPath: indexPathOf(f.Indexes, f.Path, name), program: f.Program}, nil
}

// Close closes the run.
func (r *Run) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.root.Close()
	if r.logs != nil {
		err = errors.Join(err, r.logs.Close())
	}
	return err
}

// Version returns a number that grows whenever Update finds a change. No other Run of this process has the same
// version.
func (r *Run) Version() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// Update reads records that were added since the last call, about limit bytes. The result more means that further
// records remain.
func (r *Run) Update(limit int64) (more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	config, before := r.config, r.progress()
	r.settings, r.config = readSettings(r.root)
	e := gather(r.root, r.settings)
	changed := r.logs != nil && !isLogs(r.logs, r.root, r.settings)
	if changed {
		r.forget()
	}
	if r.logs == nil {
		logs, err := openLogs(r.root, r.settings)
		if err != nil {
			e.logsErr = err
		} else {
			r.logs = logs
			r.forgetRecords()
			r.loadIndex()
		}
	}
	if r.logs != nil {
		// The newest record in the file may be one that Update has not reached yet.
		if last, found, modified := readLastRecord(r.logs, 0); found {
			e.noteRecord(&last, modified)
		}
		more = r.read(limit, e)
		e.lacking = r.lacking
		changed = r.readSummary() || changed
	}
	r.noteWhole(e)
	state, lacking := r.evidence.judge(), r.evidence.lacking
	r.evidence = e
	if changed || r.config != config || e.lacking != lacking || e.judge() != state || r.progress() != before {
		r.version = versions.Add(1)
	}
	return more
}

// forget closes the folder of logs and removes everything that was read from it. It is called when another folder has
// replaced this folder.
func (r *Run) forget() {
	r.logs.Close() // read only
	r.logs, r.decisions, r.events, r.traffic = nil, nil, nil, nil
	r.ranks, r.next, r.indexed, r.indexSize = nil, 0, 0, 0
	r.decided, r.happened, r.communicated, r.failed = newDecided(), happened{}, communicated{}, map[string]string{}
	r.cut, r.lacking, r.missing, r.summary = map[string]bool{}, "", nil, summarized{}
}

// forgetRecords removes all records, so that they are read from the start of their files again.
func (r *Run) forgetRecords() {
	r.ranks, r.segment = nil, runtime.Segment{}
	r.decided, r.happened, r.communicated = newDecided(), happened{}, communicated{}
	r.decisions, r.events = runtime.NewLineTail(r.logs, balanceFile), runtime.NewLineTail(r.logs, runtime.EventsFile)
	r.traffic = runtime.NewLineTail(r.logs, runtime.CommunicationFile)
}

// progress returns a number that changes when records are read.
func (r *Run) progress() (sum int64) {
	for _, k := range r.ranks {
		sum += k.tail.Offset() + int64(k.tail.Replaced)<<40
	}
	if r.decisions != nil {
		sum += r.decisions.Offset() + r.events.Offset() + r.traffic.Offset() +
			int64(r.decisions.Replaced+r.events.Replaced+r.traffic.Replaced)<<40
	}
	return sum
}

// read reads new records. The ranks take turns, so that all ranks are at similar steps. With many ranks, the next call
// continues with the ranks that had no turn.
func (r *Run) read(limit int64, e evidence) (more bool) {
	left, err := r.decisions.Next(limit, func(line []byte) { r.decided.add(line, r.decisions.Replaced) })
	r.decided.follow(r.decisions.Replaced)
	more = r.note(balanceFile, err, r.decisions.Damaged+r.decided.damaged, r.decisions.Cut) && left
	left, err = r.events.Next(limit, func(line []byte) { r.happened.add(line, r.events.Replaced) })
	r.happened.follow(r.events.Replaced)
	more = r.note(runtime.EventsFile, err, r.events.Damaged+r.happened.damaged, r.events.Cut) && left || more
	left, err = r.traffic.Next(limit, func(line []byte) { r.communicated.add(line, r.traffic.Replaced) })
	r.communicated.follow(r.traffic.Replaced)
	more = r.note(runtime.CommunicationFile, err, r.traffic.Damaged+r.communicated.damaged, r.traffic.Cut) && left ||
		more
	r.discover(e)
	r.follow(e.steps)
	turn := max(limit/int64(max(len(r.ranks), 1)), leastTurn)
	done := int64(0) // bytes read
	for range r.ranks {
		k := r.ranks[r.next%len(r.ranks)]
		r.next = (r.next + 1) % len(r.ranks)
		before := k.tail.Offset()
		left, err := k.read(turn, len(r.ranks), r.segment)
		more = r.note(k.tail.Name(), err, k.tail.Damaged, k.tail.Cut) && left || more
		if done += max(0, k.tail.Offset()-before); done >= limit {
			return true
		}
	}
	return more
}

// follow determines the segment of the newest step. The step may be one that was not read yet. If a new segment has
// begun, follow removes the totals of the previous segment.
func (r *Run) follow(newest int64) {
	if newest == 0 { // there are no records, or the file cannot be read now
		return
	}
	segment := runtime.SegmentAt(r.happened.starts.list, newest)
	if segment.After != r.segment.After {
		for _, k := range r.ranks {
			k.shares = map[int64]*shareTotal{}
		}
	}
	r.segment = segment
}

// note stores the reason why a file, or a part of a file, cannot be read. It returns false if err is not nil.
func (r *Run) note(name string, err error, damaged int, cut bool) bool {
	switch {
	case err != nil:
		r.failed[name] = err.Error()
	case damaged > 0:
		r.failed[name] = plural(damaged, "damaged line ignored", "damaged lines ignored")
	default:
		delete(r.failed, name)
	}
	if cut {
		r.cut[name] = true
	} else {
		delete(r.cut, name)
	}
	return err == nil
}

// noteWhole stores the reasons why files that are read as a whole cannot be read.
func (r *Run) noteWhole(e evidence) {
	var settingsErr error
	if r.settings == (Settings{}) && toml.Unmarshal([]byte(r.config), new(Settings)) != nil {
		settingsErr = errDamaged
	}
	for name, err := range map[string]error{resultFile: e.resultErr, resolvedFile: settingsErr} {
		if err != nil {
			r.failed[name] = err.Error()
		} else {
			delete(r.failed, name)
		}
	}
}

// lacksEnd describes a file whose end is missing, and how to fix this.
const lacksEnd = "the file lacks its end (an incomplete copy, or a loss of power): copy it again if the original is complete"

// damage returns, by file name, the reasons why files cannot be read or can be read only in part. A file whose end is
// missing counts as damaged unless a process may still write to it.
func (r *Run) damage(state Kind) map[string]string {
	all := maps.Clone(r.failed)
	if state == Running || state == Unknown {
		return all
	}
	for name := range r.cut {
		text := lacksEnd
		for i, k := range r.ranks {
			if k.tail.Name() == name && k.found {
				text = fmt.Sprintf("the records of rank %d end at step %d, and ", i, k.last.Iteration) + text
			}
		}
		if before := all[name]; before != "" {
			text = before + "; " + text
		}
		all[name] = text
	}
	return all
}

// discover adds the ranks of the run. It also adds ranks whose files are missing; they have no records.
func (r *Run) discover(e evidence) {
	step, newest := r.happened.newestStart()
	start, decision := recorded{ranks: newest.Ranks, step: step}, recorded{}
	if d := r.decided.last; d != nil {
		decision = recorded{ranks: len(d.Shares), step: d.Step}
	}
	found := 0
	for found < len(r.ranks) && r.ranks[found].tail.Found() {
		found++
	}
	n, missing := lackOf(r.logs, found, ranksOfRun(e, start, decision))
	r.lacking, r.missing = lackText(missing, n), missing
	if n <= len(r.ranks) {
		return
	}
	cells := cellsFor(n, len(rankColumns))
	for _, k := range r.ranks {
		k.grid.shrink(cells)
	}
	for i := len(r.ranks); i < n; i++ {
		r.ranks = append(r.ranks, newRank(r.logs, i, cells))
	}
}

// newRank returns a rank without records, whose grid has at most limit cells.
func newRank(logs *os.Root, i, limit int) *rank {
	columns := len(rankColumns)
	if i == 0 { // rank 0 also has the columns that are equal on all ranks
		columns += len(runColumns)
	}
	return &rank{tail: runtime.NewTail(logs, runtime.FileName(i)), shares: map[int64]*shareTotal{},
		grid: newGrid(columns, limit), values: make([]float64, columns)}
}

// read reads new records of the rank.
func (k *rank) read(limit int64, ranks int, segment runtime.Segment) (more bool, err error) {
	more, err = k.tail.Next(limit, func(offset int64, r *runtime.Record) {
		k.follow()
		if r.Iteration < 1 {
			return
		}
		k.fill(r, ranks)
		k.grid.add(r.Iteration, offset, seconds(r), k.values)
		k.last, k.found = *r, true
		if r.Iteration > segment.After {
			k.addShare(r, ranks)
		}
	})
	k.follow()
	return more, err
}

// follow removes all records if the file was replaced.
func (k *rank) follow() {
	if k.replaced == k.tail.Replaced {
		return
	}
	k.replaced, k.found, k.shares = k.tail.Replaced, false, map[int64]*shareTotal{}
	k.grid.reset()
}

// fill sets k.values to the values of a record.
func (k *rank) fill(r *runtime.Record, ranks int) {
	for i, c := range rankColumns {
		if i == busColumn {
			k.values[i] = busBandwidth(r, ranks)
			continue
		}
		k.values[i] = c.of(r)
	}
	if len(k.values) > len(rankColumns) {
		for i, c := range runColumns {
			k.values[len(rankColumns)+i] = c.of(r)
		}
	}
}

func (k *rank) addShare(r *runtime.Record, ranks int) {
	if r.BatchSize <= 0 || r.Iteration <= runtime.WarmUpSteps {
		return
	}
	own := ownSeconds(r)
	s := k.shares[r.BatchSize]
	if s == nil {
		if len(k.shares) >= max(16, mostShares/ranks) {
			return
		}
		s = &shareTotal{min: own, max: own}
		k.shares[r.BatchSize] = s
	}
	s.n, s.sum, s.min, s.max = s.n+1, s.sum+own, min(s.min, own), max(s.max, own)
}

// seconds returns the time of a record in s since 1970 UTC, or 0 if it is unknown.
func seconds(r *runtime.Record) float64 {
	if r.Timestamp.IsZero() {
		return 0
	}
	return float64(r.Timestamp.UnixMicro()) / 1e6
}

// Config returns the text of the run's settings.
func (r *Run) Config() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.config
}
