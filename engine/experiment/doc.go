// Package experiment manages the folder of a training run. It creates and locks the folder, decides how a run begins
// (new, resumed, or not at all because it is finished), and stores its settings, log file and result.
//
//	run, err := experiment.Open(experiment.Options{OutputDir: "experiments", Name: "resnet50", Named: true, Resume: "auto", Steps: 300, Compare: compare})
//	defer run.Close()
//	if run.Finished != nil { … report it and exit … }
//	… check whether training is possible; so far Open has not changed the disk …
//	err = run.Begin()
//	if run.Checkpoint != nil { … resume from it … }
//	err = run.StoreConfig(resolved, version)
//	…
//	err = run.WriteResult(result)
//
// # Folder
//
//	<output_dir>/<name>/
//	  .lock                  locked with flock(2) while a process uses the folder; the text names the process
//	  configs/resolved.toml  the current settings; earlier ones that differ remain as resolved.1.toml, resolved.2.toml, …
//	  configs/version.txt    the program version that wrote them
//	  logs/train.log         appended to by every process of the run
//	  checkpoints/           see package checkpoint
//	  results/result.json    see Result; replaced atomically
//
// # How a run begins
//
//	resume   contents of the folder                   action
//	auto     empty, or no checkpoint                  a new run starts in this folder
//	auto     a result with exit 0 and all the steps   sets Run.Finished, changes nothing
//	auto     checkpoints                              resumes from the newest valid one; Run.Skipped lists damaged newer ones
//	auto     checkpoints, none of them valid          returns *checkpoint.CorruptError; never starts a new run silently
//	auto     a run of other settings, or of more      if Named: returns *ChangedError, changes nothing;
//	         steps than Options.Steps                 else Begin moves it to <name>-1 (-2, …), a new run starts
//	none     anything                                 Begin moves the old run to <name>-1 (-2, …), a new run starts
//	PATH     a checkpoint of this run                 resumes from it in place
//	PATH     a checkpoint of another run              Begin moves the old run, if any, as with none; resumes in a new folder
//	PATH     a checkpoint of other settings           returns *ChangedError, changes nothing
//
// PATH is one checkpoint, a run's folder, or a folder of checkpoints. From a folder, the newest valid checkpoint is
// used. Options.Compare returns the settings that differ. A checkpoint of step 0 contains no trained steps, so it fits
// any settings. A caller that resumes must call checkpoint.Store.SetAside with the checkpoint's step, and must drop
// later metric records.
//
// Begin moves a run with a single rename, to a name that does not exist, while it holds the run's lock. If the process
// is killed, the old run remains complete, under its old or its new name. Before the rename, logs in Options.LogDir
// move to <log_dir>/<new name>. Hardware profiles in the folder configs are copied to the new run.
//
// # Errors
//
//	*NameError     an invalid name (exit code 2)
//	*InUseError    another process uses the folder; the error names it (exit code 2)
//	*ChangedError  the settings differ from those of the run to resume (exit code 2)
//	*ResumeError   the path contains nothing to resume from (exit code 2)
//	*FolderError   the folder cannot be created or written (exit code 2 at start, 7 later)
//	errors of package checkpoint
//
// A name has 1 to 64 of the characters A-Z a-z 0-9 . _ - and begins with neither . nor -. All access to the run's
// folder uses os.Root: no symbolic link can lead outside the output folder.
package experiment
