// Package hardwaretest provides machines with fake GPUs, for tests of code that reads GPUs.
//
//	card := hardwaretest.RTX3060()
//	gpus := hardware.OpenNVML(hardwaretest.Machine(hardwaretest.GTX1650(), card))
//	card.Set(func(c *hardwaretest.Card) { c.Lost = true }) // the GPU falls off the bus
//
// The machines use the mocks of go-nvml. A call to a function that no machine of this package implements panics with
// the name of the function. Like NVML, the machines exist only in programs with cgo on Linux.
package hardwaretest
