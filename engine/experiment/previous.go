package experiment

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// previousResultFile is the result of the newest earlier process that wrote a result.
const previousResultFile = "result.previous.json"

// endResults and endLogs contain the files that describe the end of a process, in the folder of results and in the
// folder of logs. They map each name to the name that the file gets when a later process begins to train.
var (
	endResults = map[string]string{resultFile: previousResultFile, tableFile: "results.previous.md"}
	endLogs    = map[string]string{"summary.json": "summary.previous.json",
		"latency_histogram.png": "latency_histogram.previous.png"}
)

// setEndAside renames the files that describe the end of an earlier process. Otherwise, other programs would assume
// that this run has ended.
func (r *Run) setEndAside() error {
	results, err := r.root.OpenRoot(resultsFolder)
	if err != nil {
		return folderError("open", filepath.Join(r.Dir, resultsFolder), err)
	}
	defer results.Close()
	logs, err := os.OpenRoot(r.LogDir())
	if err != nil {
		return folderError("open", r.LogDir(), err)
	}
	defer logs.Close()
	for root, names := range map[*os.Root]map[string]string{results: endResults, logs: endLogs} {
		for name, previous := range names {
			if err := root.Rename(name, previous); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return folderError("rename", filepath.Join(root.Name(), name), err)
			}
		}
	}
	return nil
}
