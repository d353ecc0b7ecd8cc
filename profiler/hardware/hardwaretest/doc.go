// Package hardwaretest has machines with GPUs that do not exist, for tests of what reads GPUs.
//
//	card := hardwaretest.RTX3060()
//	gpus := hardware.OpenNVML(hardwaretest.Machine(hardwaretest.GTX1650(), card))
//	card.Set(func(c *hardwaretest.Card) { c.Lost = true }) // it falls off the bus
//
// They stand on the mocks of go-nvml: a function that no machine here offers panics with its name. Like NVML they are there only in programs
// with cgo on Linux.
package hardwaretest
