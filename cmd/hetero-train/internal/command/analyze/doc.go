// Package analyze compares finished runs and summarizes single runs.
package analyze
