// Package logs writes the messages and the output of the program.
//
// [New] makes a logger for the screen and the log file; secrets are blanked out in both.
// A [Screen] can be redirected while the program runs. A [Stream] escapes characters that a terminal would act on.
// An [Outlet] queues output, so that a slow reader never stops training.
package logs
