package devicetest

import "time"

// LosePatience shortens the waits of the suite. On a device with a fault, some of these waits end only by their time
// limit.
func LosePatience() { patience = 3 * time.Second }
