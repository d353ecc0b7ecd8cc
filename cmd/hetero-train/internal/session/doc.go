// Package session contains the state of every command with a configuration: settings, options, streams, logs and owned
// resources.
//
// An [Options] describes the process: its place among the ranks, its environment and its testbed. A [Session] adds the
// configuration and closes resources in reverse order.
package session
