// Package devices opens the device that a configuration names.
//
// backends.go lists the devices that the program was built with. A missing device is a usage error that names the reason;
// "auto" takes the first that opens. The package also resolves train.precision for a device.
package devices
