// Package bench measures the hardware and the program on it.
package bench
