// Package status shows a run in a terminal.
package status
