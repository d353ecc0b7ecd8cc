// Package analyze compares finished runs and sums up single ones.
package analyze
