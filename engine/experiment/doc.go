// Package experiment owns the folder of a training run: it makes and locks it, decides how a run begins
// (afresh, resumed, or not at all because it is finished), and keeps its settings, log file and result.
//
//	run, err := experiment.Open(experiment.Options{OutputDir: "experiments", Name: "resnet50", Named: true, Resume: "auto", Steps: 300, Compare: compare})
//	defer run.Close()
//	if run.Finished != nil { … say so and leave … }
//	… find out whether training is possible at all; nothing has changed on disk so far …
//	err = run.Begin()
//	if run.Checkpoint != nil { … resume from it … }
//	err = run.StoreConfig(resolved, version)
//	…
//	err = run.WriteResult(result)
//
// # Folder
//
//	<output_dir>/<name>/
//	  .lock                  held with flock(2) while a process uses the folder; its text says who
//	  configs/resolved.toml  the settings in force; earlier, other ones stay as resolved.1.toml, resolved.2.toml, …
//	  configs/version.txt    the program version that wrote them
//	  logs/train.log         appended to by every process of the run
//	  checkpoints/           see package checkpoint
//	  results/result.json    see Result; replaced atomically
//
// # How a run begins
//
//	resume   what is there                            what happens
//	auto     nothing, or no checkpoint                starts afresh in this folder
//	auto     a result with exit 0 and all the steps   Run.Finished is set, nothing is touched
//	auto     checkpoints                              resumes from the newest valid one; Run.Skipped lists damaged newer ones
//	auto     checkpoints, none of them valid          *checkpoint.CorruptError: never a silent fresh start
//	auto     a run of other settings, or of more      Named: *ChangedError, nothing is touched
//	         steps than Options.Steps                 else Begin moves it to <name>-1 (-2, …), a fresh one starts
//	none     anything                                 Begin moves the old run to <name>-1 (-2, …), a fresh one starts
//	PATH     a checkpoint of this run                 resumes from it in place
//	PATH     a checkpoint of another run              Begin moves the old run, if any, aside as with none; resumes in a fresh folder
//	PATH     a checkpoint of other settings           *ChangedError, nothing is touched
//
// PATH names one checkpoint, or a run or folder of checkpoints, whose newest valid one is meant. The caller says which settings differ
// (Options.Compare); a checkpoint of step 0 was trained with none. Whoever resumes calls checkpoint.Store.SetAside with the checkpoint's step and
// drops later metric records.
//
// A move is one rename, to a name that does not exist, under the run's lock: a process that is killed leaves the old run complete, under its old or its
// new name. Hardware profiles in the folder configs are copied to the fresh run. Logs in Options.LogDir move to <log_dir>/<new name> first.
//
// # Errors
//
//	*NameError     not a name for a folder (exit code 2)
//	*InUseError    another process holds the folder; it says which (exit code 2)
//	*ChangedError  the run's settings are not those of the one that it would resume (exit code 2)
//	*ResumeError   there is nothing to resume from at the given path (exit code 2)
//	*FolderError   the system refuses to make or write the folder (exit code 2 at start, 7 later)
//	errors of package checkpoint
//
// A name is 1 to 64 of the characters A-Z a-z 0-9 . _ - and begins with neither . nor -. All access to the run's
// folder goes through os.Root: no symbolic link leads out of the output folder.
package experiment
