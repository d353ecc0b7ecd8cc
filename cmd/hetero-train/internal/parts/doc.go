// Package parts contains the parts that a configuration selects by name: models, data sets and balancing policies.
//
// catalog.go lists the built-in parts; extend.go declares the types by which other programs add parts. The package also
// opens the data sets, weights and checkpoints that a configuration names by path.
package parts
