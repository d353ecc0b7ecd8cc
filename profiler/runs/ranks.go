package runs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// recorded is the number of ranks according to an event or a decision of a run. 0 means unknown.
type recorded struct {
	ranks int
	step  int64 // step of the event or decision that contains the number

	dataset string // data set that the start states, which may be a fallback; "" if unknown
}

// ranksOfRun returns the number of ranks of the newest process of a run. It uses the result if the process has ended,
// otherwise the newest start or decision. It returns 0 if the number is unknown.
func ranksOfRun(e evidence, start, decision recorded) int {
	switch {
	case e.ended():
		return max(1, e.result.Ranks)
	case decision.ranks > 0 && decision.step > start.step:
		return decision.ranks
	case start.ranks == 0 && e.result != nil: // the result of an earlier process
		return e.result.Ranks
	}
	return start.ranks
}

// lackOf compares the files of records with the number of ranks of the run, which is the parameter of (0: unknown).
// found is the number of ranks that are known to have files, counted from rank 0. lackOf returns the number of ranks,
// and the ranks without a file. If ranks with higher numbers have files, it also counts these ranks. If no rank has a
// file, it returns 0 and no ranks.
func lackOf(logs *os.Root, found, of int) (ranks int, missing []int) {
	for ; found < mostRanks; found++ {
		if _, err := logs.Stat(runtime.FileName(found)); err != nil {
			break
		}
	}
	if of > 0 && found >= of || found == mostRanks {
		return found, nil
	}
	have := map[int]bool{}
	for _, rank := range ranksWithFiles(logs) {
		have[rank] = true
		ranks = max(ranks, rank+1)
	}
	if ranks == 0 {
		return 0, nil
	}
	ranks = max(ranks, min(of, mostRanks))
	for rank := range ranks {
		if !have[rank] {
			missing = append(missing, rank)
		}
	}
	return ranks, missing
}

// ranksWithFiles returns the ranks whose files of records are in the folder of logs, in any order.
func ranksWithFiles(logs *os.Root) (ranks []int) {
	dir, err := logs.Open(".")
	if err != nil {
		return nil
	}
	defer dir.Close() // read only
	names, err := dir.Readdirnames(4 * mostRanks)
	if err != nil {
		return nil
	}
	for _, name := range names {
		text, ok := strings.CutPrefix(name, "rank_")
		if text, ok = strings.CutSuffix(text, "_metrics.json"); !ok {
			continue
		}
		if rank, err := strconv.Atoi(text); err == nil && rank >= 0 && rank < mostRanks &&
			runtime.FileName(rank) == name {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// lackText describes ranks without records, and how to fix this. It returns "" if there are none.
func lackText(missing []int, ranks int) string {
	if len(missing) == 0 {
		return ""
	}
	const most = 8
	list := make([]string, 0, most)
	for _, rank := range missing[:min(len(missing), most)] {
		list = append(list, strconv.Itoa(rank))
	}
	which, file := "rank "+list[0], runtime.FileName(missing[0])+" is missing"
	if len(missing) > 1 {
		which, file = "ranks "+strings.Join(list, ", "), runtime.FileName(missing[0])+" and others are missing"
	}
	if left := len(missing) - most; left > 0 {
		which += fmt.Sprintf(" and %d more", left)
	}
	only := ""
	if len(missing) == ranks-1 && missing[0] == 1 {
		only = ", so only rank 0 shown" // contains words that users search for
	}
	return fmt.Sprintf(
		"no records of %s of %d (%s)%s: copy the whole folder of logs from rank 0, which has the records of all ranks",
		which, ranks, file, only)
}

// Judge returns the state of the run in dir. logs is the folder of the records. Each of the folders may be missing. The
// result lacking describes the ranks that have no records, and how to fix this. It is "" if all ranks have records, or
// if there are no records at all.
func Judge(dir, logs string) (state State, lacking string, err error) {
	records, err := os.OpenRoot(logs)
	if isMissing(err) {
		return State{Kind: Unknown}, "", nil
	}
	if err != nil {
		return State{}, "", err
	}
	defer records.Close() // read only
	var e evidence
	root, err := os.OpenRoot(dir)
	switch {
	case err == nil:
		defer root.Close() // read only
		e = gather(root, Settings{})
	case !isMissing(err):
		return State{}, "", err
	}
	s := Summary{}
	s.fromLogs(records, Settings{}, &e)
	return e.judge(), s.Lacking, nil
}

// newestStart returns the number of ranks, and the data set, of the newest start of a process. If the newest start is
// far from the end of the file, newestStart returns both values of the first start.
func newestStart(logs *os.Root) (r recorded) {
	decode := func(line []byte) bool {
		var e runtime.Event
		if !bytes.Contains(line, []byte(`"start":`)) { // most lines are other events
			return false
		}
		if json.Unmarshal(line, &e) != nil || e.Start == nil {
			return false
		}
		r = recorded{e.Start.Ranks, e.Step, e.Start.Dataset}
		return true
	}
	if found, _, err := readLast(logs, runtime.EventsFile, 64<<10, decode); found || err != nil {
		return r
	}
	file, _, err := regular.OpenIn(logs, runtime.EventsFile)
	if err != nil {
		return r
	}
	defer file.Close() // read only
	text := make([]byte, 8<<10)
	n, _ := file.ReadAt(text, 0) // an error means that the file is shorter than text
	if line, _, whole := bytes.Cut(text[:n], []byte("\n")); whole {
		decode(line)
	}
	return r
}

// newestDecision returns the newest decision of the balancer that can be read, or nil.
func newestDecision(logs *os.Root) (found *briefDecision) {
	_, _, _ = readLast(logs, balanceFile, 256<<10, func(line []byte) bool { // an error means that there is no decision
		d, ok := ParseDecision(line)
		if ok {
			found = &briefDecision{&d.Step, d.Shares, experiment.Number(math.NaN()), d.Seconds}
			if d.OfOracle != nil {
				found.ShareOfOracle = experiment.Number(*d.OfOracle)
			}
		}
		return ok
	})
	return found
}

// briefDecision contains the parts of a decision that a summary needs.
type briefDecision struct {
	Step          *int64            `json:"step"`
	Shares        []int             `json:"shares"`
	ShareOfOracle experiment.Number `json:"share_of_oracle"`
	Seconds       *float64          `json:"-"` // mean step time in the window of the decision; nil if unknown
}

// recorded returns the number of ranks that the decision contains.
func (d *briefDecision) recorded() recorded {
	if d == nil {
		return recorded{}
	}
	return recorded{ranks: len(d.Shares), step: *d.Step}
}
