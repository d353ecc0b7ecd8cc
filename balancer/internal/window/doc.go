// Package window collects the steps between two decisions of a policy. It computes the parts of a
// balancer.Explanation that need no step-time curves.
package window
