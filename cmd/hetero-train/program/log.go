package program

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lmittmann/tint"
)

// screen is where messages appear: standard error, or above a progress bar while there is one. Another one is the log
// file, once there is one.
type screen struct {
	mu sync.Mutex
	w  io.Writer
}

// newScreen writes to w until it is redirected.
func newScreen(w io.Writer) *screen { return &screen{w: w} }

// Write implements io.Writer.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// to redirects later writes to w, after the contents of a buffer.
func (s *screen) to(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiting, ok := s.w.(*bytes.Buffer); ok {
		waiting.WriteTo(w)
	}
	s.w = w
}

// flush waits until the queue of the screen is written, for at most limit.
func (s *screen) flush(limit time.Duration) {
	s.mu.Lock()
	o, ok := s.w.(*outlet)
	s.mu.Unlock()
	if ok {
		o.flush(limit)
	}
}

// logOptions are the options of messages on the command line.
type logOptions struct {
	level  string // --log-level
	inFile string // least important message in the log file; "": level
	format string // --log-format
	hide   secrets
	each   []slog.Attr // of every object
}

// Formats of messages.
const (
	formatText = "text"
	formatJSON = "json"
)

// newLogger returns a logger that writes to w in the chosen format, and to file as plain text. Text has colours on a terminal alone. Each line of
// JSON is one object. Secrets are blanked out in both.
func newLogger(w io.Writer, file *screen, o logOptions) (*slog.Logger, error) {
	least, err := parseLevel(o.level)
	if err != nil {
		return nil, err
	}
	inFile := least
	if o.inFile != "" {
		if inFile, err = parseLevel(o.inFile); err != nil {
			return nil, err
		}
	}
	target := w
	if s, ok := w.(*screen); ok {
		target = s.w
	}
	var shown slog.Handler
	switch {
	case o.format == formatJSON:
		shown = &labelled{inner: slog.NewJSONHandler(w, &slog.HandlerOptions{Level: least}).WithAttrs(o.each)}
	case isTerminal(target):
		shown = textHandler(w, least, time.TimeOnly, os.Getenv("NO_COLOR") == "")
	default:
		shown = textHandler(w, least, time.DateTime, false)
	}
	return slog.New(&redactor{inner: slog.NewMultiHandler(shown, textHandler(file, inFile, time.DateTime, false)), hide: o.hide}), nil
}

// parseLevel reads --log-level.
func parseLevel(level string) (least slog.Level, err error) {
	if err := least.UnmarshalText([]byte(level)); err != nil || strings.ContainsAny(level, "+-") {
		return 0, usageError("--log-level: unknown level (got %q, want debug, info, warn or error)", level)
	}
	return least, nil
}

// textHandler writes records as lines for people.
func textHandler(w io.Writer, least slog.Level, timeFormat string, colour bool) slog.Handler {
	readableDurations := func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(durationText(a.Value.Duration()))
		}
		return a
	}
	return &labelled{inText: true, inner: tint.NewHandler(w, &tint.Options{Level: least, TimeFormat: timeFormat, NoColor: !colour, ReplaceAttr: readableDurations})}
}

// componentKey is the attribute that names the part of the program that a record comes from. The innermost logger's value wins.
const componentKey = "component"

// Components of a training.
const (
	componentTrainer    = "trainer"
	componentBalancer   = "load_balancer"
	componentProfiler   = "profiler"
	componentCluster    = "cluster"
	componentData       = "data"
	componentDevice     = "device"
	componentLab        = "lab"
	componentCheckpoint = "checkpoint"
	componentRankOutput = "rank_output" // a line that a rank printed without its logger
)

// labelled is a slog handler that shows the component of a record: before the message of a text line, as the first attribute of an object.
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
		if a.Key == componentKey {
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
		attrs[0] = slog.String(componentKey, component)
	}
	out := slog.NewRecord(record.Time, record.Level, message, record.PC)
	out.AddAttrs(attrs...)
	return l.inner.Handle(ctx, out)
}

// WithAttrs implements slog.Handler.
func (l *labelled) WithAttrs(attrs []slog.Attr) slog.Handler {
	out, rest := *l, make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		if a.Key == componentKey {
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

// WithGroup implements slog.Handler. The component is no member of the group.
func (l *labelled) WithGroup(name string) slog.Handler {
	out, inner := *l, l.inner
	if l.component != "" && !l.inText {
		inner, out.component = inner.WithAttrs([]slog.Attr{slog.String(componentKey, l.component)}), ""
	}
	out.inner = inner.WithGroup(name)
	return &out
}

// durationText is a duration with three digits, and units that people read at a glance: 24.8 ms, 3.21 s, 1m03s, 2h05m, 3d04h.
func durationText(d time.Duration) string {
	if d < 0 {
		return "-" + durationText(-d)
	}
	digits := func(value float64, unit string) string {
		decimals := 2
		for limit := 9.995; decimals > 0 && value >= limit; limit = 99.95 {
			decimals--
		}
		return strconv.FormatFloat(value, 'f', decimals, 64) + " " + unit
	}
	minutes := func(d time.Duration) int64 { return int64(d.Round(time.Minute) / time.Minute) }
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < 999500*time.Nanosecond:
		return digits(float64(d)/1e3, "µs")
	case d < 999500*time.Microsecond:
		return digits(float64(d)/1e6, "ms")
	case d < 59950*time.Millisecond:
		return digits(d.Seconds(), "s")
	case d < time.Hour-500*time.Millisecond:
		s := int64(d.Round(time.Second) / time.Second)
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case d < 24*time.Hour-30*time.Second:
		m := minutes(d)
		return fmt.Sprintf("%dh%02dm", m/60, m%60)
	}
	h := int64(d.Round(time.Hour) / time.Hour)
	return fmt.Sprintf("%dd%02dh", h/24, h%24)
}
