// Package session contains the state of a command that reads a configuration: settings, options, streams, logs and
// owned resources.
//
// An [Options] describes the process: its rank, its environment and its testbed. A [Session] adds the configuration and
// the resources that the command opens. A [Stage] opens some of the resources, and names them in errors. The session
// closes all resources in reverse order.
package session
