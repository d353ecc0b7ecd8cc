// Package devices opens the device that a configuration names.
//
// backends.go lists the devices of the program. If the named device is missing, the package returns a usage error with
// the reason. "auto" selects the first device that opens. The package also resolves train.precision for a device.
package devices
