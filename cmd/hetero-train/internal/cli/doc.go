// Package cli contains code that many commands share: global flags, messages, loading of the configuration, and checks
// of arguments.
//
// A command is a function that takes an [App] and returns a cobra command. A command that opens components of a run
// gets its streams and logs from [App.Options].
package cli
