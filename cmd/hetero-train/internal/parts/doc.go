// Package parts contains the components that a configuration selects by name: models, data sets and balancing policies.
//
// The file catalog.go lists the built-in components. The files extend.go and extend_text.go declare the types with
// which other programs add components. The package also opens the data sets, weights and checkpoints that a
// configuration names by path.
package parts
