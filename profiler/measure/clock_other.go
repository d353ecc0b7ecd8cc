//go:build !unix

package measure

import "time"

// processTime is not known here: wall time is used instead.
func processTime() (time.Duration, bool) { return 0, false }
