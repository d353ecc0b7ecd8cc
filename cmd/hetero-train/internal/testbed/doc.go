// Package testbed applies the conditions of a scenario to a rank, and reports which conditions are real and which are
// simulated. See docs/lab.md.
package testbed
