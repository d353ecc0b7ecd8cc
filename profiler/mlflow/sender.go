package mlflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// SentTag is the name of a tag of a run in MLflow. The value is the position in the spool up to which the lines were
// sent.
const SentTag = "hetero_train.sent"

// idTag is the name of the tag whose value is Start.ID.
const idTag = "hetero_train.id"

// ErrInUse means that another process sends the spool.
var ErrInUse = errors.New("another process sends this run to MLflow")

// Refused is the error of a request that would fail again if it were repeated.
type Refused struct{ Err error }

func (r *Refused) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *Refused) Unwrap() error { return r.Err }

// store is the destination of runs: a server or a folder.
type store interface {
	// open finds or creates the run. It returns the run's id in the store, and the position up to which the store
	// contains the spool. The parameter id is the run's id from an earlier call, or "".
	open(ctx context.Context, s *Start, id string) (run string, sent int64, err error)
	// add appends metrics and tags to the run, and stores the new position.
	add(ctx context.Context, run string, b *batch) error
	params(ctx context.Context, run string, params map[string]string) error
	status(ctx context.Context, run, status string, time int64) error
	artifact(ctx context.Context, run, name string, content []byte) error
}

// SenderOptions configure a sender.
type SenderOptions struct {
	RunDir  string // folder of the run, for its files; "": only files of LogDir are sent
	LogDir  string
	Target  string // URL or folder; "": the target of the last sender, unless it is an *UnconfirmedError
	Environ []string
	Timeout time.Duration // time limit of one request; 0: 30 s
	// called when sending starts to fail, and with nil when it works again; may be nil
	OnFault  func(error)
	OnSkip   func(file string, why error) // called for a file that cannot be sent; may be nil
	OnRefuse func(error)                  // called when the server refuses a request and sending stops; may be nil
}

// state is the content of StateFile.
type state struct {
	Target string `json:"target"`
	Run    string `json:"run_id"` // id of the run in the store; "" until the run exists there
	Sent   int64  `json:"sent"`   // position in the spool
}

// sending contains the state of one execution of a sender.
type sending struct {
	o      SenderOptions
	store  store
	file   *os.File
	state  state
	opened bool
}

// CheckTarget returns an error if target is neither a URL of a server nor a folder.
func CheckTarget(target string) error {
	_, err := newStore(target, nil, 0)
	return err
}

func newStore(target string, environ []string, timeout time.Duration) (store, error) {
	if strings.Contains(target, "://") {
		return newServer(target, environ, timeout)
	}
	return newFolder(target)
}

