// Package parts contains the components that a configuration selects by name: models, data sets and balancing policies.
//
// File catalog.go lists the built-in components. File extend.go declares the types with which other programs add
// components. The package also opens the data sets, weights and checkpoints that a configuration names by path.
package parts
