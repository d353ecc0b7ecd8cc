package logs

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lmittmann/tint"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

// Screen is a destination that can be redirected while loggers use it. One Screen is for messages: it writes to
// standard error, or to the lines above a progress bar. A second Screen writes to the log file, once the file is open.
type Screen struct {
	mu sync.Mutex
	w  io.Writer
}

// NewScreen returns a screen that writes to w until it is redirected.
func NewScreen(w io.Writer) *Screen { return &Screen{w: w} }

// Write implements io.Writer.
func (s *Screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// To redirects the screen to w. If the screen has written to a buffer so far, To first writes the contents of the
// buffer to w.
func (s *Screen) To(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiting, ok := s.w.(*bytes.Buffer); ok {
		waiting.WriteTo(w)
	}
	s.w = w
}

// Flush waits until the queued output of the screen is written, but at most for the time limit.
func (s *Screen) Flush(limit time.Duration) {
	s.mu.Lock()
	o, ok := s.w.(*outlet)
	s.mu.Unlock()
	if ok {
		o.flush(limit)
	}
}

// Options are the options of log messages on the command line.
type Options struct {
	Level  string // --log-level
	InFile string // lowest level in the log file; "": Level
	Format string // --log-format
	Hide   Secrets
	Each   []slog.Attr // attributes of every JSON object
}

// Formats of log messages.
const (
	FormatText = "text"
	FormatJSON = "json"
)

// New returns a logger that writes to w in the chosen format, and to file as plain text. Text has colors only on a
// terminal. In JSON, each line is one object. The logger removes secrets from both outputs.
func New(w io.Writer, file *Screen, o Options) (*slog.Logger, error) {
	least, err := ParseLevel(o.Level)
	if err != nil {
		return nil, err
	}
	inFile := least
	if o.InFile != "" {
		if inFile, err = ParseLevel(o.InFile); err != nil {
			return nil, err
		}
	}
	target := w
	if s, ok := w.(*Screen); ok {
		target = s.w
	}
	var shown slog.Handler
	switch {
	case o.Format == FormatJSON:
		shown = &labelled{inner: slog.NewJSONHandler(w, &slog.HandlerOptions{Level: least}).WithAttrs(o.Each)}
	case IsTerminal(target):
		shown = textHandler(w, least, time.TimeOnly, os.Getenv("NO_COLOR") == "")
	default:
		shown = textHandler(w, least, time.DateTime, false)
	}
	return slog.New(&redactor{inner: slog.NewMultiHandler(shown, textHandler(file, inFile, time.DateTime, false)),
		hide: o.Hide}), nil
}

// ParseLevel parses the value of --log-level.
func ParseLevel(level string) (least slog.Level, err error) {
	if err := least.UnmarshalText([]byte(level)); err != nil || strings.ContainsAny(level, "+-") {
		return 0, exit.Usagef("--log-level: unknown level (got %q, want debug, info, warn or error)", level)
	}
	return least, nil
}

// textHandler writes records as text lines.
func textHandler(w io.Writer, least slog.Level, timeFormat string, colour bool) slog.Handler {
	readableDurations := func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(show.Duration(a.Value.Duration()))
		}
		return a
	}
	return &labelled{
		inText: true, inner: tint.NewHandler(w, &tint.Options{Level: least, TimeFormat: timeFormat, NoColor: !colour,
			ReplaceAttr: readableDurations})}
}

// ComponentKey is the key of the attribute that names the component that wrote the record. If a logger sets the
// attribute several times, the last value applies.
const ComponentKey = "component"

// Components of a training run.
const (
	ComponentTrainer    = "trainer"
	ComponentDashboard  = "dashboard"
	ComponentBalancer   = "load_balancer"
	ComponentProfiler   = "profiler"
	ComponentCluster    = "cluster"
	ComponentData       = "data"
	ComponentDevice     = "device"
	ComponentLab        = "lab"
	ComponentCheckpoint = "checkpoint"
	ComponentRankOutput = "rank_output" // a line that a rank printed without its logger
)

// labelled is a slog handler that adds the component of a record. In text, it puts the component before the message. In
// JSON, the component is the first attribute.
type labelled struct {
	inner     slog.Handler
	inText    bool
	component string
}

// Enabled implements slog.Handler.
func (l *labelled) Enabled(ctx context.Context, level slog.Level) bool {
	return l.inner.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l *labelled) Handle(ctx context.Context, record slog.Record) error {
	component, attrs := l.component, make([]slog.Attr, 1, 1+record.NumAttrs())
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == ComponentKey {
			component = a.Value.String()
		} else {
			attrs = append(attrs, a)
		}
		return true
	})
	message := record.Message
	switch {
	case component == "":
		attrs = attrs[1:]
	case l.inText:
		attrs, message = attrs[1:], component+": "+message
	default:
		attrs[0] = slog.String(ComponentKey, component)
	}
	out := slog.NewRecord(record.Time, record.Level, message, record.PC)
	out.AddAttrs(attrs...)
	return l.inner.Handle(ctx, out)
}

// WithAttrs implements slog.Handler.
func (l *labelled) WithAttrs(attrs []slog.Attr) slog.Handler {
	out, rest := *l, make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		if a.Key == ComponentKey {
			out.component = a.Value.String()
			continue
		}
		rest = append(rest, a)
	}
	if len(rest) > 0 {
		out.inner = l.inner.WithAttrs(rest)
	}
	return &out
}

// WithGroup implements slog.Handler. The component stays outside the group.
func (l *labelled) WithGroup(name string) slog.Handler {
	out, inner := *l, l.inner
	if l.component != "" && !l.inText {
		inner, out.component = inner.WithAttrs([]slog.Attr{slog.String(ComponentKey, l.component)}), ""
	}
	out.inner = inner.WithGroup(name)
	return &out
}
