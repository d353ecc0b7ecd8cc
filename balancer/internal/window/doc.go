// Package window collects the steps between two decisions of a policy, and explains them as far as that is possible
// without step-time curves.
package window
