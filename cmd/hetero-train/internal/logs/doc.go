// Package logs writes the messages and the output of the program.
//
// [New] returns a logger that writes to the screen and to the log file, and removes secrets from both. A [Screen] can
// be redirected while the program runs. A [Stream] escapes control characters. An outlet, which [Unblocked] returns,
// queues output so that a slow reader never delays training.
package logs
