package rendezvous

import (
	"fmt"
	"log/slog"
)

// Token is the secret that the ranks of a run share. Formatting it gives only a placeholder; string(token) is the
// secret.
type Token string

const minTokenBytes = 16

// String hides the secret.
func (t Token) String() string { return "[token]" }

// GoString hides the secret.
func (t Token) GoString() string { return "[token]" }

// LogValue hides the secret.
func (t Token) LogValue() slog.Value { return slog.StringValue("[token]") }

// Check returns an error for a token that is too short. An empty token is valid.
func (t Token) Check() error {
	if t != "" && len(t) < minTokenBytes {
		return fmt.Errorf(
			"the token has %d characters, want at least %d; `head -c 32 /dev/urandom | base64` makes a good one",
			len(t), minTokenBytes)
	}
	return nil
}
