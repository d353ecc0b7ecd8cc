// Package hardwaretest provides machines with fake GPUs for tests.
//
//	card := hardwaretest.RTX3060()
//	gpus := hardware.OpenNVML(hardwaretest.Machine(hardwaretest.GTX1650(), card))
//	card.Set(func(c *hardwaretest.Card) { c.Lost = true }) // the GPU falls off the bus
//
// The machines use the mocks of go-nvml. A call of a function that this package does not implement panics with the
// name of the function. Like NVML, the machines are available only on Linux and with cgo.
package hardwaretest
