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

// Subfolders of a run.
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

// Options identifies a run and determines how it begins.
type Options struct {
	OutputDir string // output folder; created if necessary
	Name      string
	Named     bool   // the user chose the name, so changed settings never cause a move of a run of this name
	LogDir    string // folder of the logs; "": the subfolder logs of the run
	Resume    string // ResumeAuto, ResumeNone or a path

	// Steps, or Epochs if Steps is 0, is the requested amount of training. If both are 0, there is no limit. A run that
	// trained this amount and ended with exit code 0 is finished. A run that trained less resumes. A run that trained
	// more counts as a different run.
	Steps, Epochs int64
	Length        string // setting that requests this amount, for messages, such as "train.epochs = 3"

	// EarlyStop describes the settings of early stopping; "" if it is off. If a run ended because of the same settings,
	// it is finished. If it ended because of other settings, it resumes.
	EarlyStop string

	// Source provides copies of checkpoints for ResumeAuto; nil: none.
	Source Source

	// Compare returns the settings that differ from those of an earlier run and affect training results. nil means that
	// no settings are compared.
	Compare func(Earlier) ([]Change, error)
}

// Source is a location with copies of the checkpoints of a run.
type Source interface {
	// Any reports whether Fetch may find a checkpoint for a run whose folder does not exist.
	Any() (bool, error)
	// Fetch copies a checkpoint to the folder of checkpoints of the run dir, if the copy is newer than step. This
	// process has locked dir. The parameter step is the step of the newest valid checkpoint in dir; -1: there is none.
	Fetch(dir string, step int64) (copied bool, err error)
}

// done reports whether a run with result r has finished the requested training.
func (o Options) done(r Result) bool {
	if r.Exit != 0 || r.OutOfTime {
		return false
	}
	if r.GaveUp != "" {
		return r.EarlyStop != "" && r.EarlyStop == o.EarlyStop
	}
	if o.Steps > 0 {
		return r.Steps >= o.Steps
	}
	return r.Epochs >= o.Epochs
}

// Run is the folder of a run. Open locks the folder if it exists; otherwise Begin locks it.
type Run struct {
	Name string
	Dir  string // <output_dir>/<name>

	Finished   *Result                // result of an already finished run; nil if the run is not finished
	Lost       error                  // damage to all checkpoints of the finished run; nil: no such damage
	Unread     error                  // reason why no checkpoint of the finished run can be read
	Checkpoint *checkpoint.Checkpoint // checkpoint to resume from, open and verified; nil for a new run
	Skipped    []checkpoint.Skipped   // newer checkpoints that are unusable
	Changed    *ChangedError          // reason why the old run is moved; nil: no run is moved, or the user requested it
	MovedTo    string                 // new path of the old run, set by Begin; "" if there was no old run
	Warnings   []string

	options Options
	own     bool // Checkpoint belongs to this run
	moves   bool // Begin moves the old run
	begun   bool
	start   string // ID of the Start of this process; "" before Begin
	ended   bool   // this process has written its result
	logDir  string
	root    *os.Root // nil while the folder does not exist
	lock    *os.File
}

// ValidName reports whether name can be the name of a run. A folder with a leading dot would be hidden. Programs would
// interpret a leading hyphen as the start of a flag.
func ValidName(name string) bool {
	if name == "" || name[0] == '.' || name[0] == '-' || len(name) > maxNameBytes {
		return false
	}
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	return strings.Trim(name, allowed) == ""
}

// Open decides how the run begins; see the table in the package comment. If the folder of the run exists, Open locks
// it. Apart from the lock and from a checkpoint that Options.Source copies, Open changes nothing on disk. The caller
// then checks whether training is possible, and calls Begin unless the run is finished. The caller must close the
// Checkpoint and then the Run.
func Open(options Options) (*Run, error) {
	if !ValidName(options.Name) {
		return nil, &NameError{options.Name}
	}
	run := &Run{Name: options.Name, Dir: filepath.Join(options.OutputDir, options.Name), options: options,
		logDir: options.LogDir}
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
	case errors.Is(err, fs.ErrNotExist): // no run yet; Begin creates the folder
		if r.Checkpoint != nil {
			return r.decidePath(o)
		}
		return r.fetchNew(o)
	case err != nil:
		return folderError("open", r.Dir, err)
	}
	if err := r.take(output); err != nil {
		return err
	}
	return r.decide(o)
}

