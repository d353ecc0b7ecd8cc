//go:build !unix

package measure

import "time"

// processTime is unknown on this system: callers use wall time.
func processTime() (time.Duration, bool) { return 0, false }
