package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/profiler/dashboard"
	"github.com/hetero-train/hetero-train/profiler/runs"
)

const long = `Show running and finished runs on a web page.

--input-dir names the folder that contains the runs, or the folder of one run. The command changes no file in it and does not
communicate with the runs. The page lists all runs. For each run, it shows ranks, loss, throughput, step times, shares with the reason
of each decision, lost time, bottlenecks and alerts.

Behind a proxy, no path and no host name is needed if the proxy removes its path from the requests and sends the Host header of the browser
or "localhost". Otherwise set --base-path and dashboard.hosts.

By default, only programs on this machine can read the page. With another --address, a browser must send a token once.
HETERO_DASHBOARD_TOKEN or the file of --token-file contains the token. If neither is set, the command creates a token and prints it.

--check is for the health check of a container: it asks the dashboard of this machine, and fails if there is no answer. It needs the
configuration of the dashboard, or its flags --address, --port, --cert-file and --key-file.

--server.address and --server.port are other names of --address and --port.

Exit codes:
  1    the server failed, or --check got no answer
  2    bad flags or configuration, no folder of runs, or the port is in use
  75   stopped by SIGTERM
  130  stopped by Ctrl-C`

const example = `  hetero-train dashboard
  hetero-train dashboard --input-dir experiments/benchmarks --port 8502
  hetero-train dashboard --address 0.0.0.0 --token-file ~/.hetero-token
  ssh -L 8501:localhost:8501 HOST hetero-train dashboard       show the page of another machine without opening a port`

// memoryLimit is a soft limit for the memory of the process without connections, in bytes. Above it, the garbage
// collector works more often. It leaves more memory for training on the same machine.
const memoryLimit = 48 << 20

// New returns the command that serves the web page about runs.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dashboard",
		Short:   "Show runs on a web page",
		Long:    long,
		Example: example,
		Args:    cli.NoArguments,
	}
	var input string
	var withTraining, check bool
	cmd.Flags().BoolVar(&withTraining, "with-training", false,
		"end at the end of standard input, and wait for the folder")
	cmd.Flags().StringVar(&input, "input-dir", "",
		"`folder` that contains the runs, or the folder of one run (default experiment.output_dir, \"experiments\")")
	a.AddKeyFlag(cmd, "address", "dashboard.address", "string", "address to listen on")
	a.AddKeyFlag(cmd, "port", "dashboard.port", "int", "TCP port; 0: any free port")
	a.AddKeyFlag(cmd, "refresh", "dashboard.refresh_seconds", "int",
		"seconds between two updates of the page; 0: at each change")
	a.AddKeyFlag(cmd, "token-file", "dashboard.token_file", "string", "file with the secret that a browser must send")
	a.AddKeyFlag(cmd, "server.address", "dashboard.address", "string", "same as --address")
	a.AddKeyFlag(cmd, "server.port", "dashboard.port", "int", "same as --port")
	a.AddKeyFlag(cmd, "base-path", "dashboard.base_path", "string",
		"path below which a proxy serves the page, if the proxy does not remove it from the requests")
	a.AddKeyFlag(cmd, "cert-file", "dashboard.cert_file", "string", "certificate of the server, for HTTPS")
	a.AddKeyFlag(cmd, "key-file", "dashboard.key_file", "string", "private key of --cert-file")
	a.AddSwitch(cmd, "insecure", "dashboard.insecure", "let other machines read without a token")
	cmd.Flags().BoolVar(&check, "check", false, "ask the dashboard of this machine whether it answers, and end")
	for _, hidden := range []string{"server.address", "server.port", "with-training"} {
		cmd.Flags().Lookup(hidden).Hidden = true
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		if check {
			return ask(cmd.Context(), cfg)
		}
		if input == "" {
			input = cfg.Experiment.OutputDir
		}
		if !withTraining {
			return serve(cmd.Context(), a, cfg, input, withTraining)
		}
		ctx, cancel := context.WithCancelCause(cmd.Context())
		defer cancel(nil)
		go func() {
			// Copy returns at the end of standard input, or at an error, which has the same meaning.
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel(errTrainingEnded)
		}()
		if err := awaitFolder(ctx, input); err != nil {
			return withoutEnd(err)
		}
		return withoutEnd(serve(ctx, a, cfg, input, withTraining))
	}
	return cmd
}

// errTrainingEnded is the cause of the end of a dashboard that ends together with its training.
var errTrainingEnded = errors.New("the training has ended")

func withoutEnd(err error) error {
	if errors.Is(err, errTrainingEnded) {
		return nil
	}
	return err
}