// open opens the spool and takes the lock of the spool.
func (o SenderOptions) open() (*sending, error) {
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	for _, f := range []*func(error){&o.OnFault, &o.OnRefuse} {
		if *f == nil {
			*f = func(error) {}
		}
	}
	if o.OnSkip == nil {
		o.OnSkip = func(string, error) {}
	}
	g := &sending{o: o}
	file, _, err := regular.Open(filepath.Join(o.LogDir, SpoolFile))
	if err != nil {
		return nil, err
	}
	g.file = file
	if err := platform.TryLock(file); err != nil {
		file.Close()
		if errors.Is(err, platform.ErrLocked) {
			err = ErrInUse
		}
		return nil, fmt.Errorf("%s: %w", o.LogDir, err)
	}
	if err := g.readState(); err != nil {
		file.Close()
		return nil, err
	}
	if o.Target != "" && o.Target != g.state.Target {
		g.state = state{Target: o.Target} // another store than before: it receives the whole spool
	}
	if g.state.Target == "" {
		file.Close()
		return nil, errors.New("the run has no address of an MLflow server")
	}
	if o.Target == "" {
		err = confirm(g.state.Target, o.Environ)
	}
	if err == nil {
		g.store, err = newStore(g.state.Target, o.Environ, o.Timeout)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return g, g.writeState()
}

// UnconfirmedError means that a file of the run names the target, but that the user must confirm this target. The
// target is a server that would receive the user's credentials, or a folder to which the sender would write. The files
// of the run may be untrusted.
type UnconfirmedError struct {
	Target string
	Why    string
}

func (e *UnconfirmedError) Error() string {
	return fmt.Sprintf("%s of the run names the target %q: %s", StateFile, e.Target, e.Why)
}

// addressVariable is the environment variable with the address of the user's server.
const addressVariable = "MLFLOW_TRACKING_URI"

// confirm returns an error if a file names the target and the user must confirm it.
func confirm(target string, environ []string) error {
	if !strings.Contains(target, "://") {
		return &UnconfirmedError{target, "a sender would write to this folder"}
	}
	v := variables(environ)
	if trimmed := strings.TrimRight(target, "/"); trimmed == strings.TrimRight(v[addressVariable], "/") {
		return nil
	}
	for _, name := range credentials {
		if v[name] != "" {
			return &UnconfirmedError{target, "it would get the credentials in " + name}
		}
	}
	return nil
}

func (g *sending) readState() error {
	f, info, err := regular.Open(filepath.Join(g.o.LogDir, StateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if info.Size() > 1<<16 {
		return fmt.Errorf("%s: got %d bytes, want at most %d", StateFile, info.Size(), 1<<16)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<16))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &g.state); err != nil {
		return fmt.Errorf("%s: %w; remove the file to send the run again", StateFile, err)
	}
	return nil
}

func (g *sending) writeState() error {
	text, err := json.Marshal(g.state)
	if err != nil {
		return err
	}
	return experiment.ReplaceText(filepath.Join(g.o.LogDir, StateFile), append(text, '\n'))
}

// begin finds or creates the run in the store and continues at the store's position.
func (g *sending) begin(ctx context.Context) error {
	if g.opened {
		return nil
	}
	first, err := readBatch(g.file, 0)
	if err != nil {
		return err
	}
	if len(first.lines) == 0 || first.lines[0].Start == nil {
		return &Refused{fmt.Errorf("%s: the first line does not describe the run", SpoolFile)}
	}
	start := first.lines[0].Start
	run, sent, err := g.store.open(ctx, start, g.state.Run)
	if err != nil {
		return err
	}
	g.state.Run, g.state.Sent = run, sent
	if err := g.store.params(ctx, run, start.Params); err != nil {
		return err
	}
	g.opened = true
	return g.writeState()
}

// step sends one batch. It reports whether the spool contained one.
func (g *sending) step(ctx context.Context) (sent bool, err error) {
	defer func() {
		if err != nil {
			g.opened = false // so that the next attempt asks the store for its position
		}
	}()
	if err := g.begin(ctx); err != nil {
		return false, err
	}
	b, err := readBatch(g.file, g.state.Sent)
	if err != nil || b.end == g.state.Sent {
		return false, err
	}
	for _, l := range b.lines { // the store accepts repeated requests of these kinds
		switch {
		case l.Status != "":
			err = g.store.status(ctx, g.state.Run, l.Status, l.Time)
		case l.Artifact != "":
			err = g.send(ctx, l)
		}
		if err != nil {
			return false, err
		}
	}
	if err := g.store.add(ctx, g.state.Run, &b); err != nil {
		return false, err
	}
	g.state.Sent = b.end
	return true, g.writeState()
}

// mostArtifact is the maximum size of a file, in bytes.
const mostArtifact = 64 << 20

// send sends a file. A file that cannot be sent does not delay the metrics.
func (g *sending) send(ctx context.Context, l Line) error {
	skip := func(why error) error {
		g.o.OnSkip(l.Artifact, why)
		return nil
	}
	f, info, err := g.openArtifact(l.Artifact)
	if err != nil {
		return skip(err)
	}
	defer f.Close()
	if info.Size() > mostArtifact {
		return skip(fmt.Errorf("got %d bytes, want at most %d", info.Size(), mostArtifact))
	}
	content, err := io.ReadAll(io.LimitReader(f, mostArtifact))
	if err != nil {
		return skip(err)
	}
	err = g.store.artifact(ctx, g.state.Run, l.Artifact, content)
	if errors.As(err, new(*Refused)) {
		return skip(err)
	}
	return err
}

// logsPrefix is the prefix of the names of files in LogDir. Names without it are relative to RunDir.
const logsPrefix = "logs/"

// openArtifact opens a file of the run. The spool is untrusted, so its names do not lead out of the folders of the run.
func (g *sending) openArtifact(name string) (*os.File, os.FileInfo, error) {
	folder, within := g.o.RunDir, name
	if rest, ok := strings.CutPrefix(name, logsPrefix); ok {
		folder, within = g.o.LogDir, rest
	}
	if folder == "" {
		return nil, nil, errors.New("the folder of the run is not known")
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close() // the file stays open
	return regular.OpenIn(root, filepath.FromSlash(within))
}

func (g *sending) close() error { return g.file.Close() }

// Sync sends the whole spool and returns. It ends at the first error.
func Sync(ctx context.Context, o SenderOptions) (target, run string, err error) {
	g, err := o.open()
	if err != nil {
		return "", "", err
	}
	defer g.close()
	for sent := true; sent; {
		if sent, err = g.step(ctx); err != nil {
			return g.state.Target, g.state.Run, err
		}
	}
	return g.state.Target, g.state.Run, nil
}

// Sender sends the spool of a run while the run trains.
type Sender struct {
	end    chan struct{} // closed when the spool is complete
	done   chan struct{} // closed when the sender has ended
	cancel context.CancelFunc
	left   bool // a part of the spool was not sent; valid after done
}

// Pauses between two attempts.
const (
	firstPause = time.Second
	mostPause  = time.Minute
	idlePause  = time.Second // if the spool has no new lines
)

// StartSender starts a sender, which the caller must close. StartSender never fails; the sender passes errors to
// OnFault.
func StartSender(o SenderOptions) *Sender {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Sender{end: make(chan struct{}), done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(s.done)
		s.left = s.send(ctx, o)
	}()
	return s
}

// send sends the spool until it is complete and completely sent. The result left is true if a part of the spool was not
// sent.
func (s *Sender) send(ctx context.Context, o SenderOptions) (left bool) {
	var g *sending
	defer func() {
		if g != nil {
			g.close()
		}
	}()
	pause, failing := firstPause, false
	for {
		ended := s.ended() // checked before the read, so that the next round finds lines that are added later
		sent, err := false, error(nil)
		if g == nil {
			g, err = o.open()
		}
		if err == nil {
			sent, err = g.step(ctx)
		}
		if ctx.Err() != nil {
			return true
		}
		if errors.As(err, new(*Refused)) {
			if o.OnRefuse != nil {
				o.OnRefuse(err)
			}
			return true
		}
		if failing != (err != nil) {
			if failing = err != nil; o.OnFault != nil {
				o.OnFault(err)
			}
		}
		wait := idlePause
		switch {
		case err != nil:
			wait, pause = pause, min(2*pause, mostPause)
		case sent:
			pause = firstPause
			continue
		case ended:
			return false
		default:
			pause = firstPause
		}
		end := s.end
		if ended {
			end = nil
		}
		select {
		case <-time.After(wait):
		case <-end:
		case <-ctx.Done():
			return true
		}
	}
}

func (s *Sender) ended() bool {
	select {
	case <-s.end:
		return true
	default:
		return false
	}
}

// Close sends the rest of the spool, for at most the given time. left is true if a part of the spool was not sent.
func (s *Sender) Close(atMost time.Duration) (left bool) {
	close(s.end)
	select {
	case <-s.done:
	case <-time.After(atMost):
		s.cancel()
		<-s.done
	}
	s.cancel()
	return s.left
}
