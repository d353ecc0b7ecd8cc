// Package analyze compares finished runs by policy, compares runs side by side, and summarizes single runs.
package analyze
