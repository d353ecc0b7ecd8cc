// Package devices opens the device that a configuration names.
//
// backends.go lists the devices of the program. A missing device is a usage error with the reason; "auto" selects the
// first device that opens. The package also resolves train.precision for a device.
package devices
