package experiment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// Folders of a run.
const (
	logsFolder        = "logs"
	configsFolder     = "configs"
	checkpointsFolder = "checkpoints"
	resultsFolder     = "results"

	maxNameBytes = 64
)

// Values of Options.Resume beside a path.
const (
	ResumeAuto = "auto"
	ResumeNone = "none"
)

// Options say which run is meant and how it begins.
type Options struct {
	OutputDir string // made if need be
	Name      string
	LogDir    string // "": the folder logs of the run
	Resume    string // ResumeAuto, ResumeNone or a path

	// Steps, or where that is 0 Epochs, is how much training the settings ask for. A run that has done it with exit
	// code 0 is finished; one that has done less goes on, for example when the settings now ask for more epochs.
	// With both 0 any run that ended with exit code 0 is finished.
	Steps, Epochs int64
}

// done reports whether a run that ended so has nothing left to do.
func (o Options) done(r Result) bool {
	if r.Exit != 0 || r.OutOfTime || r.GaveUp != "" {
		return false
	}
	if o.Steps > 0 {
		return r.Steps >= o.Steps
	}
	return r.Epochs >= o.Epochs
}

// Run is a locked run folder.
type Run struct {
	Name string
	Dir  string // <output_dir>/<name>

	Finished   *Result                // the run is done already; nothing was touched
	Checkpoint *checkpoint.Checkpoint // to resume from, open and verified; nil: fresh
	Skipped    []checkpoint.Skipped   // newer checkpoints that could not be taken
	MovedTo    string                 // where the old run of this name now is; "" if there was none
	Warnings   []string

	logDir string
	root   *os.Root
	lock   *os.File
}

// ValidName reports whether name can name an experiment. Names that begin with a dot would be hidden, and programs take
// those that begin with a hyphen for flags.
func ValidName(name string) bool {
	if name == "" || name[0] == '.' || name[0] == '-' || len(name) > maxNameBytes {
		return false
	}
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	return strings.Trim(name, allowed) == ""
}

// Open locks a run's folder and decides how the run begins; see the table in the package documentation.
// Where it returns an error the old run, if any, is as it was. The caller closes the Run, and before that
// its Checkpoint.
func Open(options Options) (*Run, error) {
	if !ValidName(options.Name) {
		return nil, &NameError{options.Name}
	}
	run := &Run{Name: options.Name, Dir: filepath.Join(options.OutputDir, options.Name)}
	if err := run.open(options); err != nil {
		if run.Checkpoint != nil {
			run.Checkpoint.Close()
		}
		run.Close()
		return nil, err
	}
	return run, nil
}

// OpenFinished opens the run if Open would find it finished, else it returns nil and has made nothing: so that a
// finished run needs neither its data nor its device again.
func OpenFinished(options Options) (*Run, error) {
	if !ValidName(options.Name) || options.Resume != ResumeAuto {
		return nil, nil
	}
	root, err := os.OpenRoot(filepath.Join(options.OutputDir, options.Name))
	if err != nil {
		return nil, nil // there is no run; what else is wrong with the folder Open finds out
	}
	result, err := readResult(root, options.Name)
	root.Close()
	if err != nil || !options.done(result) {
		return nil, nil
	}
	run, err := Open(options)
	if err != nil {
		return nil, err
	}
	return run.unlessGoesOn(), nil
}

// unlessGoesOn is the run if it is finished; another, which a process began after it was looked at, is closed.
func (r *Run) unlessGoesOn() *Run {
	if r.Finished != nil {
		return r
	}
	if r.Checkpoint != nil {
		r.Checkpoint.Close() // was only read
	}
	r.Close() // nothing was written
	return nil
}

func (r *Run) open(options Options) error {
	// A path that leads nowhere, or a folder for logs that cannot be had, is found before anything is made or moved.
	own := false
	if options.Resume != ResumeAuto && options.Resume != ResumeNone {
		var err error
		if own, err = r.loadFrom(options.Resume); err != nil {
			return err
		}
	}
	for _, dir := range []string{options.LogDir, options.OutputDir} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return folderError("create", dir, err)
		}
	}
	output, err := os.OpenRoot(options.OutputDir)
	if err != nil {
		return folderError("open", options.OutputDir, err)
	}
	defer output.Close()
	if r.lock, err = lockFolder(output, options.Name); err != nil {
		return err
	}
	if options.Resume != ResumeAuto && !own {
		if err := r.moveAside(output); err != nil {
			return err
		}
	}
	if r.root, err = output.OpenRoot(options.Name); err != nil {
		return folderError("open", r.Dir, err)
	}
	r.logDir = options.LogDir
	if options.Resume == ResumeAuto {
		if err := r.resumeAuto(options); err != nil || r.Finished != nil {
			return err
		}
	}
	if own && r.endsWith(options) {
		return nil
	}
	return r.makeFolders()
}

