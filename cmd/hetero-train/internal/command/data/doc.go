// Package data downloads, inspects, verifies and repacks data sets.
package data
