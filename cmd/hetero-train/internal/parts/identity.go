package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
)

// ContentOf returns a digest of the names, shapes and values of all tensors.
func ContentOf(f *checkpoint.File) (string, error) {
	h := sha256.New()
	var buffer []byte
	for _, t := range f.Tensors() {
		fmt.Fprintf(h, "%q %v %v\n", t.Name, t.DType, t.Shape)
		buffer = slices.Grow(buffer[:0], int(t.Bytes()))[:t.Bytes()]
		if err := f.ReadInto(t.Name, buffer); err != nil {
			return "", err
		}
		h.Write(buffer)
	}
	return digest(h.Sum(nil)), nil
}

func digest(sum []byte) string { return "content " + hex.EncodeToString(sum[:8]) }

// identitySamples is the number of samples of each split that the identity of a data set covers. A split with fewer
// samples is read as a whole. With a larger number, the start of a run takes longer; with a smaller number, a change of
// the data is more likely to remain undetected. Reading 256 samples takes well under a second from a local disk.
const identitySamples = 256

// Identity returns a digest of the training data; "" if the settings alone determine the data.
func (o *Opened) Identity(ctx context.Context) (string, error) {
	switch {
	case o.Tokens != nil:
		return o.Tokens.Identity, nil
	case o.Content == nil:
		return "", nil
	}
	identity, err := identify(ctx, o.stored)
	if err != nil {
		return "", fmt.Errorf("data set %s: %w", o.Name, err)
	}
	return identity, nil
}

// NamesSamples reports whether the comparison of Content covers the names of the samples.
func (o *Opened) NamesSamples() bool {
	_, named := o.stored.Train.(data.Described)
	return named
}

// identify returns a digest of the class names, of the labels of all samples, and of the content of up to
// identitySamples evenly spaced samples.
func identify(ctx context.Context, s data.Splits) (string, error) {
	h := sha256.New()
	for _, part := range []data.Dataset{s.Train, s.Eval} {
		if part == nil {
			io.WriteString(h, "none\n")
			continue
		}
		if err := identifyPart(ctx, h, part); err != nil {
			return "", err
		}
	}
	return digest(h.Sum(nil)), nil
}

func identifyPart(ctx context.Context, h io.Writer, d data.Dataset) error {
	fmt.Fprintf(h, "%d %q\n", d.Len(), d.Classes())
	labels := make([]byte, 0, 4096)
	for i := range d.Len() {
		if labels = strconv.AppendInt(labels, int64(d.Label(i)), 10); len(labels) > 4000 {
			h.Write(labels)
			labels = labels[:0]
		}
		labels = append(labels, ' ')
	}
	h.Write(labels)
	reader, err := d.NewReader()
	if err != nil {
		return err
	}
	defer reader.Close()
	n := min(d.Len(), identitySamples)
	for k := range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		writeSample(h, reader, int(int64(k)*int64(d.Len())/int64(n)))
	}
	return nil
}

// writeSample adds sample i to the digest: its stored bytes, otherwise its pixels, otherwise the fact that it is
// unreadable.
func writeSample(h io.Writer, r data.Reader, i int) {
	if encoded, ok := r.(data.Encoded); ok {
		if file, err := encoded.Contents(i); err == nil {
			h.Write(file)
			return
		}
	}
	var image data.Image
	if err := r.Read(i, nil, &image); err != nil {
		fmt.Fprintf(h, "sample %d is unreadable\n", i)
		return
	}
	h.Write(image.Pix)
}
