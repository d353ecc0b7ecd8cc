// Package doctor finds causes of slow or failing training runs, on this machine or between the machines of a run. It
// runs before training starts.
//
// A [machine] contains facts about a machine; the package changes nothing there. [examine] and [compare] derive
// findings from the facts without access to the system. Tests can therefore cover every finding on any machine.
package doctor
