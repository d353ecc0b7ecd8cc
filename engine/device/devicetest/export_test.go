package devicetest

import "time"

// LosePatience shortens the waits of the suite for a device with a fault, on which some of them must fail.
func LosePatience() { patience = 3 * time.Second }
