package device

import "unsafe"

// AddressedDevice is a Device of which other native libraries use the memory too: those that move data between devices.
type AddressedDevice interface {
	Device
	// Index is the device's among those of its kind, as its driver was asked to open it.
	Index() int
}

// AddressedBuffer is a Buffer of an AddressedDevice.
type AddressedBuffer interface {
	Buffer
	// Address is where the buffer begins in the device's memory; nil for memory of the host, and after Free. It holds nothing open.
	Address() unsafe.Pointer
}
