package runs

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// Files of a run.
const (
	lockFile       = ".lock"
	resolvedFile   = "configs/resolved.toml"
	profilesFile   = "configs/gpu_profiles.json"
	resultFile     = "results/result.json"
	logsFolder     = "logs"
	balanceFile    = "balance.jsonl"
	curvesFile     = "curves.csv"
	metricsOfRank0 = "rank_0_metrics.json"

	checkpointsFolder = "checkpoints"
)

// Limits of files that are read completely.
const (
	// mostSettings is larger than a file with all keys. It is low because the time to parse TOML grows with the square
	// of the size.
	mostSettings = 128 << 10
	mostResult   = 1 << 20
	mostProfiles = 8 << 20 // the profile of a thousand ranks has about 2 MB
	mostCurves   = 4 << 20
	mostReason   = 64 << 10
	mostNames    = 4096 // entries of the folder of checkpoints
)

// Settings contains the settings that programs show.
type Settings struct {
	Experiment struct {
		LogDir string `toml:"log_dir" json:"-"`
	} `toml:"experiment" json:"-"`
	Model struct {
		Name string `toml:"name" json:"name"`
	} `toml:"model" json:"model"`
	Data struct {
		Dataset   string `toml:"dataset" json:"dataset"`
		BatchSize int64  `toml:"batch_size" json:"batch_size"`
	} `toml:"data" json:"data"`
	Balance struct {
		Policy   string `toml:"policy" json:"policy"`
		Interval int64  `toml:"interval" json:"interval"`
	} `toml:"balance" json:"balance"`
	Profile struct {
		Enabled  *bool `toml:"enabled" json:"enabled"`
		Interval int64 `toml:"interval" json:"interval"`
	} `toml:"profile" json:"profile"`
	Train struct {
		Precision        string `toml:"precision" json:"precision"`
		GradAccumulation int64  `toml:"grad_accumulation" json:"grad_accumulation"`
	} `toml:"train" json:"train"`
}

// recorded reports whether the run records its steps.
func (s *Settings) recorded() bool { return s.Profile.Enabled == nil || *s.Profile.Enabled }

// readSettings reads configs/resolved.toml. If the file is missing or invalid, all fields are empty.
func readSettings(root *os.Root) (s Settings, text string) {
	b, err := regular.ReadIn(root, resolvedFile, mostSettings)
	if err != nil || toml.Unmarshal(b, &s) != nil {
		return Settings{}, string(b)
	}
	return s, string(b)
}

// openLogs opens the folder of a run's logs.
func openLogs(root *os.Root, s Settings) (*os.Root, error) {
	if s.Experiment.LogDir != "" {
		return experiment.OpenLogs(s.Experiment.LogDir, root)
	}
	return root.OpenRoot(logsFolder)
}

// isLogs reports whether the open folder logs is still the folder of the run's logs.
func isLogs(logs, root *os.Root, s Settings) bool {
	was, err := logs.Stat(".")
	if err != nil {
		return false
	}
	var now fs.FileInfo
	if s.Experiment.LogDir != "" {
		now, err = os.Stat(filepath.Clean(s.Experiment.LogDir))
	} else {
		now, err = root.Stat(logsFolder)
	}
	if err != nil {
		return !isMissing(err)
	}
	return os.SameFile(was, now)
}

// errDamaged describes a file whose content is not valid.
var errDamaged = errors.New("the file is damaged: copy it again if the original is complete")

// readResult returns the result of the run, or nil if there is no valid result. The error states why the file cannot be
// read: it is errDamaged if the content is not valid. If the file is missing or empty, the error is nil.
func readResult(root *os.Root) (*experiment.Result, error) {
	text, err := regular.ReadIn(root, resultFile, mostResult)
	if isMissing(err) || err == nil && len(text) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(experiment.Result)
	if json.Unmarshal(text, r) != nil {
		return nil, errDamaged
	}
	return r, nil
}

