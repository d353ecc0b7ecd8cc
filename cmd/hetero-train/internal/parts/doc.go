// Package parts holds what a configuration chooses by name: models, data sets and balancing policies.
//
// catalog.go lists those of the program; extend.go declares what a program of one's own adds. The package also opens what a
// configuration names by path: data sets, weights and checkpoints.
package parts
