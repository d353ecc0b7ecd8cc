// Package devices opens the device that a configuration names.
//
// File backends.go lists the devices of the program. If the named device is missing, [Open] returns a usage error with
// the reason. "auto" selects the first device that opens. The package also converts train.precision to an element type
// of the device.
package devices
