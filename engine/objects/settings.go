package objects

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// mostInFlight limits the number of requests that a Client has in flight. A larger number hides more latency, but
	// needs more connections.
	mostInFlight = 64
	// mostTries is the number of times that a request is tried.
	mostTries = 8
	// firstWait is the wait before the second try. Each wait is twice the previous one, up to longestWait; half of it
	// is random, so that ranks that failed together do not retry together.
	firstWait   = 200 * time.Millisecond
	longestWait = 5 * time.Second
	// answerTime limits the time to the first byte of an answer. The constant slowest is the rate in bytes per second
	// below which a transfer counts as stuck.
	answerTime = 30 * time.Second
	slowest    = 64 << 10
	// connectTime limits the time to a connection.
	connectTime = 10 * time.Second
	// completeTime is the same as answerTime for the request that joins the parts of an object. Some servers copy the
	// parts before they answer, which takes minutes for large objects.
	completeTime = 10 * time.Minute
	// pageKeys is the number of names in a page of a list. S3 permits 1000.
	pageKeys = 1000
)

// settings are the settings of the environment.
type settings struct {
	endpoint           string // URL; "": AWS
	region             string
	key, secret, token string
	unsigned           bool // send no credentials
	machine            bool // ask the machine for the credentials of its role
	role               string
}

// roleVariables are the environment variables that select credentials of a role.
var roleVariables = []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	"AWS_CONTAINER_CREDENTIALS_FULL_URI"}

func settingsOf(env func(string) string) (s settings, err error) {
	first := func(names ...string) string {
		for _, name := range names {
			if value := env(name); value != "" {
				return value
			}
		}
		return ""
	}
	on := func(name string) bool {
		value := strings.ToLower(env(name))
		return value == "true" || value == "yes" || value == "1"
	}
	s = settings{endpoint: first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), region: first("AWS_REGION",
		"AWS_DEFAULT_REGION"), key: env("AWS_ACCESS_KEY_ID"), secret: env("AWS_SECRET_ACCESS_KEY"),
		token: env("AWS_SESSION_TOKEN"), unsigned: on("AWS_NO_SIGN_REQUEST"), role: first(roleVariables...)}
	s.machine = !on("AWS_EC2_METADATA_DISABLED")
	switch {
	case s.unsigned:
		return s, nil
	case (s.key == "") != (s.secret == ""):
		return s, errors.New("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: one of them is set, want both or none")
	case s.key == "" && s.role == "" && !s.machine:
		return s, errors.New("there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_NO_SIGN_REQUEST=true for a public bucket")
	}
	return s, nil
}

// server returns the host of the endpoint.
func (s settings) server() (host string, secure bool, err error) {
	if s.endpoint == "" {
		return "s3.amazonaws.com", true, nil
	}
	u, err := url.Parse(s.endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" ||
		u.User != nil || u.RawQuery != "" {
		return "", false, errors.New("AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL: want the URL of a server, such as https://storage.example:9000")
	}
	return u.Host, u.Scheme == "https", nil
}

func (s settings) credentials() *credentials.Credentials {
	switch {
	case s.unsigned:
		return credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	case s.key != "":
		return credentials.NewStaticV4(s.key, s.secret, s.token)
	}
	// The timeout is short, because the services that give credentials are near, and a machine outside a cloud has
	// none.
	return credentials.New(&credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second,
		Transport: &http.Transport{Proxy: nil}, CheckRedirect: noRedirect}})
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

var shared struct {
	sync.Mutex
	settings settings
	client   *Client
}

// Shared returns the client of this process for the settings of its environment.
func Shared() (*Client, error) {
	s, err := settingsOf(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("connect to S3: %w", err)
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.client == nil || shared.settings != s {
		client, err := newClient(s)
		if err != nil {
			return nil, fmt.Errorf("connect to S3: %w", err)
		}
		shared.settings, shared.client = s, client
	}
	return shared.client, nil
}

// Used returns the traffic of the client of this process. The result used is false if the process has no client.
func Used() (t Traffic, used bool) {
	shared.Lock()
	defer shared.Unlock()
	if shared.client == nil {
		return Traffic{}, false
	}
	return shared.client.Traffic(), true
}

func newClient(s settings) (*Client, error) {
	host, secure, err := s.server()
	if err != nil {
		return nil, err
	}
	if s.region == "" && s.endpoint != "" {
		s.region = "us-east-1" // most servers other than AWS use this region
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: connectTime, KeepAlive: 15 * time.Second}).DialContext,
		MaxIdleConns:          mostInFlight,
		MaxIdleConnsPerHost:   mostInFlight,
		IdleConnTimeout:       time.Minute,
		TLSHandshakeTimeout:   connectTime,
		ResponseHeaderTimeout: answerTime,
		DisableCompression:    true, // the bytes of an object are those that were stored
	}
	c := &Client{settings: s, host: host, wait: firstWait, quiet: quiet, born: time.Now(),
		slots: make(chan struct{}, mostInFlight)}
	completing := transport.Clone()
	completing.ResponseHeaderTimeout = completeTime
	client, err := minio.New(host, &minio.Options{Creds: s.credentials(), Secure: secure, Region: s.region,
		Transport: counting{transport, completing, c}, MaxRetries: 1})
	if err != nil {
		return nil, err
	}
	client.SetAppInfo("hetero-train", "1")
	c.core = minio.Core{Client: client}
	return c, nil
}
