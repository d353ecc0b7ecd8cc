package parts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hetero-train/hetero-train/engine/data"
)

// identitySamples is the number of samples that a fingerprint covers in each part of the data. It covers all samples of
// a smaller part. A larger number delays the start of a run. A smaller number lets more changes of the data remain
// undetected. Reading 256 samples takes well under a second from a local disk.
const identitySamples = 256

// Fingerprint describes the content of a data set. Checkpoints contain it, so that a later process can describe how the
// data have changed.
type Fingerprint struct {
	Digest string     `json:"-"` // digest of both parts; "" if the settings alone determine the data
	Train  *PartPrint `json:"train,omitempty"`
	Eval   *PartPrint `json:"eval,omitempty"` // nil without an evaluation part
	// LeftOut has the paths of up to mostShown damaged parts that the run left out.
	LeftOut []string `json:"left_out,omitempty"`
}

// PartPrint describes the content of a part of a data set.
type PartPrint struct {
	Unit  string `json:"unit"`  // "samples" or "tokens"
	Units int64  `json:"units"` // number of samples or tokens
	Rest  string `json:"rest"`  // digest of the content that Sums does not cover, for example of the labels
	// Sums are the hashes (data.SumOf, 8 bytes each) of up to identitySamples evenly spaced samples. The hash of a
	// sample that cannot be read is 0. Parts of tokens have no Sums.
	Sums []byte `json:"sums,omitempty"`
	// Bad are the positions in Sums of the samples that cannot be decoded, in ascending order.
	Bad []int `json:"unreadable,omitempty"`
}

// Known returns the hashes in Sums, without those of samples that cannot be read.
func (p *PartPrint) Known() map[uint64]bool {
	known := map[uint64]bool{}
	for k := range p.count() {
		if sum := p.sum(k); sum != 0 {
			known[sum] = true
		}
	}
	return known
}

func (p *PartPrint) count() int { return len(p.Sums) / 8 }

func (p *PartPrint) sum(k int) uint64 { return binary.LittleEndian.Uint64(p.Sums[8*k:]) }

// bad reports whether the sample of the k-th hash could not be read or decoded.
func (p *PartPrint) bad(k int) bool {
	_, found := slices.BinarySearch(p.Bad, k)
	return found || p.sum(k) == 0
}

func (p *PartPrint) addSum(sum uint64) { p.Sums = binary.LittleEndian.AppendUint64(p.Sums, sum) }

