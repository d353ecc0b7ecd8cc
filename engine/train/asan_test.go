//go:build asan

package train

// The sanitizer allocates for its own bookkeeping.
func init() { addressSanitizer = true }
