package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
)

// Client sends requests to one server. Its methods are safe for concurrent use.
type Client struct {
	settings settings
	host     string
	core     minio.Core
	wait     time.Duration // before the second try
	slots    chan struct{} // one for each request in flight

	quiet time.Duration // time without an answer before a report

	requests, retries, received, sent, flying, highest atomic.Int64
	// alive counts signs of life of the server: headers of answers, and reads of bodies in both directions.
	alive atomic.Int64
	born  time.Time
	// times in ns since born: of the last report, and of the last operation for which no try found a connection; 0:
	// none
	reported, gone atomic.Int64
}

// Traffic counts the requests of a Client and the bytes that it has transferred.
type Traffic struct {
	Requests int64 // HTTP requests
	Retries  int64 // operations that were tried again
	Received int64 // bytes of bodies
	Sent     int64 // bytes of bodies
	Highest  int64 // largest number of operations in flight at one time
}

// Traffic returns the counts since the start of the process.
func (c *Client) Traffic() Traffic {
	return Traffic{c.requests.Load(), c.retries.Load(), c.received.Load(), c.sent.Load(), c.highest.Load()}
}

// Endpoint returns the host to which the Client sends requests.
func (c *Client) Endpoint() string { return c.host }

// counting counts requests and the bytes of their bodies.
type counting struct {
	next       http.RoundTripper
	completing http.RoundTripper // waits completeTime for an answer
	c          *Client
}

func (t counting) RoundTrip(r *http.Request) (*http.Response, error) {
	t.c.requests.Add(1)
	if r.ContentLength > 0 {
		t.c.sent.Add(r.ContentLength)
	}
	next := t.next
	if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
		next = t.completing
	}
	if r.Body != nil && r.Body != http.NoBody {
		r = r.WithContext(r.Context()) // a RoundTripper must not change its request
		body, again := r.Body, r.GetBody
		r.Body = &countedBody{body, new(atomic.Int64), &t.c.alive}
		if again != nil {
			r.GetBody = func() (io.ReadCloser, error) {
				body, err := again()
				return &countedBody{body, new(atomic.Int64), &t.c.alive}, err
			}
		}
	}
	resp, err := next.RoundTrip(r)
	if err == nil {
		t.c.alive.Add(1)
		t.c.gone.Store(0)
		if w, ok := r.Context().Value(waitingKey{}).(*waiting); ok {
			w.last.Store(nil)
		}
		resp.Body = &countedBody{resp.Body, &t.c.received, &t.c.alive}
	}
	return resp, err
}

// countedBody counts the bytes of a body in n, and its reads in alive.
type countedBody struct {
	io.ReadCloser
	n, alive *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	if n > 0 {
		b.alive.Add(1)
	}
	return n, err
}

// do tries an operation up to mostTries times. It stops when a try succeeds, or fails with an error that is not
// transient. The parameter bytes is the size of the body that the operation transfers.
func (c *Client) do(ctx context.Context, op string, name Name, bytes int64, try func(ctx context.Context) error) error {
	limit := answerTime + time.Duration(float64(bytes)/slowest*float64(time.Second))
	return c.doWithin(ctx, op, name, limit, try)
}

// doWithin does the same as do, with a time limit for each try.
func (c *Client) doWithin(ctx context.Context, op string, name Name, limit time.Duration,
	try func(ctx context.Context) error) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	flying := c.flying.Add(1)
	for h := c.highest.Load(); flying > h && !c.highest.CompareAndSwap(h, flying); h = c.highest.Load() {
	}
	defer func() {
		c.flying.Add(-1)
		<-c.slots
	}()
	w := &waiting{op: op, name: name, begun: time.Now(), most: mostTries, limit: limit, done: make(chan struct{})}
	defer close(w.done)
	w.until, _ = ctx.Deadline()
	if gone := c.gone.Load(); gone > 0 && c.age()-gone < int64(goneTime) && (op == "HEAD" || op == "LIST") {
		w.most = 1 // the server was just unreachable; failed writes could lose data, so they are tried again
	}
	wait, alive := c.wait, c.alive.Load()
	late := time.AfterFunc(c.quiet, func() { c.watch(w, alive) })
	defer late.Stop()
	ctx = context.WithValue(ctx, waitingKey{}, w)
	for n := 1; ; n++ {
		w.tries.Store(int64(n))
		err := func() error {
			ctx, end := context.WithTimeoutCause(ctx, limit, errStuck)
			defer end()
			err := try(ctx)
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return err
		}()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case n >= w.most || !c.passes(err):
			if noConnection(err) {
				c.gone.Store(c.age())
			}
			return c.explain(op, name, n, err)
		}
		c.retries.Add(1)
		cause := plain(err)
		w.last.Store(&cause)
		select {
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		wait = min(2*wait, longestWait)
	}
}

// Info describes an object.
type Info struct {
	Name     Name
	Size     int64
	ETag     string // identifies the contents
	Modified time.Time
}

// Stat returns the size and the ETag of an object.
func (c *Client) Stat(ctx context.Context, name Name) (info Info, err error) {
	err = c.do(ctx, "HEAD", name, 0, func(ctx context.Context) error {
		o, err := c.core.StatObject(ctx, name.Bucket, name.Key, minio.StatObjectOptions{})
		info = Info{name, o.Size, o.ETag, o.LastModified}
		return err
	})
	return info, err
}

