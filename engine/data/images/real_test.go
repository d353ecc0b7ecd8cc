package images

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// realData returns the path of a file of real data, or skips the test.
func realData(t testing.TB, name string) string {
	t.Helper()
	path := needtest.Data(t, name) // first, so that CI always gives this reason for missing data, even with -short
	needtest.NotShort(t, "reads real data")
	return path
}

// The test reads all images of CIFAR-10, encoded again as JPEG, through the loader. The first epoch decodes the images.
// The second epoch reads them from the cache.
func TestRealCIFAR10(t *testing.T) {
	begun := time.Now()
	s, _, err := open(t, Options{Path: realData(t, "cifar10-jpeg.tar.gz")})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("opened, expanded and indexed in %.2f s", time.Since(begun).Seconds())
	classes := []string{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}
	if !slices.Equal(s.Train.Classes(), classes) || s.Train.Len() != 50_000 || s.Eval.Len() != 10_000 {
		t.Fatalf("%d and %d samples of %q", s.Train.Len(), s.Eval.Len(), s.Train.Classes())
	}
	cached := s.Cached(0)
	l, err := data.NewLoader(data.Options{
		Samples: data.Images{Dataset: cached.Train, Transform: data.Transform{Size: 32}}, Seed: 1, BatchSize: 250})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for epoch := range 2 {
		begun := time.Now()
		var sum, squares [3]float64
		var perClass [10]int
		for range l.BatchesPerEpoch() {
			b, err := l.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, label := range data.Values[int32](b, data.Labels) {
				perClass[label]++
			}
			var s, q [3]uint64
			for i, v := range data.Values[uint8](b, data.Pixels) {
				s[i%3] += uint64(v)
				q[i%3] += uint64(v) * uint64(v)
			}
			for ch := range 3 {
				sum[ch] += float64(s[ch])
				squares[ch] += float64(q[ch])
			}
			b.Release()
		}
		t.Logf("epoch %d: %.0f images/s with their sums", epoch, 50_000/time.Since(begun).Seconds())
		for class, n := range perClass {
			if n != 5000 {
				t.Errorf("epoch %d: %d samples of %s", epoch, n, classes[class])
			}
		}
		// The expected values are those of the official binary files. JPEG compression changes the third decimal place.
		const pixels, tolerance = 50_000 * 32 * 32, 0.004
		for ch := range 3 {
			mean := sum[ch] / pixels
			deviation := math.Sqrt(squares[ch]/pixels - mean*mean)
			want := data.NormalizeCIFAR10
			if math.Abs(mean/255-float64(want.Mean[ch])) > tolerance ||
				math.Abs(deviation/255-float64(want.Std[ch])) > tolerance {
				t.Errorf("epoch %d, channel %d: mean %.4f, deviation %.4f, want %.4f, %.4f",
					epoch, ch, mean/255, deviation/255, want.Mean[ch], want.Std[ch])
			}
		}
	}
}

// BenchmarkRealCIFAR10 measures the loader on real data, first with decoding, then from the cache.
func BenchmarkRealCIFAR10(b *testing.B) {
	s, _, err := open(b, Options{Path: realData(b, "cifar10-jpeg.tar.gz")})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		splits data.Splits
	}{{"decode", s}, {"cached", s.Cached(0)}} {
		b.Run(c.name, func(b *testing.B) {
			const batch = 250
			l, err := data.NewLoader(data.Options{Seed: 1, BatchSize: batch,
				Samples: data.Images{Dataset: c.splits.Train,
					Transform: data.Transform{Crop: data.PadCrop, Size: 32, Pad: 4, Flip: true}}})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			take := func() {
				batch, err := l.Next(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				batch.Release()
			}
			for range l.BatchesPerEpoch() {
				take()
			}
			for b.Loop() {
				take()
			}
			b.ReportMetric(batch*float64(b.N)/b.Elapsed().Seconds(), "images/s")
		})
	}
}
