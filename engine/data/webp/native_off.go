//go:build !cgo || !linux

package webp

import "errors"

// This program cannot open libwebp, so Go decodes all images.
var errNoLibraries = errors.New("this program was built without cgo, or not for Linux")

type library struct {
	version int
	path    string
}

func openLibrary() (*library, error) { return nil, errNoLibraries }

func (*library) decode([]byte, []byte, int) bool { return false }
