// Package bucket stores copies of checkpoints as S3 objects.
//
//	folder, err := bucket.Open("s3://BUCKET/FOLDER/RUN/checkpoints")
//	step, ok, err := folder.Newest(ctx)              // the newest complete checkpoint
//	path, err := folder.Download(ctx, step, dir)     // into a folder of checkpoints on this machine
//
//	err := folder.Claim(ctx, run, before)            // this process is the only one that writes
//	err := folder.Rewind(ctx, step)                  // the run continues from this step
//	uploader := bucket.NewUploader(folder, options)
//	uploader.Saved(path)                             // uploads in the background
//	err := uploader.Close(ctx)                       // waits for the newest checkpoint
//
// # Objects
//
//	step-00001234/model.safetensors, …    the files of the checkpoint
//	step-00001234/MANIFEST                written last: a checkpoint without it is not complete
//	latest                                name of the newest checkpoint
//	best                                  name of the best checkpoint
//	owner                                 IDs of the run and of the process that may write
//	step-00001234/MANIFEST.superseded     of a hidden checkpoint: the run resumed from an earlier step
//	step-00001234/MANIFEST.quarantined    of a hidden checkpoint: its values may be wrong
//
// S3 shows an object only when it is complete. A writer uploads MANIFEST after all other objects of a checkpoint, and
// removes MANIFEST before all others. Readers therefore see only complete checkpoints. Download stores the files in a
// hidden folder, checks the SHA-256 of each file, and then renames the folder.
//
// # Owner
//
// Claim writes the object `owner` with a conditional request. After that, the process reads `owner` again before each
// upload, removal and change. It stops with a *TakenError if another process has claimed the folder since then. Steps
// leaves out checkpoints after the one that `latest` names.
//
// # Uploads
//
// An Uploader opens the files of a checkpoint when the checkpoint is saved, so a later removal on this machine does not
// disturb the upload. If a checkpoint is saved while an earlier one still waits, the earlier one is not uploaded,
// unless it is the best one. The Uploader logs a warning for a failed upload. It retries the upload until it succeeds
// or a newer checkpoint replaces it. If the upload is not complete when the context ends, Close returns an *Error.
package bucket
