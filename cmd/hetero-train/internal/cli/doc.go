// Package cli contains the code that all commands use: global flags, messages, loading the configuration, and checks of
// arguments.
//
// A command is a function that takes an [App] and returns a cobra command. [App.Options] prepares streams and logs for
// every command that opens parts of a run.
package cli
