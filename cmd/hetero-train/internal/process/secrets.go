package process

import (
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/handshake"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/ports"
	"github.com/hetero-train/hetero-train/engine/regular"
)

const mostTokenBytes = 64 << 10

// TokenVariable is the environment variable with the shared secret of the ranks. TokenFileVariable names the file that
// contains this secret.
const (
	TokenVariable     = "HETERO_TOKEN"
	TokenFileVariable = "HETERO_TOKEN_FILE"
)

// Environment variables with the secrets of the dashboard, of the metrics server, and of the receiver of events.
const (
	DashboardTokenVariable = "HETERO_DASHBOARD_TOKEN"
	MetricsTokenVariable   = "HETERO_METRICS_TOKEN"
	WebhookVariable        = "HETERO_NOTIFY_WEBHOOK_SECRET"
)

// LeastTokenBytes is the minimum length of a token that guards a server. An attacker could guess a shorter token.
const LeastTokenBytes = 16

// Credentials identify a process of the run.
type Credentials struct {
	Token        rendezvous.Token        // shared secret of the ranks; "": none
	Certificates *handshake.Certificates // certificates for encrypted connections; nil: none
}

// ReadCredentials reads the secret and the certificates that a configuration names.
func ReadCredentials(p config.Parallel, env session.Environment) (c Credentials, err error) {
	if c.Token, err = ReadToken(p.TokenFile, env); err != nil {
		return c, err
	}
	if err := c.Token.Check(); err != nil {
		return c, exit.With(exit.Usage, err)
	}
	c.Certificates, err = readCertificates(p, env)
	return c, err
}

// ReadToken returns the shared secret of the ranks, or "" if there is none.
func ReadToken(file string, env session.Environment) (rendezvous.Token, error) {
	key := "parallel.token_file"
	if named, _ := env.Lookup(TokenFileVariable); file == "" && named != "" {
		if direct, _ := env.Lookup(TokenVariable); direct != "" {
			return "", exit.Usagef("%s and %s are both set: remove one of them", TokenVariable, TokenFileVariable)
		}
		key, file = TokenFileVariable, named
	}
	token, err := ReadSecret(key, file, TokenVariable, env)
	return rendezvous.Token(token), err
}

// readCertificates reads and verifies the certificate of this machine. It returns nil if the configuration names no
// certificate.
func readCertificates(p config.Parallel, env session.Environment) (*handshake.Certificates, error) {
	if p.CertFile == "" {
		return nil, nil
	}
	authority, err := readPublic("parallel.ca_file", p.CAFile)
	if err != nil {
		return nil, err
	}
	certificate, err := readPublic("parallel.cert_file", p.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := ReadSecret("parallel.key_file", p.KeyFile, "", env)
	if err != nil {
		return nil, err
	}
	c, err := handshake.NewCertificates(authority, certificate, []byte(key))
	if err != nil {
		return nil, exit.Usagef("parallel.ca_file %s, cert_file %s, key_file %s: %w", p.CAFile, p.CertFile, p.KeyFile,
			err)
	}
	if err := handshake.ValidAt(c.Own(), time.Now()); err != nil {
		return nil, exit.Usagef("parallel.cert_file: the certificate in %s %w"+otherCertificate, p.CertFile, err)
	}
	if err := c.Verify(); err != nil {
		return nil, exit.Usagef("parallel.cert_file: %s is not a valid certificate of the authority in %s: %w; make another one with \"hetero-train certs\"",
			p.CertFile, p.CAFile, err)
	}
	return c, nil
}

// otherCertificate is the advice for a certificate that is not valid now.
const otherCertificate = "; make another one with \"hetero-train certs\", or correct the clock"

// readPublic reads a small file without checking who else can read it.
func readPublic(key, file string) ([]byte, error) {
	f, _, err := regular.Open(file)
	if err != nil {
		return nil, exit.Usagef("%s: %w", key, err)
	}
	defer f.Close() // no error: the file was only read
	text, err := io.ReadAll(io.LimitReader(f, mostTokenBytes))
	if err != nil {
		return nil, exit.Usagef("%s: %w", key, err)
	}
	return text, nil
}

// Ports returns the ports on which ranks may accept connections of other ranks.
func Ports(p config.Parallel) ports.Range {
	first, last, _ := config.PortRange(p.Ports) // the configuration is valid
	return ports.Range{First: first, Last: last}
}

// ReadSecret returns the secret in file, the value of a key of the configuration. If file is "", it returns the value
// of the environment variable variable, or "". An empty file is an error, because the user expects that a secret
// protects the program.
func ReadSecret(key, file, variable string, env session.Environment) (string, error) {
	if file == "" {
		text, _ := env.Lookup(variable)
		return strings.TrimSpace(text), nil
	}
	if runtime.GOOS == "windows" {
		return "", unchecked(key, file, variable)
	}
	f, info, err := regular.Open(file)
	if err != nil {
		return "", exit.Usagef("%s: %w", key, err)
	}
	defer f.Close() // no error: the file was only read
	if !private(info) {
		return "", exit.Usagef("%s: other users can read %s (mode %04o, want 0600, or 0440 of a file of root)", key,
			file, info.Mode().Perm())
	}
	if info.Size() > mostTokenBytes {
		return "", exit.Usagef("%s: %s: got %d bytes, want at most %d", key, file, info.Size(), mostTokenBytes)
	}
	text, err := io.ReadAll(io.LimitReader(f, mostTokenBytes))
	if err != nil {
		return "", exit.Usagef("%s: %w", key, err)
	}
	secret := strings.TrimSpace(string(text))
	// content is "token" for the key metrics.token_file and for HETERO_TOKEN_FILE
	content := strings.TrimSuffix(strings.ToLower(key[strings.LastIndexByte(key, '.')+1:]), "_file")
	content = strings.TrimPrefix(content, "hetero_")
	if secret == "" {
		return "", exit.Usagef("%s: %s is empty: write the %s to this file, or remove the setting %s", key, file,
			content, key)
	}
	return secret, nil
}

// ReadServerToken returns the secret that clients of a web server must send, or "" if there is none. The parameter
// table is the server's table in the configuration.
func ReadServerToken(table, file, variable string, env session.Environment) (string, error) {
	token, err := ReadSecret(table+".token_file", file, variable, env)
	if err == nil && token != "" && len(token) < LeastTokenBytes {
		return "", exit.Usagef("%s: the token has %d bytes, want at least %d, for example of \"openssl rand -hex 16\"",
			table, len(token), LeastTokenBytes)
	}
	return token, err
}

// unchecked returns the error for a file on Windows, where the mode of a file does not state who may read it.
func unchecked(key, file, variable string) error {
	remedy := ", and set the environment variable " + variable
	if variable == "" { // a private key cannot be in a variable
		remedy = ". A proxy or a machine with Linux can serve TLS instead"
	}
	return exit.Usagef("%s: on Windows the program cannot check who can read %s: remove the setting%s", key, file,
		remedy)
}

// private reports whether only trusted users can read a file with a secret. This is the owner or, if the file belongs
// to root, also the group of the file. Kubernetes mounts secrets with such a group (mode 0440, group from fsGroup).
func private(info os.FileInfo) bool {
	const (
		others     = 0o007
		groupReads = 0o040
		groupElse  = 0o030
	)
	owned, _ := platform.OwnedByRoot(info)
	mode := info.Mode().Perm()
	return mode&(others|groupElse) == 0 && (mode&groupReads == 0 || owned)
}
