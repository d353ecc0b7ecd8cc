//go:build !cgo

package jpeg

import "errors"

// Without cgo, libhetero_jpeg.so cannot be opened, so image/jpeg decodes all images.

type library struct{ path string }

func openLibrary() (*library, error) { return nil, errors.New("built without cgo") }

func (*library) name() string                 { return "" }
func (*library) newDecoder() (*native, error) { return nil, errors.New("built without cgo") }

type native struct{}

func (*native) close()                           {}
func (*native) header([]byte) (Header, error)    { return Header{}, errors.New("built without cgo") }
func (*native) decode([]byte, int, []byte) error { return errors.New("built without cgo") }

func (*library) resample([]byte, []byte, int, Taps, Taps, []byte) {}
