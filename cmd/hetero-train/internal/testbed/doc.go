// Package testbed brings a rank into the conditions that a scenario describes, and says which of them are real and which simulated.
//
// See docs/lab.md.
package testbed
