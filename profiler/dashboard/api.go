package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runs"
)

// listTime is the time for which a list of runs is cached, because listing reads a few files of each run.
const listTime = time.Second

// listing is the answer to a request for the list of runs.
type listing struct {
	runs.Listing
	Folder  string  `json:"folder"`
	Program string  `json:"program"`
	Refresh float64 `json:"refresh_seconds"` // refresh interval; 0: at each change
}

// list sends the list of all runs.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	answer, err := s.answers.get(r.Context(), "list", int64(time.Since(s.begun)/listTime),
		func(ctx context.Context) (any, error) {
			list, err := s.options.Folder.List(ctx)
			return listing{list, s.options.Folder.Path, s.options.Version, s.options.Refresh.Seconds()}, err
		})
	s.send(w, r, answer, err)
}

// view sends the state of a run, without the figures that depend on the step.
func (s *Server) view(w http.ResponseWriter, r *http.Request) {
	open := s.follow
	if r.URL.Query().Has("once") { // comparisons of many runs set it: the server then reads each run only once
		open = s.visit
	}
	f, release, err := open(r.Context(), r.PathValue("name"))
	if err != nil {
		s.fail(w, err)
		return
	}
	defer release()
	f.run.Refresh()
	if f.isVisit() {
		answer, err := encode(f.run.Version(), func() (any, error) { return f.run.View(), nil })
		s.send(w, r, answer, err)
		return
	}
	answer, err := s.answers.get(r.Context(), "view/"+r.PathValue("name"), f.run.Version(),
		func(context.Context) (any, error) { return f.run.View(), nil })
	s.send(w, r, answer, f.orGone(err))
}

// figures sends figures over steps.
func (s *Server) figures(w http.ResponseWriter, r *http.Request) {
	query, err := parseQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f, release, err := s.visit(r.Context(), r.PathValue("name"))
	if err != nil {
		s.fail(w, err)
		return
	}
	defer release()
	figures := func(ctx context.Context) (any, error) { return f.run.Figures(ctx, query) }
	if f.isVisit() { // no later request has this version, so the answer is not cached
		answer, err := encode(f.run.Version(), func() (any, error) { return figures(r.Context()) })
		s.send(w, r, answer, err)
		return
	}
	answer, err := s.answers.get(r.Context(), fmt.Sprintf("figures/%s?%+v", r.PathValue("name"), query),
		f.run.Version(), figures)
	s.send(w, r, answer, f.orGone(err))
}

// config sends the settings of a run.
func (s *Server) config(w http.ResponseWriter, r *http.Request) {
	f, release, err := s.visit(r.Context(), r.PathValue("name"))
	if err != nil {
		s.fail(w, err)
		return
	}
	defer release()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(w, f.run.Config())
}

// mostRanksAsked is the largest number of ranks that a query may name.
const mostRanksAsked = 64

// parseQuery parses the parameters of figures. Unknown parameters are an error.
func parseQuery(values url.Values) (q runs.Query, err error) {
	q.From, q.Points = 1, 800
	number := func(name, text string) int64 {
		n, parseErr := strconv.ParseInt(text, 10, 64)
		if parseErr != nil || n < 0 || n > 1<<50 {
			err = errors.Join(err, fmt.Errorf("%s: got %q, want a number of at least 0", name, text))
		}
		return n
	}
	for name, list := range values {
		text := list[0]
		switch {
		case len(list) != 1:
			err = errors.Join(err, fmt.Errorf("%s: got %d values, want 1", name, len(list)))
		case name == "from":
			q.From = number(name, text)
		case name == "to":
			q.To = number(name, text)
		case name == "points":
			q.Points = int(min(number(name, text), 1<<20))
		case name == "columns":
			q.Columns = strings.Split(text, ",")
		case name == "ranks":
			for part := range strings.SplitSeq(text, ",") {
				q.Ranks = append(q.Ranks, int(number(name, part)))
			}
		default:
			err = errors.Join(err, fmt.Errorf("unknown parameter %q", name))
		}
	}
	if len(q.Columns) == 0 || len(q.Columns) > 48 || len(q.Ranks) > mostRanksAsked {
		err = errors.Join(err, fmt.Errorf("got %d columns, want 1 to 48, and %d ranks, want at most %d", len(q.Columns),
			len(q.Ranks), mostRanksAsked))
	}
	return q, err
}

// streamEvent is an event of a stream.
type streamEvent struct {
	kind string // "version", "refused"; "" ends the stream
	Run  string `json:"run"`

	Version int64  `json:"version,omitempty"` // new version of the run
	Why     string `json:"why,omitempty"`     // why the server refuses the run
	Missing bool   `json:"missing,omitempty"` // the server refuses the run because it does not exist
}

