package dashboard

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// bundle contains the files of the user interface. Each file is compressed.
//
//go:embed ui/bundle/*.gz
var bundle embed.FS

// types contains the content types of the files, by extension.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// staticFile is a file of the user interface.
type staticFile struct {
	kind          string
	plain, packed []byte
}

// readBundle returns the handlers of the files by path. The path of index.html is "/{$}", which matches only "/".
func readBundle() (map[string]http.Handler, error) {
	entries, err := bundle.ReadDir("ui/bundle")
	if err != nil {
		return nil, err
	}
	files := map[string]http.Handler{}
	for _, e := range entries {
		packed, err := bundle.ReadFile("ui/bundle/" + e.Name())
		if err != nil {
			return nil, err
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("user interface: %s: %w", e.Name(), err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			return nil, fmt.Errorf("user interface: %s: %w", e.Name(), err)
		}
		name := strings.TrimSuffix(e.Name(), ".gz")
		f := &staticFile{kind: types[path.Ext(name)], plain: plain, packed: packed}
		if f.kind == "" {
			return nil, fmt.Errorf("user interface: %s: unknown kind of file", e.Name())
		}
		if name == "index.html" {
			files["/{$}"] = f
			continue
		}
		files["/"+name] = f
	}
	return files, nil
}

// ServeHTTP implements http.Handler.
func (f *staticFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	body := f.plain
	if acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = f.packed
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client has disconnected
}