// fetchNew begins a run without a folder from a copy of its checkpoint, if a copy exists.
func (r *Run) fetchNew(o Options) error {
	if o.Resume != ResumeAuto || o.Source == nil {
		return nil
	}
	if any, err := o.Source.Any(); err != nil || !any {
		return err
	}
	if err := os.MkdirAll(o.OutputDir, 0o755); err != nil {
		return folderError("create", o.OutputDir, err)
	}
	output, err := os.OpenRoot(o.OutputDir)
	if err != nil {
		return folderError("open", o.OutputDir, err)
	}
	defer output.Close() // read only
	if err := r.takeNew(output); err != nil {
		return err
	}
	return r.decide(o)
}

// Replaces reports whether Begin will move an old run. This run then begins in an empty folder.
func (r *Run) Replaces() bool { return r.moves }

// take creates the folder of the run if necessary, then locks and opens it.
func (r *Run) take(output *os.Root) (err error) {
	if r.lock, err = lockFolder(output, r.Name); err != nil {
		return err
	}
	r.root, err = output.OpenRoot(r.Name)
	return folderError("open", r.Dir, err)
}

// Begin prepares the folder of the run for training. If Open decided to move the old run, Begin moves it. Begin creates
// missing subfolders. After Begin, the folder states that this process trains the run. Therefore Begin renames files
// that describe the end of an earlier process. If Begin fails, the old run remains complete, under its old name or
// under MovedTo.
func (r *Run) Begin() error {
	o := r.options
	for _, dir := range []string{o.LogDir, o.OutputDir} { // detect unusable folders before anything is moved
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
	if err := r.makeFolders(); err != nil {
		return err
	}
	if err := r.writeStart(); err != nil {
		return err
	}
	return r.setEndAside() // after the start, so that an interrupted Begin leaves no result that looks current
}

// takeNew creates and locks a folder that did not exist when Open was called.
func (r *Run) takeNew(output *os.Root) error {
	if err := r.take(output); err != nil {
		return err
	}
	if used, err := holdsFiles(r.root, "."); err != nil || used {
		if err == nil {
			err = errors.New(
				"another process has just started a run with this name: try again, or set another experiment.name")
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
	if err := r.refuseOddFiles(folders); err != nil || r.logDir == "" {
		return err
	}
	return r.writeOwner()
}

// refuseOddFiles returns an error for files that would later stop the run. It runs before anything is written. It
// refuses symbolic links that lead outside the folder of the run, because some writers of logs and results do not use
// os.Root. It also refuses named pipes, because opening a pipe may block, and a folder with the name of the result
// file.
func (r *Run) refuseOddFiles(folders []string) error {
	for _, folder := range folders {
		if folder == checkpointsFolder { // checkpoint.Store follows no links and opens only regular files
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
		return nil // a link whose target does not exist in the folder
	}
	if err != nil {
		return err
	}
	return odd(name, info, !entry.IsDir() || filepath.Dir(name) == resultsFolder && entry.Name() == resultFile)
}

// refuseOddLogs checks the files of the run in Options.LogDir.
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
			continue // a broken link
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

// odd returns an error unless path is a regular file or a folder. If file is true, path must be a regular file.
func odd(path string, info fs.FileInfo, file bool) error {
	if info.Mode().IsRegular() || info.IsDir() && !file {
		return nil
	}
	return &regular.Error{
		Path: path, Reason: fmt.Sprintf("got %s, want a regular file: remove it", regular.Kind(info.Mode()))}
}

// Close releases the lock and closes the folder. It does not close the Checkpoint.
func (r *Run) Close() error {
	if r.root != nil {
		r.root.Close()
	}
	if r.lock == nil {
		return nil
	}
	return r.lock.Close() // closing the last descriptor releases the lock
}

// LogDir returns the folder for the log file and metric records.
func (r *Run) LogDir() string {
	if r.logDir != "" {
		return r.logDir
	}
	return filepath.Join(r.Dir, logsFolder)
}

// CheckpointDir returns the folder for a checkpoint.Store.
func (r *Run) CheckpointDir() string { return filepath.Join(r.Dir, checkpointsFolder) }

// ConfigDir returns the folder for settings and hardware profiles.
func (r *Run) ConfigDir() string { return filepath.Join(r.Dir, configsFolder) }

// LogFile is the name of the log file in the folder of log files.
const LogFile = "train.log"

// OpenLog opens logs/train.log for appending. Each Write is a single write to the file, so lines of different processes
// are not mixed. The caller must close the log.
func (r *Run) OpenLog() (io.WriteCloser, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	path := filepath.Join(r.LogDir(), LogFile)
	if r.logDir != "" {
		file, err := regular.Write(path, flags)
		if err != nil {
			return nil, folderError("open", path, err)
		}
		return file, nil
	}
	file, err := regular.WriteIn(r.root, filepath.Join(logsFolder, LogFile), flags)
	if err != nil {
		return nil, folderError("open", path, err)
	}
	return file, nil
}
