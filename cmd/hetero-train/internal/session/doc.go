// Package session holds what every command with a configuration has: settings, options, streams, logs and the resources to close.
//
// An [Options] describes the process: its place among the ranks, its environment and its testbed. A [Session] adds the
// configuration and closes resources in reverse order.
package session
