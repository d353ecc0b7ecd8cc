// Package weights imports weights from the files of other programs. It matches the tensors of a file with those of a
// model, and converts element types.
//
//	fit, err := weights.Match(file, model, weights.Options{Head: "fc"})  // compares names and shapes, reads no data
//	fmt.Println(fit.Notes())                                            // remarks for the user
//	found, err := fit.ReadInto(info, dst)                               // reads one tensor in the model's element type
//
// The names in the file must equal the names in the model, with two exceptions: common prefixes (such as module. of a
// distributed wrapper) and renaming rules of the user. Batch counters of batch normalisation are ignored, because
// this program does not use them.
//
// The head is the layer whose outputs are the classes. If the file has a different number of classes, the head may
// keep its initial values. All other differences are errors, and the error lists all of them.
//
// GPT-2 and BERT use the names of Hugging Face's library transformers. Match also accepts names without the prefix of
// the network, ignores buffers, and compares copies of tied parameters. If a file stores weights as (inputs, outputs),
// ReadInto transposes them; see Conv1D. ReadSettings, CompareSettings and EncodeSettings handle config.json.
//
// # Errors
//
//	*checkpoint.MismatchError  the file belongs to another model (exit code 2)
//	*checkpoint.CorruptError   a value is not finite, or exceeds the range of the element type (exit code 3)
//	*checkpoint.IOError        the system refused to read (exit code 7)
//	*RenameError               a renaming rule cannot be applied (exit code 2)
package weights
