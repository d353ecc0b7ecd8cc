package logs

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

const redacted = "[redacted]"

// Secrets are values that must not appear in any output.
type Secrets []string

// shortestSecret is the minimum length, in bytes, of a value that is removed as a secret. With a smaller length, a
// variable such as SECRET=1 would remove every 1 from the output.
const shortestSecret = 6

// SecretsIn returns the values of the environment variables whose names mark a secret. The parameter environ has the
// form of os.Environ.
func SecretsIn(environ []string) Secrets {
	var hide Secrets
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if namesSecret(name) && len(value) >= shortestSecret {
			hide = append(hide, value)
		}
	}
	// The longest secret comes first, because a secret may be part of another secret.
	slices.SortFunc(hide, func(a, b string) int { return len(b) - len(a) })
	return hide
}

// Text returns s without the secrets.
func (hide Secrets) Text(s string) string {
	for _, secret := range hide {
		s = strings.ReplaceAll(s, secret, redacted)
	}
	return s
}

// namesSecret reports whether the name of a variable or attribute marks a secret. For example, HETERO_TOKEN does, but
// token_file (a path) and tokens (a count) do not.
func namesSecret(name string) bool {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return r == '_' || r == '-' || r == '.' || r == ' '
	})
	if len(words) == 0 || slices.Contains([]string{"file", "path", "dir"}, words[len(words)-1]) {
		return false
	}
	for i, word := range words {
		switch word {
		case "token", "password", "passwd", "passphrase", "secret", "credential", "credentials", "authorization",
			"apikey":
			return true
		case "key": // as in api_key, access_key, private_key; "key" alone does not mark a secret
			if i > 0 && slices.Contains([]string{"api", "access", "private", "secret"}, words[i-1]) {
				return true
			}
		}
	}
	return false
}

// redactor is a slog handler that escapes control characters and removes secrets. It recognizes a secret by the name of
// an attribute or by a known value.
type redactor struct {
	inner slog.Handler
	hide  Secrets
}

// Enabled implements slog.Handler.
func (r *redactor) Enabled(ctx context.Context, level slog.Level) bool {
	return r.inner.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (r *redactor) Handle(ctx context.Context, record slog.Record) error {
	clean := slog.NewRecord(record.Time, record.Level, show.Indented(show.Visible(r.hide.Text(record.Message))),
		record.PC)
	record.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(r.attr(a))
		return true
	})
	return r.inner.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (r *redactor) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = r.attr(a)
	}
	return &redactor{inner: r.inner.WithAttrs(clean), hide: r.hide}
}

// WithGroup implements slog.Handler.
func (r *redactor) WithGroup(name string) slog.Handler {
	return &redactor{inner: r.inner.WithGroup(name), hide: r.hide}
}

func (r *redactor) attr(a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindGroup:
		group := make([]slog.Attr, 0, len(value.Group()))
		for _, member := range value.Group() {
			group = append(group, r.attr(member))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(group...)}
	case slog.KindString, slog.KindAny:
		if namesSecret(a.Key) {
			return slog.String(a.Key, redacted)
		}
		plain := value.String()
		if value.Kind() == slog.KindAny {
			plain = fmt.Sprintf("%+v", value.Any())
		}
		if clean := show.Visible(r.hide.Text(plain)); clean != plain {
			return slog.String(a.Key, clean)
		}
	}
	return slog.Attr{Key: a.Key, Value: value}
}
