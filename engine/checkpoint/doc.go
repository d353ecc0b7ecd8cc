// Package checkpoint stores and loads the state of a training run, and reads and writes safetensors files.
//
// # Use
//
//	store, err := checkpoint.Open(dir, checkpoint.Options{Keep: 3})  // one writer at a time: hold the run's lock
//	saved, err := store.Save(ctx, checkpoint.Snapshot{State: state, Model: weights, Optimizer: moments})
//
//	c, skipped, err := checkpoint.Latest(dir)                        // newest valid checkpoint; skipped: newer, damaged ones
//	defer c.Close()
//	err = c.Model.Check(want)                                        // returns an error with a diff if the model differs
//	err = c.Model.ReadInto("fc.weight", dst)
//
// OpenFile reads any safetensors file, for example weights from another program.
//
// # Files
//
//	checkpoints/
//	  step-00001234/           a checkpoint after 1,234 optimizer steps
//	    model.safetensors      parameters and buffers, under the model's public names
//	    optimizer.safetensors  optimizer state, one tensor per moment and parameter ("fc.weight.momentum"); averages of
//	                           weights, if any ("fc.weight.ema", "bn1.running_mean.ema"), named by AverageName
//	    state.json             everything else, as described at State
//	    MANIFEST               size and SHA-256 of each file, CRC-32C of each tensor
//	  latest                   the name of the newest checkpoint, for people and scripts; Latest does not rely on it
//	  quarantined-1/           checkpoints that Store.Quarantine moved because their values may be wrong, and reason.txt
//	  best                     the name of the best checkpoint, which retention keeps in addition to the last k
//
// MANIFEST is text. Fields are separated by one space:
//
//	hetero-train checkpoint 1
//	file 1024 9f86d0818...e model.safetensors
//	tensor 1b2c3d4e model.safetensors "fc.weight"
//	manifest 60303ae22...b
//
// The last line contains the SHA-256 of all bytes before it, so damage to the manifest itself is also detected.
//
// # Guarantees
//
// Save writes a checkpoint to a temporary folder and flushes each file and the folder to disk. Only then does it rename
// the folder to its final name. It removes older checkpoints only after the rename. After a crash or a power failure at
// any point, Latest finds the checkpoint of the last completed Save, or of the interrupted one. If Save fails, for
// example because the disk is full, it removes its own files and leaves other checkpoints unchanged.
//
// With several ranks, State.Compared records which steps are covered by a comparison of the ranks. If a tensor has a
// Sum, its data is written only if it still has this checksum. The data in a checkpoint is therefore bit-equal to the
// compared data.
//
// Names of tensors come from files and are never used as paths. All file access uses os.Root, so a symbolic link
// cannot lead outside the folder. Nothing in a checkpoint is executed.
//
// # Errors
//
//	*CorruptError   the bytes are damaged, incomplete or hostile (exit code 3)
//	*FormatError    written by a later version of the program (exit code 3)
//	*MismatchError  a valid checkpoint of another model (exit code 2)
//	*AlteredError   memory changed between the comparison of the ranks and the write; nothing was saved (exit code 7)
//	*IOError        the system refused to read or write; Unwrap returns the reason (exit code 7)
//	ErrNone         the folder contains no checkpoint
package checkpoint
