// Package signals converts signals of the operating system to requests to cancel a context or to save a checkpoint.
package signals
