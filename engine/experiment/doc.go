// Package experiment manages the folder of a training run. It creates and locks the folder, and stores the settings,
// the log file and the result of the run. It also decides whether a run begins as a new run or resumes, or whether it
// is already finished.
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
//	  .lock                  locked with flock(2) while a process uses the folder; contains the identity of the process
//	  configs/resolved.toml  the current settings; earlier settings are in resolved.1.toml, resolved.2.toml, …
//	  configs/version.txt    the program version that wrote the settings
//	  configs/upload_id.txt  the ID of the run in the bucket to which it uploads checkpoints; see UploadID
//	  logs/train.log         log of all processes of the run; each process appends
//	  checkpoints/           see package checkpoint
//	  .start                 the process that began to train last; see Start
//	  results/result.json    see Result; replaced atomically
//	  *.previous.*           When a later process begins to train, Begin renames the files that describe the end of
//	                         the earlier one: result.json becomes result.previous.json. The others are results.md,
//	                         and in the logs summary.json and latency_histogram.png.
//	<log_dir>/run_folder.txt  with Options.LogDir: the folder of the run; see OpenLogs
//
// # How a run begins
//
//	resume   contents of the folder                   action
//	auto     empty, or no checkpoint                  a new run starts in this folder
//	auto     a finished run: exit code 0, and         sets Run.Finished, changes nothing
//	         Options.Steps reached, or stopped early
//	         under Options.EarlyStop
//	auto     checkpoints                              resumes from the newest valid one; Run.Skipped lists damaged newer ones
//	auto     checkpoints, none of them valid          returns *checkpoint.CorruptError; never starts a new run silently
//	auto     a run with other settings, or one that   if Named: returns *ChangedError, changes nothing;
//	         trained more steps than Options.Steps    else Begin moves it to <name>-1 (-2, …), a new run starts
//	none     anything                                 Begin moves the old run to <name>-1 (-2, …), a new run starts
//	PATH     a checkpoint of this run                 resumes from it in place
//	PATH     a checkpoint of another run              Begin moves the old run, if any, as with none; resumes in a new folder
//	PATH     a checkpoint of other settings           returns *ChangedError, changes nothing
//
// With auto and Options.Source, Open may create and lock the folder. Options.Source may then copy a newer checkpoint to
// the folder.
//
// PATH is a checkpoint, the folder of a run, or a folder of checkpoints. In a folder, the newest valid checkpoint is
// used. Options.Compare returns the settings that differ. A checkpoint of step 0 contains no trained steps, so it is
// compatible with all settings. A caller that resumes must call checkpoint.Store.SetAside with the step of the
// checkpoint, and must remove later metric records.
//
// Begin moves a run with a single rename while it holds the lock of the run. The new name must not exist. If the
// process is killed, the old run remains complete, under its old or its new name. Before the rename, Begin moves the
// logs in Options.LogDir to <log_dir>/<new name>. It copies hardware profiles in the folder configs to the new run.
//
// # Errors
//
//	*NameError     the name is invalid (exit code 2)
//	*InUseError    another process uses the folder; the error identifies the process (exit code 7)
//	*ChangedError  the settings differ from those of the run to resume (exit code 2)
//	*ResumeError   the path contains nothing to resume from (exit code 2)
//	*FolderError   the folder cannot be created or written (exit code 2 at start, 7 later)
//	errors of package checkpoint
//
// A name consists of 1 to 64 of the characters A-Z a-z 0-9 . _ - and does not start with . or -. All access to the
// folder of a run uses os.Root, so a symbolic link cannot lead outside the output folder.
package experiment
