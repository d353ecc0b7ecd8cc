// Package devices opens the device that a configuration names.
//
// The file backends.go lists the devices of the program. If the named device is missing, [Open] returns a usage error
// with the reason. With "auto", it selects the first device that it can open. The package also converts train.precision
// to an element type of the device.
package devices
