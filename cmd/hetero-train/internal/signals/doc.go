// Package signals turns the signals of the system into requests: to cancel a context, or to save a checkpoint.
package signals
