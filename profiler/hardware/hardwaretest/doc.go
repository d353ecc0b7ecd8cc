// Package hardwaretest provides machines with fake GPUs, for tests of code that reads GPUs.
//
//	card := hardwaretest.RTX3060()
//	gpus := hardware.OpenNVML(hardwaretest.Machine(hardwaretest.GTX1650(), card))
//	card.Set(func(c *hardwaretest.Card) { c.Lost = true }) // it falls off the bus
//
// The machines use the mocks of go-nvml: a function that no machine here implements panics with its name. Like NVML
// they exist only in programs with cgo on Linux.
package hardwaretest
