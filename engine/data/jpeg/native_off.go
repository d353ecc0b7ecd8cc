//go:build !cgo || !linux

package jpeg

import "errors"

// This program cannot open libhetero_jpeg.so, so Go decodes all images.
var errNoLibraries = errors.New(
	"this program was built without cgo, or not for Linux")

type library struct{ path string }

func openLibrary() (*library, error) { return nil, errNoLibraries }

func (*library) name() string                 { return "" }
func (*library) newDecoder() (*native, error) { return nil, errNoLibraries }

type native struct{}

func (*native) close()                           {}
func (*native) decode([]byte, int, []byte) error { return errNoLibraries }

func (*library) resample([]byte, []byte, int, Taps, Taps, []byte) {}
