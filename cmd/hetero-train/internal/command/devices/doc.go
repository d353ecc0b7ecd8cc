// Package devices lists the devices of this machine.
package devices
