package webdataset

import (
	"os"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// The contents of an image must determine its format. Images with the usual extensions must have precedence over those
// with extensions that masks and depth images use.
func TestFormatsOfImagesInShards(t *testing.T) {
	const folder = "../images/testdata/formats/"
	read := func(name string) string {
		t.Helper()
		contents, err := os.ReadFile(folder + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(contents)
	}
	dir := t.TempDir()
	write(t, dir, "a.tar", tarOf(t, []file{
		{"0.webp", read("lossy.webp")}, {"0.cls", "0"},
		{"1.jpg", read("lossy.webp")}, {"1.cls", "1"}, // a WebP image with the extension of JPEG
		{"2.tif", read("grey.tiff")}, {"2.jpg", read("lossy.webp")}, {"2.cls", "0"},
		{"3.png", read("lossy.webp")}, {"3.pgm", read("grey.pgm")}, {"3.cls", "1"},
		{"4.gif", read("rgb.gif")}, {"4.cls", "0"},
	}))
	s, err := quiet(t, Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Train.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, golden := range []string{"lossy.webp", "lossy.webp", "lossy.webp", "lossy.webp", "rgb.gif"} {
		var img data.Image
		if err := r.Read(i, nil, &img); err != nil || string(img.Pix) != read(golden+".rgb") {
			t.Errorf("sample %d: %v, or pixels differ from those of %s", i, err, golden)
		}
	}
	write(t, dir, "b.tar", tarOf(t, []file{{"5.jpg", picture(1)}, {"5.png", picture(2)}, {"5.cls", "1"}}))
	if _, err := quiet(t, Options{Path: dir + "/b.tar"}); err == nil {
		t.Error("two usual images of one sample were accepted")
	}
}
