package experiment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Folders of a run.
const (
	logsFolder        = "logs"
	configsFolder     = "configs"
	checkpointsFolder = "checkpoints"
	resultsFolder     = "results"

	maxNameBytes = 64
)

// Values of Options.Resume other than a path.
const (
	ResumeAuto = "auto"
	ResumeNone = "none"
)

// Options say which run is meant and how it begins.
type Options struct {
	OutputDir string // made if need be
	Name      string
	Named     bool   // the user chose the name: the run of that name never gives way to one of other settings
	LogDir    string // "": the folder logs of the run
	Resume    string // ResumeAuto, ResumeNone or a path

	// Steps, or where that is 0 Epochs, is how much training the settings ask for; with both 0 there is no limit. A run that has done as much
	// with exit code 0 is finished; one that has done less resumes; one that has done more is another run.
	Steps, Epochs int64
	Length        string // the setting behind them, for messages: "train.epochs = 3"

	// Compare lists the settings that make the run at hand learn something else than the earlier one; nil compares nothing.
	Compare func(Earlier) ([]Change, error)
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

// Run is a run folder. It is locked from Open on if it exists, else from Begin on.
type Run struct {
	Name string
	Dir  string // <output_dir>/<name>

	Finished   *Result                // the run is done already; nothing was touched
	Checkpoint *checkpoint.Checkpoint // to resume from, open and verified; nil: fresh
	Skipped    []checkpoint.Skipped   // newer checkpoints that could not be taken
	Changed    *ChangedError          // why the old run gives way; nil where the user starts afresh, or where no run gives way
	MovedTo    string                 // where the old run of this name is since Begin; "" if there was none
	Warnings   []string

	options Options
	own     bool // Checkpoint is one of this run's own
	moves   bool // Begin moves the old run aside
	begun   bool
	logDir  string
	root    *os.Root // nil while the folder does not exist
	lock    *os.File
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

// Open decides how the run begins; see the table in the package documentation. It locks the run's folder where that exists, and
// changes nothing: the caller finds out whether it can train at all, and then calls Begin, unless the run is finished. The caller closes the
// Run, and before that its Checkpoint.
func Open(options Options) (*Run, error) {
	if !ValidName(options.Name) {
		return nil, &NameError{options.Name}
	}
	run := &Run{Name: options.Name, Dir: filepath.Join(options.OutputDir, options.Name), options: options, logDir: options.LogDir}
	if err := run.open(); err != nil {
		run.closeCheckpoint()
		run.Close()
		return nil, err
	}
	return run, nil
}

func (r *Run) open() error {
	o := r.options
	if o.Resume != ResumeAuto && o.Resume != ResumeNone {
		var err error
		if r.own, err = r.loadFrom(o.Resume); err != nil {
			return err
		}
	}
	output, err := os.OpenRoot(o.OutputDir)
	if err == nil {
		defer output.Close()
		_, err = output.Stat(o.Name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // there is no run yet: Begin makes the folder
		if r.Checkpoint != nil {
			return r.decidePath(o)
		}
		return nil
	case err != nil:
		return folderError("open", r.Dir, err)
	}
	if err := r.take(output); err != nil {
		return err
	}
	return r.decide(o)
}

// take locks the run's folder, which it makes if need be, and opens it.
func (r *Run) take(output *os.Root) (err error) {
	if r.lock, err = lockFolder(output, r.Name); err != nil {
		return err
	}
	r.root, err = output.OpenRoot(r.Name)
	return folderError("open", r.Dir, err)
}

// Begin makes the run's folder ready for training: it moves the old run aside where Open has decided so, and makes what is missing. Where it
// returns an error the old run, if any, is complete, under its old name or under that of MovedTo.
func (r *Run) Begin() error {
	o := r.options
	for _, dir := range []string{o.LogDir, o.OutputDir} { // a folder that cannot be had is found before anything is moved
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return folderError("create", dir, err)
		}
	}
	output, err := os.OpenRoot(o.OutputDir)
	if err != nil {
		return folderError("open", o.OutputDir, err)
	}
	defer output.Close()
	if r.lock == nil {
		if err := r.takeNew(output); err != nil {
			return err
		}
	}
	if r.moves {
		if err := r.moveAside(output); err != nil {
			return err
		}
	}
	r.begun = true
	return r.makeFolders()
}

// takeNew takes a folder that did not exist when Open looked.
func (r *Run) takeNew(output *os.Root) error {
	if err := r.take(output); err != nil {
		return err
	}
	if used, err := holdsFiles(r.root, "."); err != nil || used {
		if err == nil {
			err = errors.New("another process has just started a run of this name: try again, or set another experiment.name")
		}
		return folderError("begin a run in", r.Dir, err)
	}
	return nil
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
	return r.refuseOddFiles(folders)
}

// refuseOddFiles refuses what would stop a run later, before anything is written: a symbolic link that leads out of the run's folder, since not all who
// write logs and results open them through the folder; a named pipe, for whose other end an open waits; and a folder in the place of the result.
func (r *Run) refuseOddFiles(folders []string) error {
	for _, folder := range folders {
		if folder == checkpointsFolder { // a checkpoint.Store follows no links and opens regular files only
			continue
		}
		err := fs.WalkDir(r.root.FS(), folder, func(name string, entry fs.DirEntry, err error) error {
			if err == nil {
				err = r.refuseOdd(name, entry)
			}
			return folderError("open", filepath.Join(r.Dir, name), err)
		})
		if err != nil {
			return err
		}
	}
	return r.refuseOddLogs()
}

func (r *Run) refuseOdd(name string, entry fs.DirEntry) error {
	info, err := r.root.Stat(name)
	if entry.Type()&fs.ModeSymlink != 0 && errors.Is(err, fs.ErrNotExist) {
		return nil // leads to nothing within the folder
	}
	if err != nil {
		return err
	}
	return odd(name, info, !entry.IsDir() || filepath.Dir(name) == resultsFolder && entry.Name() == resultFile)
}

// refuseOddLogs looks at the files of a run in a folder for logs of the user's choice.
func (r *Run) refuseOddLogs() error {
	if r.logDir == "" {
		return nil
	}
	entries, err := os.ReadDir(r.logDir)
	if err != nil {
		return folderError("list", r.logDir, err)
	}
	for _, entry := range entries {
		if !isLogName(entry.Name()) {
			continue
		}
		path := filepath.Join(r.logDir, entry.Name())
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a link to nothing
		}
		if err == nil {
			err = odd(path, info, !entry.IsDir())
		}
		if err != nil {
			return folderError("open", path, err)
		}
	}
	return nil
}

// odd refuses what is neither a regular file nor, where that may be, a folder.
func odd(path string, info fs.FileInfo, file bool) error {
	if info.Mode().IsRegular() || info.IsDir() && !file {
		return nil
	}
	return &regular.Error{Path: path, Reason: fmt.Sprintf("%v, want a regular file: remove it", info.Mode())}
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
		file, err := regular.Write(path, flags)
		if err != nil {
			return nil, folderError("open", path, err)
		}
		return file, nil
	}
	file, err := regular.WriteIn(r.root, filepath.Join(logsFolder, name), flags)
	if err != nil {
		return nil, folderError("open", path, err)
	}
	return file, nil
}
