// Package notify reports events of a run to a program or a webhook.
//
//	n, err := notify.Open(notify.Options{…})     // rank 0; checks the settings
//	n.Send(notify.Event{Event: notify.Failed, …}) // any goroutine; never waits
//	n.Close()                                    // waits at most one time-out
//
// A goroutine delivers the events in order. The queue holds mostWaiting events; the sender drops and counts further
// events. It tries to deliver an event at most mostTries times. A slow, unreachable or hostile receiver delays the run
// by at most one time-out, at the end of the process.
//
// An [Event] contains no secrets: Options.Hide removes them from its texts. The address of a webhook is itself a secret
// and appears in no message.
package notify
