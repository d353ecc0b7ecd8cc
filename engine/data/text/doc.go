// Package text converts text files to token shards (package tokens).
//
// Tokenize reads plain text or JSON lines, which may be compressed with gzip or zstd. It writes a folder:
//
//	train-000000.bin …  shards for training
//	val-000000.bin …    shards for evaluation
//	vocab.txt           copy of the vocabulary file, if the tokenizer has one
//	dataset.json        Manifest, written last
//
// # Documents
//
// The tokens of each document end with the end-of-text token. A line of a JSON lines file is a document. A plain text
// file is one document, unless Options.Separator splits it. Documents that contain only white space are left out. A
// byte order mark at the start of a file is not part of its text.
//
// The names of the inputs may state whether a document is for training or for evaluation; see package layout.
//
// # Interruptions
//
// After every 64 MiB of input, Tokenize flushes the shards to disk and records its position in a journal. A later call
// with the same options continues at this position, even after SIGKILL or a power failure. The output is then bit-equal
// to that of an uninterrupted call.
//
// # Errors
//
// An error in the input is a *data.Fault with the file and the byte position. Examples are text that is not UTF-8, an
// invalid line of JSON, a truncated compressed file, and an empty file. Errors of the output wrap ErrWrite. ErrSettings
// means that the output folder contains the result of other options. ErrUnused means that an option does not apply to
// any input.
package text