// mostStreamed is the largest number of runs of one stream. This may be more than the server can follow
// (mostFollowers). A browser then receives the versions of the followed runs, and a refusal for each of the others.
const mostStreamed = 64

// stream sends the versions of runs after each change, until the client disconnects. It sends an event for each run
// that the server refuses or that does not exist, and later the versions of this run if the server can follow it. If it
// cannot follow any of the runs, now or later, it sends an error.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	names := slices.Compact(slices.Sorted(slices.Values(r.URL.Query()["run"])))
	if len(names) == 0 || len(names) > mostStreamed {
		http.Error(w, fmt.Sprintf("run: got %d names, want 1 to %d", len(names), mostStreamed), http.StatusBadRequest)
		return
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	opened, events := make(chan error), make(chan streamEvent)
	for _, name := range names {
		all.Go(func() { s.watch(ctx, name, opened, events) })
	}
	var failed []error
	for range names {
		if err := <-opened; err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) == len(names) && !slices.ContainsFunc(failed, isTemporary) {
		s.fail(w, failed[0])
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // tells proxies not to buffer events
	control := http.NewResponseController(w)
	tell := func(text string) error {
		_ = control.SetWriteDeadline(time.Now().Add(s.writeTime)) // fails only in tests, for a recorder
		if _, err := fmt.Fprint(w, text); err != nil {
			return err
		}
		return control.Flush()
	}
	if tell("retry: 3000\n\n") != nil {
		return
	}
	// If a stream has no event for this time, the server sends a comment that keeps the connection alive. Many proxies
	// close a connection that is silent for 60 s. The time is longer than mostPause, so an active run's streams need no
	// comments.
	const silence = mostPause + 15*time.Second
	alive := time.NewTicker(silence)
	defer alive.Stop()
	for {
		text := ": alive\n\n"
		select {
		case <-ctx.Done():
			return
		case <-s.over.Done():
			return
		case e := <-events:
			data, err := json.Marshal(e)
			if e.kind == "" || err != nil {
				return // the client connects again, which starts a new follower
			}
			text = fmt.Sprintf("event: %s\ndata: %s\n\n", e.kind, data)
			alive.Reset(silence)
		case <-alive.C:
		}
		if tell(text) != nil {
			return
		}
	}
}

// isTemporary reports whether a later attempt to follow a run can succeed.
func isTemporary(err error) bool { return errors.Is(err, errBusy) || errors.Is(err, fs.ErrNotExist) }

// watch follows a run and sends its versions until ctx is canceled. It first sends the result of opening the run. While
// the server refuses the run, or its folder does not exist, watch tries again, and sends each new reason.
func (s *Server) watch(ctx context.Context, name string, opened chan<- error, events chan<- streamEvent) {
	send := func(e streamEvent) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	f, leave, err := s.join(ctx, name)
	opened <- err
	gone, said := false, ""
	for {
		switch {
		case err == nil:
			gone = f.tell(ctx, name, send)
			leave()
			if !gone {
				send(streamEvent{})
				return
			}
			said = ""
		case errors.As(err, new(*runs.NameError)):
			_, why := s.explain(err)
			send(streamEvent{kind: "refused", Run: name, Why: why})
			return // no later attempt can succeed
		default:
			if gone && errors.Is(err, fs.ErrNotExist) {
				err = errGone
			}
			if status, why := s.explain(err); why != said {
				said = why
				if !send(streamEvent{kind: "refused", Run: name, Why: why, Missing: status == http.StatusNotFound}) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(s.retryTime):
			}
		}
		f, leave, err = s.join(ctx, name) // after the follower has ended, another run may have this name
	}
}

// tell sends the versions of the run until the follower has ended or send fails. It reports whether the follower has
// ended because the folder of the run is gone.
func (f *follower) tell(ctx context.Context, name string, send func(streamEvent) bool) (gone bool) {
	for version := int64(-1); ; {
		next := f.wait()
		if next == nil {
			return f.gone.Load()
		}
		if v := f.run.Version(); v != version {
			version = v
			if !send(streamEvent{kind: "version", Run: name, Version: v}) {
				return false
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-next:
		}
	}
}

// orGone returns err. If the follower has ended and closed the files, err may be a consequence, so orGone returns
// errGone instead.
func (f *follower) orGone(err error) error {
	if err != nil && f.gone.Load() {
		return errGone
	}
	return err
}

// fail sends an error.
func (s *Server) fail(w http.ResponseWriter, err error) {
	status, text := s.explain(err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "10")
	}
	http.Error(w, text, status)
}

// explain returns the status and the text of an error. Clients do not see the text of an internal error, because it may
// name files.
func (s *Server) explain(err error) (status int, text string) {
	query := new(runs.QueryError)
	switch {
	case errors.As(err, &query):
		return http.StatusBadRequest, query.Error()
	case errors.As(err, new(*runs.NameError)):
		return http.StatusBadRequest, "this is not a valid name of a run"
	case errors.Is(err, errBusy):
		return http.StatusServiceUnavailable,
			errBusy.Error() + ": close the page of another run; this page shows its run some seconds later"
	case errors.Is(err, errGone):
		return http.StatusNotFound, "the folder of the run no longer exists"
	case errors.Is(err, fs.ErrNotExist):
		return http.StatusNotFound, "there is no such run"
	default:
		s.options.Log.Debug("request failed", "error", err)
		return http.StatusInternalServerError, "the files cannot be read"
	}
}

// answer is an encoded response body.
type answer struct {
	version       int64
	plain, packed []byte // without and with compression; packed is nil for a short answer
	used          time.Time
}

// answers caches encoded answers, so that clients with the same request share one answer.
type answers struct {
	mu     sync.Mutex
	bytes  int
	all    map[string]*answer
	builds map[buildKey]*build // answers that are being built
}

type buildKey struct {
	key     string
	version int64
}

// build is an answer that is being built. done is closed when answer and err are set.
type build struct {
	done    chan struct{}
	answer  *answer
	err     error
	clients int                // number of waiting clients; guarded by answers.mu
	cancel  context.CancelFunc // called when no client waits
}

// Limits of the memory of cached answers, in bytes.
const (
	mostAnswerBytes = 16 << 20
	mostCachedBytes = mostAnswerBytes / 2 // for one answer; a longer answer is not cached
)

// get returns the cached answer for a key and a version. If there is none, it calls value and caches the result.
// Clients that need the same answer at the same time share one call of value. A client stops waiting when its ctx ends.
// The context that value gets is canceled when no client waits any more.
func (a *answers) get(ctx context.Context, key string, version int64, value func(context.Context) (any, error)) (
	*answer, error) {
	a.mu.Lock()
	if found := a.all[key]; found != nil && found.version == version {
		found.used = time.Now()
		a.mu.Unlock()
		return found, nil
	}
	k := buildKey{key, version}
	b := a.builds[k]
	if b == nil {
		building, cancel := context.WithCancel(context.WithoutCancel(ctx))
		b = &build{done: make(chan struct{}), cancel: cancel}
		if a.builds == nil {
			a.builds = map[buildKey]*build{}
		}
		a.builds[k] = b
		go a.make(building, k, b, value)
	}
	b.clients++
	a.mu.Unlock()
	select {
	case <-b.done:
		return b.answer, b.err
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if b.clients--; b.clients == 0 {
		b.cancel()
		if a.builds[k] == b { // so that the next client does not wait for the canceled build
			delete(a.builds, k)
		}
	}
	return nil, context.Cause(ctx)
}

// make builds an answer.
func (a *answers) make(ctx context.Context, k buildKey, b *build, value func(context.Context) (any, error)) {
	b.err = errors.New("the reply could not be built") // remains if value panics
	defer func() {
		if p := recover(); p != nil { // as http.Server does
			b.err = fmt.Errorf("the reply could not be built: panic: %v\n%s", p, debug.Stack())
		}
		a.mu.Lock()
		if a.builds[k] == b {
			delete(a.builds, k)
		}
		if b.err == nil && b.answer.size() <= mostCachedBytes {
			a.keep(k.key, b.answer)
		}
		a.mu.Unlock()
		b.cancel()
		close(b.done)
	}()
	b.answer, b.err = encode(k.version, func() (any, error) { return value(ctx) })
}

// encode returns the JSON text of a value.
func encode(version int64, value func() (any, error)) (*answer, error) {
	v, err := value()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	made := &answer{version: version, plain: text, used: time.Now()}
	if len(text) > 1<<10 {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		if err != nil {
			return nil, err
		}
		if _, err := z.Write(text); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
		made.packed = b.Bytes()
	}
	return made, nil
}

// keep caches an answer and drops old answers.
func (a *answers) keep(key string, made *answer) {
	if a.all == nil {
		a.all = map[string]*answer{}
	}
	a.drop(key)
	a.all[key] = made
	a.bytes += made.size()
	for a.bytes > mostAnswerBytes {
		oldest := ""
		for name, x := range a.all {
			if name != key && (oldest == "" || x.used.Before(a.all[oldest].used)) {
				oldest = name
			}
		}
		a.drop(oldest)
	}
}

func (a *answers) drop(key string) {
	if old := a.all[key]; old != nil {
		a.bytes -= old.size()
		delete(a.all, key)
	}
}

func (x *answer) size() int { return len(x.plain) + len(x.packed) + 256 }

// send sends an answer or an error.
func (s *Server) send(w http.ResponseWriter, r *http.Request, x *answer, err error) {
	if err != nil {
		s.fail(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Vary", "Accept-Encoding")
	body := x.plain
	if x.packed != nil && acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = x.packed
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client has disconnected
}

func acceptsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}
