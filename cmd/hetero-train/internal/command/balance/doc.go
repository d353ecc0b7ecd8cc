// Package balance simulates balancing policies and compares them within one run.
package balance
