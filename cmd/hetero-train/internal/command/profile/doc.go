// Package profile finds and measures the hardware of every rank.
package profile