// quarantined returns a note for each folder of checkpoints that the run has quarantined. The note contains the reason.
func quarantined(root *os.Root) (notes []string) {
	if info, err := root.Stat(checkpointsFolder); err != nil || !info.IsDir() {
		return nil
	}
	dir, err := root.Open(checkpointsFolder)
	if err != nil {
		return nil
	}
	defer dir.Close() // read only
	names, err := dir.Readdirnames(mostNames)
	if err != nil {
		return nil // the quarantined folder is empty
	}
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasPrefix(name, "quarantined-") {
			continue
		}
		path := checkpointsFolder + "/" + name
		if reason, err := regular.ReadIn(root, path+"/reason.txt", mostReason); err == nil {
			notes = append(notes, fmt.Sprintf("checkpoints that may be wrong are in %s: %s", path,
				strings.TrimSpace(string(reason))))
		}
	}
	return notes
}

// readLast passes lines to decode, from the last one backwards, until decode accepts a line. It searches the last
// bytesBack bytes of the file.
func readLast(root *os.Root, name string, bytesBack int64, decode func(line []byte) bool) (found bool, modified int64,
	err error) {
	file, info, err := regular.OpenIn(root, name)
	if err != nil {
		return false, 0, err
	}
	defer file.Close() // read only
	text := make([]byte, min(info.Size(), bytesBack))
	n, err := file.ReadAt(text, info.Size()-int64(len(text)))
	if n < len(text) && err != nil { // fewer bytes than the size: the file has become shorter since its size was read
		text = text[:n]
	}
	modified = info.ModTime().UnixMilli()
	for len(text) > 0 {
		at := bytes.LastIndexByte(text[:len(text)-1], '\n')
		line := bytes.TrimRight(text[at+1:], ",\n")
		if len(line) > 1 && decode(line) {
			return true, modified, nil
		}
		text = text[:at+1]
	}
	return false, modified, nil
}

// readLastRecord returns the newest record of a rank.
func readLastRecord(logs *os.Root, rank int) (r runtime.Record, found bool, modified int64) {
	found, modified, _ = readLast(logs, runtime.FileName(rank), 8<<10, func(line []byte) bool {
		return json.Unmarshal(line, &r) == nil
	})
	return r, found, modified
}

// Point is a point of a step-time curve.
type Point struct {
	Samples float64 `json:"samples"`
	Seconds float64 `json:"seconds"`
}

// readCurves returns the fitted step-time curves by rank, or nil if there are none.
func readCurves(logs *os.Root) map[int][]Point {
	text, err := regular.ReadIn(logs, curvesFile, mostCurves)
	if err != nil {
		return nil
	}
	return parseCurves(text)
}

func parseCurves(text []byte) map[int][]Point {
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil || len(rows) < 2 {
		return nil
	}
	curves := map[int][]Point{}
	for _, row := range rows[1:] { // the first row contains the names: rank, samples, seconds
		if len(row) < 3 {
			continue
		}
		rank, err1 := strconv.Atoi(row[0])
		samples, err2 := strconv.ParseFloat(row[1], 64)
		seconds, err3 := strconv.ParseFloat(row[2], 64)
		if errors.Join(err1, err2, err3) == nil && runtime.Known(samples) != nil && runtime.Known(seconds) != nil {
			curves[rank] = append(curves[rank], Point{samples, seconds})
		}
	}
	return curves
}

// Profile describes the hardware of one rank, as in gpu_profiles.json.
type Profile struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"`
	Device struct {
		Name    string  `json:"name"`
		Kind    string  `json:"kind"`
		Model   string  `json:"model"`
		ISA     string  `json:"isa"`
		Threads int     `json:"threads"`
		CPUs    float64 `json:"cpus"`
	} `json:"device"`
	MemoryBytes  int64           `json:"memory_bytes"`
	ComputeScore float64         `json:"compute_score"`
	Relative     float64         `json:"relative_score"`
	Measured     json.RawMessage `json:"measured"`
	GPU          json.RawMessage `json:"gpu,omitempty"`
}

// readProfiles returns the hardware of the ranks, or nil if the run has no profile.
func readProfiles(root *os.Root) []Profile {
	text, err := regular.ReadIn(root, profilesFile, mostProfiles)
	if err != nil {
		return nil
	}
	var file struct {
		Ranks []Profile `json:"ranks"`
	}
	if json.Unmarshal(text, &file) != nil {
		return nil
	}
	return file.Ranks
}

// isMissing reports whether err means that a file does not exist.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
