package config

import (
	"fmt"
	"net"
	"regexp"
	"strings"
)

// place checks a text that names a location: a file, a folder, objects of S3, a server or a host.
type place func(text string) error

// Path marks a key whose value is the path of a file or folder.
func (k Key) Path() Key { k.place, k.isPath = CheckPath, true; return k }

// PathOrObjects marks a key whose value is the path of a file or folder, or names objects of S3.
func (k Key) PathOrObjects() Key { k.place, k.isPath = CheckPathOrObjects, true; return k }

// Objects marks a key whose value names a folder of objects of S3.
func (k Key) Objects() Key { k.place = checkObjects; return k }

// CheckPathOrObjects is CheckPath for a text that may also name objects of S3.
func CheckPathOrObjects(text string) error {
	for part := range strings.SplitSeq(text, "::") {
		check := CheckPath
		if hasScheme(part) {
			check = checkObjects
		}
		if err := check(part); err != nil {
			return err
		}
	}
	return nil
}

// hasScheme reports whether a text names objects of S3, in small or capital letters.
func hasScheme(text string) bool { return len(text) >= 5 && strings.EqualFold(text[:5], "s3://") }

// checkObjects returns an error if text does not name objects of S3. Credentials and servers come from the environment.
func checkObjects(text string) error {
	rest, ok := strings.CutPrefix(text, "s3://")
	bucket, _, _ := strings.Cut(rest, "/")
	if text == "" {
		return nil
	}
	if !ok && hasScheme(text) {
		return fmt.Errorf("got %s, want small letters: s3://", quote(withoutSecrets(text)))
	}
	if !ok || bucket == "" || strings.ContainsAny(bucket, "@:?#") || strings.ContainsAny(rest, "?#") {
		return fmt.Errorf("got %s, want s3://BUCKET/FOLDER without a server, a user and ?: they come from the environment (AWS_ENDPOINT_URL_S3, AWS_ACCESS_KEY_ID)",
			quote(withoutSecrets(text)))
	}
	return nil
}

// withoutSecrets removes a user and a password from a URL, and the query of a pre-signed URL, which is a credential.
func withoutSecrets(text string) string {
	if at := strings.IndexAny(text, "?#"); at >= 0 {
		text = text[:at] + "…"
	}
	return withoutUser(text)
}

// withoutUser removes a user and a password from a URL.
func withoutUser(text string) string {
	scheme, rest, isURL := strings.Cut(text, "://")
	if at := strings.LastIndexByte(rest, '@'); isURL && at >= 0 {
		return scheme + "://…" + rest[at:]
	}
	return text
}

// PathOrServer marks a key whose value is a folder or the URL of a server. The parameter example is the URL of a usual
// server.
func (k Key) PathOrServer(example string) Key {
	k.place = func(text string) error { return CheckPathOrServer(text, example) }
	return k
}

// Host marks a key whose value is a host name or an IP address. The parameter portKey is the full name of the key with
// the port.
func (k Key) Host(portKey string) Key {
	k.place = func(text string) error { return checkHost(text, portKey) }
	return k
}

// CheckPath returns an error if text is a URL, or begins with ~, which only a shell expands. Such a text would name a
// folder "s3:" or "~" in the working folder. Several paths may be joined by "::".
func CheckPath(text string) error {
	for part := range strings.SplitSeq(text, "::") {
		scheme, rest, isURL := strings.Cut(part, "://")
		switch {
		case isURL && scheme == "file":
			return fmt.Errorf("a path cannot be a URL (got %s, want %s)", quote(part), quote(rest))
		case isURL && scheme != "":
			return fmt.Errorf(
				"a path cannot be a URL (got %s, want a path on this machine: mount the storage, or copy the files)",
				quote(withoutSecrets(part)))
		case strings.HasPrefix(part, "~"):
			return fmt.Errorf("only a shell replaces ~ (got %s, want the full path, or %s for a folder of this name)",
				quote(part), quote("./"+part))
		}
	}
	return nil
}

// hostAndPort matches a host with a port and no scheme: localhost:5000, [::1]:5000, host.example:80/path.
var hostAndPort = regexp.MustCompile(`^(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9][A-Za-z0-9._-]*):[0-9]{1,5}(/.*)?$`)

// hostName matches the name of a host without a port: localhost, mlflow.example.com.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?$`)

// brokenScheme matches an address whose scheme lacks a slash or a colon: https:/host, http//host.
var brokenScheme = regexp.MustCompile(`^(?i)https?(:/[^/]|:[^/]|//)`)

// usualFolder is the folder that MLflow uses by default.
const usualFolder = "mlruns"

// CheckPathOrServer returns an error if text is neither a path nor a URL with scheme http or https. It refuses an
// address without a scheme, because the address could also be the name of a folder.
func CheckPathOrServer(text, example string) error {
	scheme, _, isURL := strings.Cut(text, "://")
	switch bare := strings.Trim(text, "[]"); {
	case isURL && (scheme == "http" || scheme == "https"):
		return nil
	case isURL || brokenScheme.MatchString(text):
		return fmt.Errorf("got %s, want the address of a server such as %s, or a folder", quote(shorten(text)), example)
	case hostAndPort.MatchString(text) || text == "localhost" || net.ParseIP(bare) != nil:
		return serverOrFolder(text)
	}
	return CheckPath(text)
}

// CheckBareName returns an error if text is a name without a slash, such as mlflow.example.com, which may be a server
// or a folder. It makes an exception for usualFolder. CheckPathOrServer accepts these names, because the stored
// settings of old runs contain them.
func CheckBareName(text string) error {
	if hostName.MatchString(text) && text != usualFolder {
		return serverOrFolder(text)
	}
	return nil
}

func serverOrFolder(text string) error {
	return fmt.Errorf("may be a server or a folder (got %s, want %s for the server, or %s for the folder)", quote(text),
		quote("http://"+text), quote("./"+text))
}

func checkHost(text, portKey string) error {
	host := text
	if _, rest, isURL := strings.Cut(text, "://"); isURL {
		host = strings.TrimRight(rest, "/")
	}
	name, port, err := net.SplitHostPort(host)
	switch {
	case err == nil && port != "":
		return fmt.Errorf("contains a port (got %s, want %s here and %s in %s)", quote(text), quote(name), port,
			portKey)
	case host != text:
		return fmt.Errorf("is a URL (got %s, want %s)", quote(text), quote(host))
	case strings.ContainsAny(text, "/ "):
		return fmt.Errorf("is not a host (got %s, want a host name or an IP address)", quote(text))
	}
	return nil
}