// List returns the objects whose names begin with prefix, sorted by name.
func (c *Client) List(ctx context.Context, prefix Name) (list []Info, err error) {
	after := ""
	for whole := false; !whole; {
		// Each operation lists one page, so that its time limit applies to one page. A further try keeps the names that
		// earlier tries have listed, and continues after the last one.
		err = c.do(ctx, "LIST", prefix, 0, func(ctx context.Context) error {
			end := len(list) + pageKeys
			options := minio.ListObjectsOptions{Prefix: prefix.Key, Recursive: true, StartAfter: after,
				MaxKeys: pageKeys}
			for o := range c.core.Client.ListObjectsIter(ctx, prefix.Bucket, options) {
				switch {
				case o.Err != nil:
					return o.Err
				case o.Key <= after:
					return fmt.Errorf("the server returned %.200q after %.200q, want names in order", o.Key, after)
				}
				after = o.Key
				list = append(list, Info{Name{prefix.Bucket, o.Key}, o.Size, strings.Trim(o.ETag, `"`), o.LastModified})
				if len(list) == end {
					return nil
				}
			}
			whole = ctx.Err() == nil // a context that ends also ends the loop
			return context.Cause(ctx)
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// ReadRange fills p with bytes of an object, beginning at offset. If the object has changed, it returns an error.
func (c *Client) ReadRange(ctx context.Context, info Info, offset int64, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if offset < 0 || offset > info.Size-int64(len(p)) {
		return fmt.Errorf("read %s: bytes %d to %d of an object of %d: %w", info.Name, offset, offset+int64(len(p)),
			info.Size, io.ErrUnexpectedEOF)
	}
	return c.do(ctx, "GET", info.Name, int64(len(p)), func(ctx context.Context) error {
		var o minio.GetObjectOptions
		err := o.SetRange(offset, offset+int64(len(p))-1)
		if err == nil && info.ETag != "" {
			err = o.SetMatchETag(info.ETag)
		}
		if err != nil {
			return err
		}
		body, got, header, err := c.core.GetObject(ctx, info.Name.Bucket, info.Name.Key, o)
		if answer := minio.ToErrorResponse(err); answer.StatusCode == http.StatusNotFound &&
			answer.Code != minio.NoSuchBucket && info.ETag != "" {
			return errRemoved // the object existed when its ETag was read
		}
		if err != nil {
			return err
		}
		defer body.Close() // read only
		if got.ETag != info.ETag && info.ETag != "" {
			return errChanged // a server that ignores If-Match
		}
		want := fmt.Sprintf("bytes %d-%d/", offset, offset+int64(len(p))-1)
		if r := header.Get("Content-Range"); !strings.HasPrefix(r, want) && int64(len(p)) != info.Size {
			return fmt.Errorf("the server returned the range %.100q, want %q", r, want)
		}
		if _, err := io.ReadFull(body, p); err != nil {
			return &cutError{err}
		}
		return nil
	})
}

// ReadAll copies an object to w. It requests pieces of the given size, atOnce pieces at a time, and writes them in any
// order.
func (c *Client) ReadAll(ctx context.Context, info Info, piece int64, atOnce int, w io.WriterAt) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(int64(atOnce), (info.Size+piece-1)/piece) {
		all.Go(func() {
			buf := make([]byte, min(piece, info.Size))
			for at := next.Add(piece) - piece; at < info.Size; at = next.Add(piece) - piece {
				p := buf[:min(piece, info.Size-at)]
				err := c.ReadRange(ctx, info, at, p)
				if err == nil {
					_, err = w.WriteAt(p, at)
				}
				if err != nil {
					stop(err)
					return
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// Read returns the contents of a small object.
func (c *Client) Read(ctx context.Context, name Name, most int64) ([]byte, error) {
	p, _, err := c.ReadTagged(ctx, name, most)
	return p, err
}

// ReadTagged returns the contents and the ETag of a small object, which other processes may replace.
func (c *Client) ReadTagged(ctx context.Context, name Name, most int64) (p []byte, etag string, err error) {
	for n := 1; ; n++ {
		info, err := c.Stat(ctx, name)
		if err != nil {
			return nil, "", err
		}
		if info.Size > most {
			return nil, "", fmt.Errorf("read %s: got %d bytes, want at most %d", name, info.Size, most)
		}
		p = make([]byte, info.Size)
		err = c.ReadRange(ctx, info, 0, p)
		if n == mostTries || !errors.Is(err, errChanged) {
			return p, info.ETag, err
		}
	}
}

// Delete deletes an object. A missing object is not an error.
func (c *Client) Delete(ctx context.Context, name Name) error {
	return c.do(ctx, "DELETE", name, 0, func(ctx context.Context) error {
		return c.core.RemoveObject(ctx, name.Bucket, name.Key, minio.RemoveObjectOptions{})
	})
}

// MakeBucket creates a bucket, for tests. An existing bucket of the same owner is not an error.
func (c *Client) MakeBucket(ctx context.Context, bucket string) error {
	err := c.core.MakeBucket(ctx, bucket, minio.MakeBucketOptions{Region: c.settings.region})
	if code := minio.ToErrorResponse(err).Code; code == "BucketAlreadyOwnedByYou" || code == "BucketAlreadyExists" {
		return nil
	}
	return err
}
