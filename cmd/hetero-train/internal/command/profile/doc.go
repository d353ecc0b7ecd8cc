// Package profile detects and measures the hardware of every rank.
package profile
