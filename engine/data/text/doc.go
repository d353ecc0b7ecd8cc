// Package text converts text files to token shards (package tokens).
//
// Tokenize reads plain text or JSON lines. The input may be compressed with gzip or zstd. Tokenize writes a folder:
//
//	train-000000.bin …  shards for training
//	val-000000.bin …    shards for evaluation
//	vocab.txt           copy of the vocabulary file, if the tokenizer has one
//	dataset.json        Manifest, written last; a folder without this file is incomplete
//
// # Documents
//
// A line of a JSON lines file is a document. A plain text file is one document, unless Options.Separator divides it.
// The end-of-text token follows each document. Documents that contain only white space are left out.
//
// # Interruptions
//
// After every 64 MiB of input, Tokenize makes the shards durable and records its position in a journal. A later call
// with the same options continues from this position, also after SIGKILL or a power failure. The output has the same
// bytes as the output of an uninterrupted call.
//
// # Errors
//
// Faults of the input are of type *data.Fault, with the file and the byte position. Such faults are text that is not
// UTF-8, an invalid line of JSON, a truncated compressed file, and an empty file. Errors of the output wrap ErrWrite.
// ErrSettings means that the output folder holds a result that was made with other options.
package text
