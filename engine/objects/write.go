package objects

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
)

const (
	// partBytes is the size of a part of a large object. A smaller part needs more requests; S3 permits 5 MiB to 5 GiB.
	partBytes = 16 << 20
	// mostParts is the largest number of parts that S3 permits.
	mostParts = 10_000
	// partsAtOnce is the number of parts of one object that are sent at the same time. Each needs memory for its
	// contents.
	partsAtOnce = 4
	// uploadMark is the name of the metadata that identify the upload of a multipart object.
	uploadMark = "Hetero-Upload"
	// abortTime limits the time to abort a failed upload.
	abortTime = 20 * time.Second
)

// ErrReplaced means that the present object is not the one that [Client.Replace] expects.
var ErrReplaced = errors.New("another process has replaced the object")

// Put stores size bytes of r as an object. The object appears atomically when it is complete, and replaces an older
// one.
func (c *Client) Put(ctx context.Context, name Name, r io.ReaderAt, size int64) error {
	if size <= partBytes {
		p := make([]byte, size)
		if err := readFull(r, p, 0); err != nil {
			return err
		}
		return c.PutBytes(ctx, name, p)
	}
	return c.putParts(ctx, name, r, size)
}

// PutBytes stores p as an object.
func (c *Client) PutBytes(ctx context.Context, name Name, p []byte) error {
	return c.putBytes(ctx, name, p, minio.PutObjectOptions{})
}

func (c *Client) putBytes(ctx context.Context, name Name, p []byte, o minio.PutObjectOptions) error {
	sum := hash(p)
	o.DisableContentSha256, o.ContentType = true, "application/octet-stream"
	return c.do(ctx, "PUT", name, int64(len(p)), func(ctx context.Context) error {
		// The signature covers the hash of the body, so the server refuses a body that was changed in transit.
		_, err := c.core.PutObject(ctx, name.Bucket, name.Key, bytes.NewReader(p), int64(len(p)), "", sum, o)
		return err
	})
}

// Replace stores p as an object if the ETag of the present object is etag; "" means that there must be no object.
// Otherwise it returns ErrReplaced. It can also return ErrReplaced after it has stored p: if the response is lost, the
// retry finds the new ETag. Servers that do not support such conditions always store p, so the caller must read the
// object afterwards.
func (c *Client) Replace(ctx context.Context, name Name, p []byte, etag string) error {
	var o minio.PutObjectOptions
	if etag == "" {
		o.SetMatchETagExcept("*")
	} else {
		o.SetMatchETag(etag)
	}
	err := c.putBytes(ctx, name, p, o)
	var failed *Error
	if !errors.As(err, &failed) {
		return err
	}
	switch {
	case failed.Status == http.StatusPreconditionFailed, failed.Status == http.StatusConflict,
		failed.Status == http.StatusNotFound && etag != "" && failed.Code != minio.NoSuchBucket:
		return ErrReplaced
	case failed.Status == http.StatusNotImplemented:
		return c.PutBytes(ctx, name, p)
	}
	return err
}

func hash(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:])
}

func readFull(r io.ReaderAt, p []byte, at int64) error {
	n, err := r.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == io.EOF || err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (c *Client) putParts(ctx context.Context, name Name, r io.ReaderAt, size int64) (err error) {
	part := max(partBytes, (size+mostParts-1)/mostParts)
	var id string
	mark := rand.Text() // a mark is necessary because ETags of multipart objects depend on the server
	err = c.do(ctx, "PUT", name, 0, func(ctx context.Context) (err error) {
		id, err = c.core.NewMultipartUpload(ctx, name.Bucket, name.Key, minio.PutObjectOptions{
			ContentType: "application/octet-stream", UserMetadata: map[string]string{uploadMark: mark}})
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		// If an upload is not aborted, its parts cost storage.
		late, end := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
		defer end()
		abort := c.do(late, "DELETE", name, 0, func(ctx context.Context) error {
			return c.core.AbortMultipartUpload(ctx, name.Bucket, name.Key, id)
		})
		if abort != nil && !errors.Is(abort, fs.ErrNotExist) {
			err = errors.Join(err, abort)
		}
	}()
	parts := make([]minio.CompletePart, (size+part-1)/part)
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan int)
	var all sync.WaitGroup
	for range min(partsAtOnce, len(parts)) {
		all.Go(func() {
			buf := make([]byte, part)
			for k := range next {
				p := buf[:min(part, size-int64(k)*part)]
				if err := c.putPart(within, name, id, k, r, p, int64(k)*part, &parts[k]); err != nil {
					stop(err)
				}
			}
		})
	}
	for k := range parts {
		select {
		case next <- k:
		case <-within.Done():
		}
	}
	close(next)
	all.Wait()
	if within.Err() != nil {
		return context.Cause(within)
	}
	return c.doWithin(ctx, "PUT", name, completeTime, func(ctx context.Context) error {
		_, err := c.core.CompleteMultipartUpload(ctx, name.Bucket, name.Key, id, parts, minio.PutObjectOptions{})
		if minio.ToErrorResponse(err).Code == "NoSuchUpload" {
			// An earlier attempt may have completed the upload before its response was lost.
			o, statErr := c.core.StatObject(ctx, name.Bucket, name.Key, minio.StatObjectOptions{})
			if statErr == nil && o.Size == size && o.UserMetadata[uploadMark] == mark {
				return nil
			}
		}
		return err
	})
}

func (c *Client) putPart(ctx context.Context, name Name, id string, k int, r io.ReaderAt, p []byte, at int64,
	done *minio.CompletePart) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := readFull(r, p, at); err != nil {
		return err
	}
	sum := hash(p)
	return c.do(ctx, "PUT", name, int64(len(p)), func(ctx context.Context) error {
		got, err := c.core.PutObjectPart(ctx, name.Bucket, name.Key, id, k+1, bytes.NewReader(p), int64(len(p)),
			minio.PutObjectPartOptions{Sha256Hex: sum, DisableContentSha256: true})
		*done = minio.CompletePart{PartNumber: k + 1, ETag: got.ETag}
		return err
	})
}
