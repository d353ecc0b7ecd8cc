// Package exit defines the exit codes of the program and the errors that carry them.
//
// A package that knows the cause of a failure attaches a code with [With] or [Usagef]. [Classify] assigns a code to the
// errors of engine, nccl and the operating system. Only the program's Main calls os.Exit; see [Code].
package exit
