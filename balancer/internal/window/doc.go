// Package window collects the steps between two decisions of a policy. It gives the part of an explanation that needs
// no step-time curves.
package window
