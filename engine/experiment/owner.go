package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// OwnerFile is the file in Options.LogDir that contains the path of the folder of the run.
const OwnerFile = "run_folder.txt"

const mostOwnerBytes = 8 << 10

// writeOwner writes OwnerFile.
func (r *Run) writeOwner() error {
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		return err
	}
	logs, err := os.OpenRoot(r.logDir)
	if err != nil {
		return folderError("open", r.logDir, err)
	}
	defer logs.Close() // its files are closed
	return replaceTextIn(logs, r.logDir, OwnerFile, []byte(dir+"\n"))
}

// OpenLogs opens the folder of logs that the settings of a run name. Untrusted settings could name any folder.
// Therefore the OwnerFile of the log folder must name the folder of the run, which is open as root.
func OpenLogs(logDir string, root *os.Root) (*os.Root, error) {
	logs, err := os.OpenRoot(filepath.Clean(logDir))
	if err != nil {
		return nil, err
	}
	if err := owned(logs, root); err != nil {
		return nil, errors.Join(err, logs.Close())
	}
	return logs, nil
}

func owned(logs, root *os.Root) error {
	text, err := regular.ReadIn(logs, OwnerFile, mostOwnerBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s has no file %s that names this run, so it may belong to another run: `hetero-train analyze RUN --log-dir %s` reads it all the same",
			logs.Name(), OwnerFile, logs.Name())
	}
	if err != nil {
		return err
	}
	named := strings.TrimSuffix(string(text), "\n")
	of, err := os.Stat(named)
	self, selfErr := root.Stat(".")
	if err != nil || selfErr != nil || !os.SameFile(of, self) {
		return fmt.Errorf("%s belongs to the run in %q, not to this one: `hetero-train analyze RUN --log-dir %s` reads it all the same",
			logs.Name(), named, logs.Name())
	}
	return nil
}