// String returns a digest of the part.
func (p *PartPrint) String() string {
	if p == nil {
		return "none"
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d %q %x", p.Units, p.Rest, p.Sums)
	return digest(h.Sum(nil))
}

// sampleAt returns the index of the k-th of n evenly spaced samples. The parameter samples is the number of samples in
// the part.
func sampleAt(k, n int, samples int64) int { return int(int64(k) * samples / int64(n)) }

// printPart returns the fingerprint of a part. For the digest of the data set, it writes to h the class names, all
// labels, and up to identitySamples evenly spaced samples.
func printPart(ctx context.Context, h hash.Hash, d data.Dataset) (*PartPrint, error) {
	p, rest := &PartPrint{Unit: "samples", Units: int64(d.Len())}, sha256.New()
	both := io.MultiWriter(h, rest)
	fmt.Fprintf(both, "%d %q\n", d.Len(), d.Classes())
	labels := make([]byte, 0, 4096)
	for i := range d.Len() {
		if labels = strconv.AppendInt(labels, int64(d.Label(i)), 10); len(labels) > 4000 {
			both.Write(labels)
			labels = labels[:0]
		}
		labels = append(labels, ' ')
	}
	both.Write(labels)
	p.Rest = digest(rest.Sum(nil))
	err := readSamples(ctx, d, min(d.Len(), identitySamples), func(k, i int, r *seen) {
		sum := uint64(0)
		if r.contents == nil {
			fmt.Fprintf(h, "sample %d is unreadable\n", i)
		} else {
			h.Write(r.contents)
			sum = data.SumOf(r.contents)
		}
		p.addSum(sum)
		if r.faulty {
			p.Bad = append(p.Bad, k)
		}
	})
	return p, err
}

// smallest is a data.Sizer with which decoders decode the smallest version of an image that they can decode fast.
type smallest struct{}

// MinSize implements data.Sizer.
func (smallest) MinSize(int, int) (width, height int) { return 1, 1 }

// seen is the result of reading a sample.
type seen struct {
	contents []byte // stored bytes if the Reader provides them, otherwise pixels; nil: unreadable
	faulty   bool   // the sample cannot be decoded
	err      error  // lack of resources or failed request: another read might succeed
}

// readSamples reads and decodes n evenly spaced samples, and calls use for each of them in their order. The argument k
// counts the calls from 0, and i is the index of the sample. Several Readers read in parallel, and each keeps its
// sample until its turn. The memory is therefore that of one sample for each Reader, as in a Loader.
func readSamples(ctx context.Context, d data.Dataset, n int, use func(k, i int, r *seen)) error {
	var readers []data.Reader
	defer func() {
		for _, r := range readers {
			r.Close() // no error: it was only read
		}
	}()
	for range min(runtime.GOMAXPROCS(0), 8, n) {
		r, err := d.NewReader()
		if err != nil {
			return err
		}
		readers = append(readers, r)
	}
	var mu sync.Mutex
	changed := sync.NewCond(&mu)
	begun, used, failed := 0, 0, error(nil) // used: number of calls of use
	var all sync.WaitGroup
	for _, r := range readers {
		all.Go(func() {
			var image data.Image
			mu.Lock()
			defer mu.Unlock()
			for begun < n && failed == nil {
				k := begun
				begun++
				mu.Unlock()
				i := sampleAt(k, n, int64(d.Len()))
				s := readSample(r, i, &image)
				mu.Lock()
				for used < k && failed == nil {
					changed.Wait()
				}
				if failed == nil {
					if failed = cmp.Or(ctx.Err(), s.err); failed == nil {
						use(k, i, &s)
						used++
					}
				}
				changed.Broadcast()
			}
		})
	}
	all.Wait()
	return failed
}

// readSample reads and decodes sample i. The contents are valid until the next read of r. It reads the sample a second
// time only if the data set provides the stored bytes in no other way.
func readSample(r data.Reader, i int, image *data.Image) (s seen) {
	encoded, isEncoded := r.(data.Encoded)
	image.Contents = nil
	var sizer data.Sizer // nil: decode all pixels, because they are compared
	if isEncoded {
		sizer = smallest{}
	}
	err := decodeSample(r, i, sizer, image)
	if data.Exhausted(err) {
		return seen{err: err}
	}
	s.faulty = err != nil
	if isEncoded {
		contents := image.Contents
		if contents == nil {
			var missing error
			if contents, missing = encoded.Contents(i); data.Exhausted(missing) {
				return seen{err: missing}
			} else if missing != nil {
				contents = nil
			}
		}
		if contents != nil {
			s.contents = contents
			return s
		}
		if err == nil {
			err = decodeSample(r, i, nil, image)
		}
	}
	if data.Exhausted(err) {
		return seen{err: err}
	} else if err == nil {
		s.contents = image.Pix
	}
	return s
}

// decodeSample decodes sample i. It converts a panic to an error, because a decoder of the standard library may panic
// on a crafted file.
func decodeSample(r data.Reader, i int, sizer data.Sizer, image *data.Image) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoder panicked: %v", p)
		}
	}()
	return r.Read(i, sizer, image)
}

// leftOutBefore returns a text that names the parts that the earlier run left out as damaged but this run reads.
func leftOutBefore(was, now Fingerprint) string {
	var repaired []string
	for _, path := range was.LeftOut {
		if !slices.Contains(now.LeftOut, path) {
			repaired = append(repaired, strconv.Quote(path))
		}
	}
	if len(repaired) == 0 {
		return ""
	}
	return "; damaged when the run was trained, and not any more: " + strings.Join(repaired, ", ")
}

func difference(part string, was, now *PartPrint, name func(i int) string) string {
	unit := func(p *PartPrint) string { return fmt.Sprintf("%d %s %s", p.Units, part, p.Unit) }
	switch {
	case was == nil && now == nil:
		return ""
	case was == nil:
		return fmt.Sprintf("no %s part, now %s", part, unit(now))
	case now == nil:
		return fmt.Sprintf("%s, now no %s part", unit(was), part)
	case was.Units != now.Units || was.Unit != now.Unit:
		return unit(was) + ", now " + unit(now)
	}
	first, differing, n := -1, 0, min(was.count(), now.count())
	repaired, damaged := 0, 0
	for k := range n {
		if was.sum(k) == now.sum(k) {
			continue
		}
		if differing++; first < 0 {
			first = k
		}
		switch {
		case was.bad(k) && !now.bad(k):
			repaired++
		case now.bad(k) && !was.bad(k):
			damaged++
		}
	}
	more := ""
	if repaired > 0 {
		more += fmt.Sprintf("; %d could not be read before", repaired)
	}
	if damaged > 0 {
		more += fmt.Sprintf("; %d cannot be read now", damaged)
	}
	switch {
	case first >= 0:
		return fmt.Sprintf("the content of %s differs (%d of %d compared %s samples differ%s)",
			name(sampleAt(first, n, now.Units)), differing, n, part, more)
	case was.Rest != now.Rest && n > 0:
		return fmt.Sprintf("the classes, the labels or the content of other %s samples differ", part)
	case was.Rest != now.Rest:
		return fmt.Sprintf("the content of the %s %s differs", part, now.Unit)
	}
	return ""
}

func digest(sum []byte) string { return "content " + hex.EncodeToString(sum[:8]) }

// mostShown is the maximum number of damaged parts that a list names.
const mostShown = 10
