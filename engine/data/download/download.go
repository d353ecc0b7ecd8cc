package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/regular"
)

var (
	// ErrUnavailable is in the error chain if a file currently cannot be downloaded.
	ErrUnavailable = errors.New("not available")
	// ErrMismatch is in the error chain if a file has unexpected contents.
	ErrMismatch = errors.New("wrong contents")
)

// Request describes a file to download.
type Request struct {
	URL      string
	SHA256   string // hexadecimal
	MaxBytes int64  // largest size of a response in bytes; must be above 0
	Dir      string // destination folder, created if missing
	Name     string // file name within Dir

	// StartTimeout is the time limit for the first byte. 0 means 10 s.
	StartTimeout time.Duration
	// StallTimeout is the time limit between two reads of bytes. 0 means 10 s. After half of this time, the client
	// reconnects. There is no time limit for the whole download.
	StallTimeout time.Duration
	// Progress, if not nil, is called a few times per second with the number of bytes on disk and the total size. The
	// argument total is 0 if the size is unknown.
	Progress func(done, total int64)
}

const (
	firstPause    = 500 * time.Millisecond // pause between attempts; doubles after each attempt
	startFailures = 2                      // limit of failed attempts before the first byte
	maxFailures   = 4                      // the same after the first byte: attempts without new bytes; 7.5 s of pauses
	leastStart    = 2 * time.Second
)

// Fetch returns the path of the file. It downloads the file if it is not in Dir, and replaces a file in Dir that has
// wrong contents.
func Fetch(ctx context.Context, q Request) (string, error) {
	if q.StartTimeout == 0 {
		q.StartTimeout = 10 * time.Second
	}
	if q.StallTimeout == 0 {
		q.StallTimeout = 10 * time.Second
	}
	begun := time.Now()
	if err := os.MkdirAll(q.Dir, 0o755); err != nil {
		return "", err
	}
	target := filepath.Join(q.Dir, q.Name)
	lock, err := filelock.Acquire(ctx, target+".lock")
	if err != nil {
		return "", err
	}
	defer lock.Release()
	switch err := Verify(target, q.SHA256); {
	case err == nil:
		return target, nil
	case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrMismatch):
		return "", err
	}
	// The time limit includes the wait for another process. Otherwise, several processes would wait for an unreachable
	// server one after another.
	t := &transfer{Request: q, target: target, byteBy: begun.Add(q.StartTimeout)}
	if soonest := time.Now().Add(min(leastStart, q.StartTimeout)); t.byteBy.Before(soonest) {
		t.byteBy = soonest
	}
	if err := t.run(ctx); err != nil {
		return "", fmt.Errorf("download %s: %w", q.URL, err)
	}
	return target, nil
}

// Verify compares the SHA-256 of the file at path with want (hexadecimal). If they differ, it returns ErrMismatch.
func Verify(path, want string) error {
	f, _, err := regular.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20)); err != nil {
		return err
	}
	return compare(path, h, want)
}

func compare(path string, h hash.Hash, want string) error {
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s has SHA-256 %s, want %s: %w", path, got, want, ErrMismatch)
	}
	return nil
}

// transfer is one download.
type transfer struct {
	Request
	target   string
	byteBy   time.Time // time limit for the next byte
	part     *os.File
	sum      hash.Hash // hash of the bytes in part
	done     int64     // number of bytes in part
	total    int64     // size of the file in bytes; 0 if unknown
	started  bool      // at least one byte has arrived
	resumed  bool      // part contains bytes of an earlier connection
	reported time.Time
}

var (
	errRetry  = errors.New("connection failed") // another attempt may succeed
	errSilent = errors.New("the server sent no data until the time-out")
)

func (t *transfer) run(ctx context.Context) error {
	if err := t.openPart(); err != nil {
		return err
	}
	defer t.part.Close()
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone(), CheckRedirect: noDowngrade}
	defer client.CloseIdleConnections()
	for try := 0; ; try++ {
		if err := t.load(ctx, client); err != nil {
			return err
		}
		err := compare(t.URL, t.sum, t.SHA256)
		if err == nil {
			return t.publish()
		}
		// The bytes of an earlier attempt may belong to another file. Download the whole file again.
		again := t.resumed && try == 0
		if err := t.restart(); err != nil {
			return err
		}
		if !again {
			return errors.Join(err, os.Remove(t.part.Name()))
		}
	}
}

