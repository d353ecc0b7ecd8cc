// Package bench measures the speed of the hardware, and the speed of the program on this hardware.
package bench
