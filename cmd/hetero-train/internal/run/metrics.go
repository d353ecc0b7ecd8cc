package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/profiler/prometheus"
)

// checkMetrics checks table [metrics] on a machine that serves metrics. On other machines, the files that the table
// names need not exist.
func checkMetrics(cfg *config.Config, opts session.Options) error {
	if !cfg.Metrics.ServedBy(opts.Assignment.Rank) { // in a supervisor, Rank is its first rank
		return nil
	}
	_, err := metricsToken(cfg, opts.Env)
	return err
}

// metricsToken checks table [metrics] without opening a port. It returns the secret that scrapers must send, or "".
func metricsToken(cfg *config.Config, env session.Environment) (string, error) {
	c := cfg.Metrics
	token, err := process.ReadServerToken("metrics", c.TokenFile, process.MetricsTokenVariable, env)
	if err != nil {
		return "", err
	}
	err = (&prometheus.ServerOptions{Address: c.Address, Token: token, Insecure: c.Insecure}).CheckAddress()
	if errors.Is(err, prometheus.ErrExposed) {
		err = fmt.Errorf("%w: set metrics.token_file or HETERO_METRICS_TOKEN, use 127.0.0.1, or set metrics.insecure",
			err)
	}
	if err != nil {
		return "", exit.Usagef("metrics.address: %w", err)
	}
	_, err = process.ServerTLS("metrics", c.CertFile, c.KeyFile, env, slog.New(slog.DiscardHandler))
	return token, err
}

// openMetrics starts the server of metrics on the ranks that metrics.ranks selects.
func (tr *training) openMetrics(context.Context) error {
	c := tr.process.Cfg.Metrics
	all := c.Ranks == "all"
	if c.Address == "" || !all && !tr.rank.Team.Leads() {
		return nil
	}
	token, err := metricsToken(tr.process.Cfg, tr.process.Opts.Env)
	if err != nil {
		return err
	}
	kinds := []string{tr.rank.Device.Info().Kind}
	own := 0
	if tr.balancing != nil {
		kinds, own = tr.balancing.Kinds(), tr.rank.Team.Place.Rank
	}
	var ranks []prometheus.Rank
	for rank, kind := range kinds {
		if !all || rank == own {
			ranks = append(ranks, prometheus.Rank{Number: rank, GPU: kind == "cuda", Links: tr.rank.Links[rank]})
		}
	}
	address := c.Address
	if all && tr.rank.Team != nil {
		if address, err = besides(c.Address, tr.rank.Team.Group.Members()[own].LocalRank); err != nil {
			return err
		}
	}
	log := tr.process.Opts.LogOf(logs.ComponentProfiler)
	secure, err := process.ServerTLS("metrics", c.CertFile, c.KeyFile, tr.process.Opts.Env, log)
	if err != nil {
		return err
	}
	exporter := observe.NewExporter(tr.run, ranks)
	server, err := prometheus.Listen(prometheus.ServerOptions{Address: address, Token: token, Insecure: c.Insecure,
		TLS: secure, Metrics: exporter.Metrics})
	if err != nil {
		return exit.Usagef("metrics.address: %w; choose another port, or port 0", err)
	}
	tr.process.Later(server.Close)
	tr.exporter = exporter
	tr.balancing.Watch(exporter.Decided)
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	log.Info(fmt.Sprintf("metrics for Prometheus at %s://%s/metrics", scheme, server.Address()), "ranks", len(ranks))
	if c.Insecure && token == "" {
		log.Warn("metrics.insecure: every program that can connect to this port can read the metrics", "address",
			server.Address())
	}
	return nil
}

// besides returns the address of a rank's own server. Its port is the port of address plus local, the local rank.
func besides(address string, local int) (string, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", exit.Usagef("metrics.address: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port == 0 {
		return address, nil // every rank gets a free port
	}
	if port += max(local, 0); port > 65535 {
		return "", exit.Usagef("metrics.address: got port %s and rank %d of this machine, want a sum of at most 65535",
			text, local)
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}