// load downloads the missing bytes of the file, with as many connections as necessary.
func (t *transfer) load(ctx context.Context, client *http.Client) error {
	pause, furthest := firstPause, t.done
	for failures := 0; ; failures++ {
		err := t.connect(ctx, client)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, errRetry):
			return err
		}
		if t.done > furthest { // bytes that a server without range support sends again are no progress
			failures, pause, furthest = 0, firstPause, t.done
		}
		if !t.started && failures == startFailures || failures == maxFailures || time.Until(t.byteBy) <= pause {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
		t.resumed = t.done > 0
	}
}

// connect requests the missing bytes and appends them to part.
func (t *transfer) connect(parent context.Context, client *http.Client) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	silent := time.AfterFunc(time.Until(t.byteBy), func() { cancel(errSilent) })
	defer silent.Stop()
	retry := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("%w: %w", errRetry, err)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, nil)
	if err != nil {
		return err
	}
	q.Header.Set("User-Agent", "hetero-train")
	q.Header.Set("Accept-Encoding", "identity") // the hash is that of the uncompressed file
	if t.done > 0 {
		q.Header.Set("Range", fmt.Sprintf("bytes=%d-", t.done))
	}
	answer, err := client.Do(q)
	if err != nil {
		return retry(err)
	}
	defer answer.Body.Close()
	complete, err := t.accept(answer)
	if err != nil || complete {
		return err
	}
	buf := make([]byte, 256<<10)
	for {
		n, err := answer.Body.Read(buf)
		if n > 0 {
			t.started = true
			t.byteBy = time.Now().Add(t.StallTimeout)
			silent.Reset(t.StallTimeout / 2) // the other half of the time is for a new connection
			if err := t.append(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			if t.total > 0 && t.done < t.total {
				return retry(fmt.Errorf("connection ended after %d of %d bytes", t.done, t.total))
			}
			t.report(true)
			return nil
		}
		if err != nil {
			return retry(err)
		}
	}
}

// accept checks the header of a response and prepares part for the body. The result complete is true if there is no
// body to read.
func (t *transfer) accept(answer *http.Response) (complete bool, err error) {
	switch answer.StatusCode {
	case http.StatusOK: // the server sends the whole file, even if a range was requested
		t.total = max(answer.ContentLength, 0)
		if t.done > 0 {
			return false, t.restart()
		}
	case http.StatusPartialContent:
		var first, last, total int64
		if n, _ := fmt.Sscanf(answer.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total); n < 3 ||
			first != t.done {
			if err := t.restart(); err != nil {
				return false, err
			}
			return false, fmt.Errorf("%w: asked for bytes from %d on, got %.100q", errRetry, t.done,
				answer.Header.Get("Content-Range"))
		}
		t.total = total
	case http.StatusRequestedRangeNotSatisfiable:
		var total int64
		if n, _ := fmt.Sscanf(answer.Header.Get("Content-Range"), "bytes */%d", &total); n == 1 && total == t.done {
			return true, nil
		}
		if err := t.restart(); err != nil {
			return false, err
		}
		return false, fmt.Errorf("%w: the server has fewer bytes than were downloaded before", errRetry)
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false, fmt.Errorf("%w: server answers %s", errRetry, answer.Status)
	default:
		return false, fmt.Errorf("%w: server answers %s", ErrUnavailable, answer.Status)
	}
	if t.total > t.MaxBytes {
		return false, fmt.Errorf("%w: server offers %d bytes, want at most %d", ErrMismatch, t.total, t.MaxBytes)
	}
	return false, nil
}

func noDowngrade(next *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("more than 10 redirections")
	}
	if via[0].URL.Scheme == "https" && next.URL.Scheme != "https" {
		return fmt.Errorf("redirected from https to %s", next.URL.Scheme)
	}
	return nil
}
