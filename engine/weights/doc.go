// Package weights brings the weights of one program into another: it matches the tensors of a foreign file with those of a model,
// and converts element types.
//
//	fit, err := weights.Match(file, model, weights.Options{Head: "fc"})  // names and shapes, nothing is read yet
//	fmt.Println(fit.Notes())                                            // what a user should know
//	found, err := fit.ReadInto(info, dst)                               // one tensor, in the model's element type
//
// Names are the model's own but for what wraps them (module., as a distributed wrapper saves it, and the like), or as rules of the user
// rename them. Counters of batches beside batch normalisation, which no computation here reads, are left out. The head, the layer
// whose outputs are the classes, may be left as it is where the file has another number of classes; every other difference is an
// error that lists all of them.
//
// # Errors
//
//	*checkpoint.MismatchError  the file is another model's (exit code 2)
//	*checkpoint.CorruptError   a value is not finite, or does not fit into the element type (exit code 3)
//	*checkpoint.IOError        the system refused to read (exit code 7)
//	*RenameError               a rule that cannot be applied (exit code 2)
package weights
