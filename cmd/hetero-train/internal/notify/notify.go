package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// Names of events, the values of config.NotifyEvents.
const (
	Finished  = "finished"
	Failed    = "failed"
	Straggler = "straggler"
	Diverged  = "diverged"
	Stalled   = "stalled"
)

// Event is the payload of a notification, in JSON.
type Event struct {
	Version int       `json:"version"` // version of the payload: 1
	Event   string    `json:"event"`
	Time    time.Time `json:"time"`
	Run     string    `json:"run"`              // experiment.name
	Folder  string    `json:"folder,omitempty"` // folder of the run; missing before the run has one
	Host    string    `json:"host"`
	Step    int64     `json:"step"`            // completed optimizer steps
	Steps   int64     `json:"steps,omitempty"` // steps of the whole run; missing if unknown
	Loss    *float64  `json:"loss"`            // training loss of the last step; null: unknown or not finite
	Rank    *int      `json:"rank,omitempty"`  // rank of the straggler
	Exit    *int      `json:"exit_code,omitempty"`
	Message string    `json:"message"`
}

// Limits of a sender.
const (
	mostWaiting = 16
	mostTries   = 3
	firstPause  = time.Second // pause before the second attempt; each further pause is twice as long
	mostOutput  = 2 << 10     // maximum length of a program's output in a message, bytes
)

// Options configure a Sender.
type Options struct {
	Command []string // program to run, with arguments; empty: none
	Webhook string   // address of the webhook; "": none
	Events  []string // names of the events to send
	Timeout time.Duration
	Environ []string            // environment of the program
	Hide    func(string) string // removes secrets from a text
	Log     *slog.Logger
}

// Sender delivers events.
type Sender struct {
	o      Options
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex // guards queue and closed; not held during a delivery
	queue   chan Event
	closed  bool
	dropped int
}

// Open checks the options and starts a sender. The caller must close it.
func Open(o Options) (*Sender, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Sender{o: o, cancel: cancel, done: make(chan struct{}), queue: make(chan Event, mostWaiting)}
	go func() {
		defer close(s.done)
		for e := range s.queue {
			s.deliver(ctx, e)
		}
	}()
	return s, nil
}

// check returns an error for an invalid option. The error names the setting, but does not contain the address of the
// webhook.
func (o *Options) check() error {
	if len(o.Command) > 0 {
		if _, err := exec.LookPath(o.Command[0]); err != nil {
			return fmt.Errorf("notify.command: %w", err)
		}
	}
	if o.Webhook == "" {
		return nil
	}
	u, err := url.Parse(o.Webhook)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("notify.webhook: want an address such as https://host/path")
	}
	if u.User != nil {
		return errors.New("notify.webhook: contains a user name or a password; want an address without user:password@")
	}
	return nil
}

// Wants reports whether the sender delivers an event.
func (s *Sender) Wants(event string) bool { return s != nil && slices.Contains(s.o.Events, event) }

// Send queues an event. It never waits.
func (s *Sender) Send(e Event) {
	if !s.Wants(e.Event) {
		return
	}
	e.Version, e.Message, e.Run, e.Folder = 1, s.o.Hide(e.Message), s.o.Hide(e.Run), s.o.Hide(e.Folder)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	select {
	case s.queue <- e:
	default:
		s.dropped++
	}
}

// Close delivers the waiting events, which takes at most one time-out. The sender ignores later events.
func (s *Sender) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.queue)
	}
	dropped := s.dropped
	s.mu.Unlock()
	select {
	case <-s.done:
	case <-time.After(s.o.Timeout):
		s.cancel() // so that the remaining attempts fail immediately
		<-s.done
	}
	s.cancel()
	if dropped > 0 {
		s.o.Log.Warn("events were not reported, because the receiver is too slow", "events", dropped)
	}
	return nil
}

// deliver sends an event to the program and to the webhook.
func (s *Sender) deliver(ctx context.Context, e Event) {
	body, err := json.Marshal(e)
	if err != nil {
		s.o.Log.Warn("an event cannot be reported", "event", e.Event, "error", err)
		return
	}
	body = append(body, '\n')
	if len(s.o.Command) > 0 {
		s.try(ctx, "notify.command", e.Event, func(ctx context.Context) error { return s.run(ctx, body) })
	}
	if s.o.Webhook != "" {
		s.try(ctx, "notify.webhook", e.Event, func(ctx context.Context) error { return s.post(ctx, body) })
	}
}

// permanent is an error after which another attempt is useless.
type permanent struct{ error }

// try calls send until it succeeds, at most mostTries times.
func (s *Sender) try(ctx context.Context, setting, event string, send func(context.Context) error) {
	pause := firstPause
	for n := 1; ; n++ {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
			defer cancel()
			return send(ctx)
		}()
		if err == nil {
			return
		}
		if n == mostTries || errors.As(err, new(permanent)) || ctx.Err() != nil {
			s.o.Log.Warn(setting+": an event was not reported; training is not affected", "event", event, "tries", n,
				"error", s.o.Hide(err.Error()))
			return
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
		}
	}
}

// run starts the program and waits for its end. It kills a program that exceeds the time-out, together with its
// children.
func (s *Sender) run(ctx context.Context, body []byte) error {
	cmd := exec.CommandContext(ctx, s.o.Command[0], s.o.Command[1:]...)
	out := &bounded{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = bytes.NewReader(body), out, out, s.o.Environ
	platform.OwnGroup(cmd)
	cmd.Cancel = func() error { return platform.KillGroup(cmd.Process.Pid) }
	cmd.WaitDelay = time.Second // a child that left the group may keep standard output open
	err := cmd.Run()
	if ctx.Err() != nil {
		return fmt.Errorf("the program did not end within %v", s.o.Timeout)
	}
	if err != nil {
		return permanent{fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out.text)))}
	}
	return nil
}

// bounded is a writer that keeps the first mostOutput bytes.
type bounded struct{ text []byte }

func (b *bounded) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), mostOutput-len(b.text))]...)
	return len(p), nil
}

// post sends the event to the webhook. Its errors do not contain the address of the webhook.
func (s *Sender) post(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.o.Webhook, bytes.NewReader(body))
	if err != nil {
		return permanent{errors.New("the address is invalid")}
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "hetero-train")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address
		}
		return err
	}
	defer resp.Body.Close()
	// Read the response, so that the connection closes normally.
	io.Copy(io.Discard, io.LimitReader(resp.Body, mostOutput))
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("the receiver answered %s", resp.Status)
	}
	return permanent{fmt.Errorf("the receiver answered %s", resp.Status)}
}
