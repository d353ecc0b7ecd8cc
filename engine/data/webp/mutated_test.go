package webp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

var errLarge = errors.New("more than a megapixel")

// alone decodes with libwebp only. If libwebp refuses an image, Decode would use Go and hide this. routed is false if
// Decode does not use libwebp for this image.
func alone(d *Decoder, contents []byte) (routed, ok bool) {
	f, err := Parse(contents)
	if err != nil || !f.suitsLibrary() {
		return false, false
	}
	width, height, err := f.size()
	if err != nil || width < 1 || height < 1 || height > 1<<20/width {
		return false, false
	}
	return true, d.lib.decode(f.pixels, make([]byte, 3*width*height), 3*width)
}

// mutate changes an image at up to 6 positions. It changes bits and bytes, and repeats, removes or overwrites ranges.
// The container usually remains valid, so that the change reaches the decoders.
func mutate(random *rand.Rand, contents []byte) []byte {
	b := bytes.Clone(contents)
	f, err := Parse(b)
	if err != nil {
		return b
	}
	from := bytes.Index(b, f.pixels)
	last := from+len(f.pixels)+len(f.pixels)%2 == len(b) // the file ends with the image
	for range 1 + random.IntN(6) {
		if len(b)-from < 12 {
			break
		}
		at := from + random.IntN(len(b)-from)
		if random.IntN(2) == 0 {
			at = from + random.IntN(min(len(b)-from, 64)) // within the headers
		}
		n := min(1+random.IntN(20), len(b)-at)
		switch random.IntN(6) {
		case 0, 1:
			b[at] ^= 1 << random.IntN(8)
		case 2:
			b[at] = byte(random.IntN(256))
		case 3:
			copy(b[at:at+n], b[from+random.IntN(len(b)-from):])
		case 4:
			if last {
				b = append(b[:at], b[at+n:]...)
			}
		case 5:
			if last {
				b = append(b[:at+n], append(bytes.Clone(b[at:at+n]), b[at+n:]...)...)
			}
		}
	}
	if last {
		if len(b)%2 == 1 {
			b = append(b, 0)
		}
		binary.LittleEndian.PutUint32(b[from-4:], uint32(len(b)-from))
		binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-8))
	}
	return b
}

// TestMutatedImagesAreDecodedOrRefused decodes 1,500 mutated images. With HETERO_HOSTILE=1 it continues for five
// minutes (row S9 of docs/reliability.md). Of the images that Go accepts, libwebp must accept almost all, with nearly
// always the same pixels.
func TestMutatedImagesAreDecodedOrRefused(t *testing.T) {
	const seed = 4
	random := rand.New(rand.NewPCG(seed, 0))
	known, all := decoders(t), images(t)
	names := slices.Sorted(maps.Keys(all))
	trials, until := 1500, time.Now().Add(time.Hour)
	if needtest.Hostile.On() {
		trials, until = 1<<30, time.Now().Add(5*time.Minute)
	}
	var done, decoded, otherPixels, onlyNative [2]int // numbers of lossy and lossless images
	var routed, refused [2]int                        // of the images that Go decodes: for libwebp; refused by it
	for trial := 0; trial < trials && time.Now().Before(until); trial++ {
		name := names[random.IntN(len(names))]
		contents := mutate(random, all[name])
		kind := 0
		if f, err := Parse(contents); err == nil && f.lossless {
			kind = 1
		}
		done[kind]++
		pix, width, height, err := decode(known["Go"], contents)
		if err == nil {
			if decoded[kind]++; len(pix) != 3*width*height || width < 1 || height < 1 {
				t.Fatalf("seed %d, image %d of %s: %d x %d pixels in %d bytes", seed, trial, name, width, height,
					len(pix))
			}
		}
		d := known["libwebp"]
		if d == nil {
			continue
		}
		if suits, ok := alone(d, contents); err == nil && suits {
			if routed[kind]++; !ok {
				refused[kind]++
			}
		}
		other, _, _, nativeErr := decode(d, contents)
		switch {
		case err == nil && nativeErr != nil:
			t.Errorf("seed %d, image %d of %s: only libwebp refuses it: %v", seed, trial, name, nativeErr)
		case err != nil && nativeErr == nil:
			if onlyNative[kind]++; kind == 0 {
				t.Errorf("seed %d, image %d of %s: only Go refuses it: %v", seed, trial, name, err)
			}
		case err == nil && !bytes.Equal(pix, other):
			otherPixels[kind]++
		}
	}
	t.Logf("%d lossy images, %d decoded, %d with other pixels; %d lossless images, %d decoded, %d with other pixels, %d that only libwebp accepts",
		done[0], decoded[0], otherPixels[0], done[1], decoded[1], otherPixels[1], onlyNative[1])
	t.Logf("of the decoded images, libwebp may decode %d lossy and %d lossless ones, and refuses %d and %d", routed[0],
		routed[1], refused[0], refused[1])
	for kind, n := range decoded {
		if known["libwebp"] != nil && (routed[kind] < n/2 || refused[kind] > max(routed[kind]/50, 1)) {
			t.Errorf("kind %d: of %d images that Go decodes, libwebp may decode %d and refuses %d, want at most %d",
				kind, n, routed[kind], refused[kind], routed[kind]/50)
		}
		if n < done[kind]/20 {
			t.Errorf("kind %d: only %d of %d were decoded: mutations are too harsh to test the decoders", kind, n,
				done[kind])
		}
		if runtime.GOARCH == "amd64" && otherPixels[kind]+onlyNative[kind] > max(done[kind]/50, 1) {
			t.Errorf("kind %d: of %d images, %d have other pixels and only libwebp accepts %d, want at most %d", kind,
				done[kind], otherPixels[kind], onlyNative[kind], done[kind]/50)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, contents := range images(f) {
		f.Add(contents)
	}
	known := decoders(f)
	f.Fuzz(func(t *testing.T, contents []byte) {
		if !Is(contents) {
			return
		}
		file, err := Parse(contents)
		if err != nil {
			return
		}
		pix, width, height, err := decode(known["Go"], contents)
		if err == nil && len(pix) != 3*width*height {
			t.Fatalf("%d x %d pixels in %d bytes", width, height, len(pix))
		}
		if d := known["libwebp"]; d != nil {
			if _, _, _, nativeErr := decode(d, contents); (err == nil) != (nativeErr == nil) &&
				(!file.lossless || nativeErr != nil) {
				t.Fatalf("Go: %v, libwebp: %v", err, nativeErr)
			}
		}
	})
}
