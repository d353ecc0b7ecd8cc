package objects

import (
	"fmt"
	"path"
	"strings"
)

// Scheme is the start of the names of all objects.
const Scheme = "s3://"

// Name is the name of an object, or a common prefix of the names of several objects.
type Name struct{ Bucket, Key string }

// String returns the name as users write it.
func (n Name) String() string { return Scheme + n.Bucket + "/" + n.Key }

// Join returns the name of an object below n, as if n were a folder.
func (n Name) Join(elements ...string) Name {
	return Name{n.Bucket, strings.TrimPrefix(path.Join(append([]string{"/", n.Key}, elements...)...), "/")}
}

// Is reports whether a path names an object.
func Is(path string) bool { return strings.HasPrefix(path, Scheme) }

// Parse returns the Name for a path such as s3://bucket/folder/file.tar. The key may be empty.
func Parse(text string) (Name, error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	bucket, key, _ := strings.Cut(rest, "/")
	switch {
	case !ok:
		return Name{}, fmt.Errorf("got %.200q, want s3://BUCKET/KEY", text)
	case strings.ContainsAny(rest, "?#") || strings.Contains(bucket, "@"):
		return Name{}, fmt.Errorf("got %.200q, want s3://BUCKET/KEY without ?, # and @: credentials come from the environment",
			redacted(text))
	case len(bucket) < 3 || len(bucket) > 63 || strings.Trim(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "":
		return Name{}, fmt.Errorf("got %.200q, want a bucket of 3 to 63 small letters, digits, dots and hyphens", text)
	case strings.Contains(key, "//") || strings.Contains("/"+key+"/", "/../") || strings.Contains("/"+key+"/", "/./"):
		return Name{}, fmt.Errorf("got %.200q, want a key without //, . and .. as a part", text)
	}
	return Name{bucket, key}, nil
}

// redacted removes parts that may be secret from a text that is not an object name.
func redacted(text string) string {
	text, _, _ = strings.Cut(text, "?")
	if before, after, ok := strings.Cut(text, "@"); ok && !strings.Contains(strings.TrimPrefix(before, Scheme), "/") {
		return Scheme + "…@" + after
	}
	return text
}
