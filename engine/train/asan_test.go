//go:build asan

package train

// The sanitizer allocates memory for its own records.
func init() { addressSanitizer = true }
