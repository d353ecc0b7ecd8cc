// Package exit defines the exit codes of the program and the errors that carry them.
//
// A package that knows why something failed attaches a code with [With] or [Usagef].
// [Classify] gives a code to the errors of engine, nccl and the operating system.
// Only the program's Main calls os.Exit; see [Code].
package exit
