// Package weights imports weights from the files of other programs. It matches the tensors of a file with those of a
// model, and converts element types.
//
//	fit, err := weights.Match(file, model, weights.Options{Head: "fc"})  // compares names and shapes, reads no data
//	fmt.Println(fit.Notes())                                            // Notes returns remarks for the user
//	found, err := fit.ReadInto(info, dst)                               // one tensor, in the model's element type
//
// The names in the file must equal the model's names. Two differences are allowed: common prefixes (such as module. of
// a distributed wrapper), and the user's renaming rules. Batch counters of batch normalisation are ignored, because no
// computation of this program uses them. The head is the layer whose outputs are the classes. If the number of classes
// in the file differs, the head may keep its initial values. Every other difference is an error, and the error lists
// all differences.
//
// GPT-2 and BERT have the names of Hugging Face's library transformers. Match also accepts names without the prefix of
// the network, ignores buffers and compares copies of tied parameters. It transposes weights that a file has as (inputs,
// outputs): see Conv1D. ReadSettings, CompareSettings and EncodeSettings handle config.json.
//
// # Errors
//
//	*checkpoint.MismatchError  the file belongs to another model (exit code 2)
//	*checkpoint.CorruptError   a value is not finite, or exceeds the range of the element type (exit code 3)
//	*checkpoint.IOError        the system refused to read (exit code 7)
//	*RenameError               a rule that cannot be applied (exit code 2)
package weights
