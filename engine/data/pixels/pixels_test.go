package pixels

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// golden contains the results of torchvision for one image (scripts/augment_goldens.py).
type golden struct {
	Width, Height int
	Images        map[string]string
	Cases         []struct {
		Image, Op string
		Value     float64
		Want      string
	}
}

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// perform applies the operation that has the name op in the golden file.
func perform(t *testing.T, op string, value float64, pix []byte, width, height int) []byte {
	t.Helper()
	out := make([]byte, len(pix))
	affine := func(m Affine) []byte { m.Apply(out, pix, width, height); return out }
	switch op {
	case "brightness":
		Brightness(pix, value)
	case "contrast":
		Contrast(pix, value)
	case "saturation":
		Saturation(pix, value)
	case "hue":
		Hue(pix, value)
	case "posterize":
		Posterize(pix, int(value))
	case "solarize":
		Solarize(pix, value)
	case "autocontrast":
		AutoContrast(pix)
	case "equalize":
		Equalize(pix)
	case "sharpness":
		Sharpness(out, pix, width, value)
		return out
	case "ShearX":
		return affine(ShearX(value))
	case "ShearY":
		return affine(ShearY(value))
	case "TranslateX":
		return affine(Translate(int(value), 0))
	case "TranslateY":
		return affine(Translate(0, int(value)))
	case "Rotate":
		return affine(Rotate(value, width, height))
	default:
		t.Fatalf("no operation %q", op)
	}
	return pix
}

// The tolerance is zero, because this package performs the same operations as torchvision, in the same order.
func TestPixelsAreThoseOfTorchvision(t *testing.T) {
	text, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Cases) < 100 {
		t.Fatalf("%d cases", len(g.Cases))
	}
	for _, c := range g.Cases {
		t.Run(fmt.Sprintf("%s of %s by %g", c.Op, c.Image, c.Value), func(t *testing.T) {
			want := decoded(t, c.Want)
			got := perform(t, c.Op, c.Value, decoded(t, g.Images[c.Image]), g.Width, g.Height)
			differ, first := 0, -1
			for i := range want {
				if got[i] != want[i] {
					if differ++; first < 0 {
						first = i
					}
				}
			}
			if differ > 0 {
				t.Errorf("%d of %d bytes differ, first at %d: got %d, want %d", differ, len(want), first, got[first],
					want[first])
			}
		})
	}
}
