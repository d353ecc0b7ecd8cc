// Package text converts text files to token shards (package tokens).
//
// Tokenize reads plain text or JSON lines, also compressed with gzip or zstd, and writes a folder:
//
//	train-000000.bin …  shards for training
//	val-000000.bin …    shards for evaluation
//	vocab.txt           copy of the vocabulary file, if the tokenizer has one
//	dataset.json        Manifest, written last: a folder without it is incomplete
//
// # Documents
//
// A line of a JSON lines file is a document. A plain text file is one document, unless Options.Separator divides it.
// The end-of-text token follows each document. Documents of white space only are left out.
//
// # Interruptions
//
// After every 64 MiB of input, Tokenize makes the shards durable and records its position in a journal. A later call
// with the same options continues there, also after SIGKILL or a power failure. The result has the same bytes as that
// of an uninterrupted call.
//
// # Errors
//
// Faults of the input are *data.Fault with file and byte position: text that is not UTF-8, an invalid line of JSON, a
// truncated compressed file, an empty file. Errors of the output wrap ErrWrite. ErrSettings reports a folder that has
// the result of other options.
package text