// awaitFolder waits until a training has created the folder of runs.
func awaitFolder(ctx context.Context, path string) error {
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// serve serves the page until ctx is canceled. If a training run started the dashboard, it writes the output of serve
// to its log. In this case, serve does not print the secret token.
func serve(ctx context.Context, a *cli.App, cfg *config.Config, input string, withTraining bool) error {
	d := &cfg.Dashboard
	folder, err := runs.OpenFolder(input)
	if errors.Is(err, fs.ErrNotExist) {
		return exit.NoRuns("dashboard", input)
	}
	if err != nil {
		return exit.Usagef("dashboard: %w", err)
	}
	defer folder.Close() // no error: the folder was only read
	indexes, unindexed := parts.UserCache("indexes")
	folder.Indexes, folder.Program = indexes, version.Text()
	token, err := process.ReadServerToken("dashboard", d.TokenFile, process.DashboardTokenVariable, a.Env)
	if err != nil {
		return err
	}
	log, err := logs.New(a.Env.Stderr, logs.NewScreen(io.Discard), a.LogOptions(a.LogLevel))
	if err != nil {
		return err
	}
	secure, err := process.ServerTLS("dashboard", d.CertFile, d.KeyFile, a.Env, log)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(d.Address, strconv.Itoa(d.Port)))
	if err != nil {
		return exit.Usagef("dashboard: %w: set another --address or --port", err)
	}
	at := listener.Addr().(*net.TCPAddr)
	loopback := at.IP.IsLoopback()
	made := false
	if !loopback && token == "" && !d.Insecure {
		if withTraining {
			return errors.Join(exit.Usagef("dashboard.address %s: other machines can reach this address: set a token (%s or dashboard.token_file), or allow everyone (dashboard.insecure = true)",
				d.Address, process.DashboardTokenVariable), listener.Close())
		}
		token, made = rand.Text(), true
	}
	if unindexed != nil {
		log.Info("each start of the dashboard reads all records, because there is no folder for their index",
			"error", unindexed)
	}
	server, err := dashboard.New(dashboard.Options{Folder: folder, Token: token, Loopback: loopback, Hosts: d.Hosts,
		BasePath: d.BasePath, TLS: secure, Refresh: time.Duration(d.RefreshSeconds) * time.Second,
		Version: version.Text(), Memory: memoryLimit, Log: log})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	out := a.Env.Stdout
	fmt.Fprintf(out, "dashboard of %s: %s\n", input, pagesOf(at, secure != nil))
	switch {
	case made:
		fmt.Fprintf(out, "token for the page: %s\n", token)
	case token == "" && !loopback:
		a.WarnOf("other machines can read all runs of this folder without a token (dashboard.insecure)")
	}
	if !withTraining {
		fmt.Fprintln(out, "stop with Ctrl-C")
	}
	err = server.Serve(ctx, listener)
	if cause := context.Cause(ctx); cause != nil {
		return cause // the cause is a signal that ended the command
	}
	return exit.With(exit.Unexpected, err)
}

// healthText is the answer of a dashboard to a health check.
const healthText = "ok\n"

// ask fails unless a dashboard answers on the port of this machine.
func ask(ctx context.Context, cfg *config.Config) error {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	host := cfg.Dashboard.Address
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme, transport := "http://", &http.Transport{DisableKeepAlives: true} // no proxy from the environment
	if cfg.Dashboard.CertFile != "" {
		// Do not verify the certificate: it contains only the names that browsers use. The request contains no secret.
		scheme, transport.TLSClientConfig = "https://", &tls.Config{InsecureSkipVerify: true}
	}
	address := scheme + net.JoinHostPort(host, strconv.Itoa(cfg.Dashboard.Port)) + dashboard.HealthPath
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return exit.Usagef("dashboard: --check: %w", err)
	}
	const cure = "--check needs the flags or the configuration of the dashboard: --address, --port, --cert-file, --key-file"
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a dashboard does not redirect health checks
	}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("dashboard: --check: no dashboard answers: %w; %s", err, cure)
	}
	defer answer.Body.Close() // no error: the answer was only read
	body, err := io.ReadAll(io.LimitReader(answer.Body, int64(len(healthText))+1))
	if err != nil {
		return fmt.Errorf("dashboard: --check: GET %s: %w", address, err)
	}
	if answer.StatusCode != http.StatusOK || string(body) != healthText {
		return fmt.Errorf("dashboard: --check: GET %s: got %s and %q, want 200 OK and %q of a dashboard; %s", address,
			answer.Status, body, healthText, cure)
	}
	return nil
}

// pagesOf returns the addresses of the page for browsers.
func pagesOf(at *net.TCPAddr, secure bool) string {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	page := func(host string) string {
		return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(at.Port)) + "/"
	}
	switch name, err := os.Hostname(); {
	case at.IP.IsUnspecified() && err == nil && name != "":
		return page("localhost") + ", from other machines " + page(name) // the server accepts both names
	case at.IP.IsUnspecified() || at.IP.IsLoopback():
		return page("localhost")
	}
	return page(at.IP.String())
}
