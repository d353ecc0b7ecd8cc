// Package doctor finds causes of slow or failing training runs, on this machine or between the machines of a run. It
// runs before training starts.
//
// A [machine] contains facts, which this package only reads. [examine] and [compare] turn facts into findings without
// touching the system, so tests cover every finding on any machine.
package doctor
