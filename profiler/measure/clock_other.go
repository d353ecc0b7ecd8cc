//go:build !unix

package measure

import "time"

// processTime is not available on this system; callers use wall time.
func processTime() (time.Duration, bool) { return 0, false }
