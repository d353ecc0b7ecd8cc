// Package data downloads, inspects, verifies, repacks and tokenizes data sets.
package data
