package device

import "unsafe"

// AddressedDevice is a Device whose memory other native libraries can access, to move data between devices.
type AddressedDevice interface {
	Device
	// Index returns the device's index among devices of its kind, which was passed to Driver.Open.
	Index() int
}

// AddressedBuffer is a Buffer of an AddressedDevice.
type AddressedBuffer interface {
	Buffer
	// Address returns the address of the buffer in the device's memory; nil for memory of the host, and after Free. It
	// does not keep the buffer alive.
	Address() unsafe.Pointer
}