func (r *Run) makeFolders() error {
	folders := []string{configsFolder, checkpointsFolder, resultsFolder}
	if r.logDir == "" {
		folders = append(folders, logsFolder)
	}
	for _, name := range folders {
		if err := r.root.MkdirAll(name, 0o755); err != nil {
			return folderError("create", filepath.Join(r.Dir, name), err)
		}
	}
	return r.refuseLinks(folders)
}

// refuseLinks refuses symbolic links that lead out of the run's folder before anything is written there: not all who write logs and results open them
// through the folder.
func (r *Run) refuseLinks(folders []string) error {
	for _, folder := range folders {
		if folder == checkpointsFolder { // a checkpoint.Store follows none
			continue
		}
		err := fs.WalkDir(r.root.FS(), folder, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type()&fs.ModeSymlink != 0 {
				if _, err = r.root.Stat(name); errors.Is(err, fs.ErrNotExist) {
					err = nil // leads to nothing within the folder
				}
			}
			return folderError("open", filepath.Join(r.Dir, name), err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close gives the folder free. The Checkpoint is not closed.
func (r *Run) Close() error {
	if r.root != nil {
		r.root.Close()
	}
	if r.lock == nil {
		return nil
	}
	return r.lock.Close() // the lock ends with its last descriptor
}

// LogDir is the folder of log file and metric records.
func (r *Run) LogDir() string {
	if r.logDir != "" {
		return r.logDir
	}
	return filepath.Join(r.Dir, logsFolder)
}

// CheckpointDir is the folder for a checkpoint.Store.
func (r *Run) CheckpointDir() string { return filepath.Join(r.Dir, checkpointsFolder) }

// ConfigDir is the folder of settings and hardware profiles.
func (r *Run) ConfigDir() string { return filepath.Join(r.Dir, configsFolder) }

// OpenLog opens logs/train.log for appending. Each Write is one write to the file, so lines of several
// processes do not mix. The caller closes it.
func (r *Run) OpenLog() (io.WriteCloser, error) {
	const name = "train.log"
	const flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	path := filepath.Join(r.LogDir(), name)
	if r.logDir != "" {
		file, err := os.OpenFile(path, flags, 0o644)
		if err != nil {
			return nil, folderError("open", path, err)
		}
		return file, nil
	}
	file, err := r.root.OpenFile(filepath.Join(logsFolder, name), flags, 0o644)
	if err != nil {
		return nil, folderError("open", path, err)
	}
	return file, nil
}

// moveAside renames the folder, if it holds anything, to the first free <name>.<n> above those that exist,
// and locks a fresh one.
func (r *Run) moveAside(output *os.Root) error {
	used, err := holdsFiles(output, r.Name)
	if err != nil {
		return folderError("list", r.Dir, err)
	}
	if !used {
		return nil
	}
	aside, err := asideName(output, r.Name)
	if err != nil {
		return folderError("list", output.Name(), err)
	}
	if err := output.Rename(r.Name, aside); err != nil {
		return folderError("move aside", r.Dir, err)
	}
	r.MovedTo = filepath.Join(output.Name(), aside)
	old := r.lock
	defer old.Close()
	r.lock, err = lockFolder(output, r.Name)
	return err
}

// holdsFiles reports whether a run's folder holds any file but the lock.
func holdsFiles(output *os.Root, name string) (bool, error) {
	dir, err := output.Open(name)
	if err != nil {
		return false, err
	}
	entries, err := dir.ReadDir(-1)
	dir.Close()
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		switch {
		case entry.Name() == lockFile:
		case !entry.IsDir():
			return true, nil
		default:
			if used, err := holdsFiles(output, filepath.Join(name, entry.Name())); used || err != nil {
				return used, err
			}
		}
	}
	return false, nil
}

// asideName is name.<n>, n one above the highest there is, shortened so that it is a valid name itself.
func asideName(output *os.Root, name string) (string, error) {
	dir, err := output.Open(".")
	if err != nil {
		return "", err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return "", err
	}
	candidate := func(n int) string {
		suffix := fmt.Sprintf(".%d", n)
		return name[:min(len(name), maxNameBytes-len(suffix))] + suffix
	}
	free := 1
	for _, other := range names {
		n, err := strconv.Atoi(other[strings.LastIndexByte(other, '.')+1:])
		if err == nil && n >= free && candidate(n) == other {
			free = n + 1
		}
	}
	return candidate(free), nil
}
