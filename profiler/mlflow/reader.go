package mlflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of a reader.
const (
	readTimeout    = 30 * time.Second // of one request
	mostReadReply  = 64 << 20         // bytes of a reply
	historyPage    = 10_000           // points of a page
	mostEmptyPages = 100              // pages of a search without a run
)

// ErrNotFound means that a server does not have a run or an experiment.
var ErrNotFound = errors.New("not found")

// ErrAddress means that a text is not the address of a run.
var ErrAddress = errors.New("want the address of a run's page in MLflow (http://HOST:5000/#/experiments/ID/runs/ID), or http://HOST:5000#EXPERIMENT/RUN with the names of both")

// Remote is a run on a server.
type Remote struct {
	ID, Experiment string // identities
	Name           string
	Status         string // Running, Finished, Failed, Killed, or SCHEDULED
	Address        string // of the run's page
	Params, Tags   map[string]string
	Metrics        []string // names, sorted
}

// Point is a value of a metric.
type Point struct {
	Step  int64
	Time  int64 // ms since 1970 UTC
	Value float64
}

// Reader reads runs from a server.
type Reader struct {
	server *server
	page   int // points of a page
}

// OpenRun finds the run with an address, which has one of the forms of ErrAddress. environ has the credentials. Errors:
// ErrAddress; ErrNotFound if the server has no such run, or several runs with the name; all other errors are faults of
// the server.
func OpenRun(ctx context.Context, address string, environ []string) (*Reader, *Remote, error) {
	base, fragment, _ := strings.Cut(address, "#")
	server, err := newServer(strings.TrimRight(base, "/"), environ, readTimeout)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	server.mostReply = mostReadReply
	r := &Reader{server, historyPage}
	fragment, err = url.PathUnescape(fragment)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	id, experiment, name, ok := parseFragment(fragment)
	if !ok {
		return nil, nil, ErrAddress
	}
	if id == "" {
		if id, err = r.search(ctx, experiment, name); err != nil {
			return nil, nil, err
		}
	}
	run, err := r.run(ctx, id)
	return r, run, err
}

// parseFragment parses the part of an address after "#": the identity of a run, or the names of an experiment and a run.
func parseFragment(text string) (id, experiment, name string, ok bool) {
	if page, found := strings.CutPrefix(text, "/"); found {
		page, _, _ = strings.Cut(page, "?")
		parts := strings.Split(page, "/") // further parts name a view of the page
		if len(parts) < 4 || parts[0] != "experiments" || parts[2] != "runs" {
			return "", "", "", false
		}
		return parts[3], "", "", isIdentity(parts[3])
	}
	at := strings.LastIndexByte(text, '/') // names of experiments can contain a slash
	if at < 1 || at == len(text)-1 {
		return "", "", "", false
	}
	return "", text[:at], text[at+1:], true
}

// isIdentity reports whether a text can be the identity of a run: letters, digits and "-".
func isIdentity(text string) bool {
	return text != "" && len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-'
	})
}

// remoteReply is a run in replies to a reader.
type remoteReply struct {
	Info struct {
		ID         string `json:"run_id"`
		Name       string `json:"run_name"`
		Experiment string `json:"experiment_id"`
		Status     string
	}
	Data struct {
		Metrics      []struct{ Key string }
		Params, Tags []pair
	}
}

// address returns the address of a run's page.
func (r *Reader) address(run remoteReply) string {
	return fmt.Sprintf("%s/#/experiments/%s/runs/%s", r.server.base, run.Info.Experiment, run.Info.ID)
}

// notFound converts the refusal of a server that lacks a thing.
func notFound(err error, what string) error {
	var fault *refusal
	if errors.As(err, &fault) && fault.code == "RESOURCE_DOES_NOT_EXIST" {
		return fmt.Errorf("%w: %s", ErrNotFound, what)
	}
	return err
}

// search returns the identity of the run with a name.
func (r *Reader) search(ctx context.Context, experiment, name string) (id string, err error) {
	var reply struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		}
	}
	err = r.server.call(ctx, http.MethodGet, "/api/2.0/mlflow/experiments/get-by-name", url.Values{"experiment_name": {experiment}}, nil, &reply)
	if err != nil {
		return "", notFound(err, fmt.Sprintf("MLflow has no experiment %q", experiment))
	}
	quote := "'"
	if strings.Contains(name, quote) {
		quote = `"`
	}
	if strings.Contains(name, quote) {
		return "", fmt.Errorf("%w: the name of the run contains both kinds of quotes", ErrAddress)
	}
	request := map[string]any{"experiment_ids": []string{reply.Experiment.ID}, "filter": "attributes.run_name = " + quote + name + quote,
		"max_results": 8, "order_by": []string{"attributes.start_time DESC"}}
	var found []remoteReply
	for range mostEmptyPages {
		var page struct {
			Runs []remoteReply
			Next string `json:"next_page_token"`
		}
		if err := r.server.post(ctx, "runs/search", request, &page); err != nil {
			return "", err
		}
		if found = append(found, page.Runs...); page.Next == "" || len(found) > 1 {
			break
		}
		request["page_token"] = page.Next
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%w: experiment %q of MLflow has no run %q", ErrNotFound, experiment, name)
	case 1:
		return found[0].Info.ID, nil
	}
	var all []string
	for _, run := range found {
		all = append(all, r.address(run))
	}
	return "", fmt.Errorf("%w: several runs of experiment %q have the name %q; give the address of one, newest first: %s", ErrNotFound, experiment, name, strings.Join(all, " "))
}

// run returns the run with an identity.
func (r *Reader) run(ctx context.Context, id string) (*Remote, error) {
	var reply struct{ Run remoteReply }
	if err := r.server.call(ctx, http.MethodGet, "/api/2.0/mlflow/runs/get", url.Values{"run_id": {id}}, nil, &reply); err != nil {
		return nil, notFound(err, fmt.Sprintf("MLflow has no run %s", id))
	}
	if reply.Run.Info.ID == "" {
		return nil, errors.New("the reply of MLflow contains no run id")
	}
	run := &Remote{ID: reply.Run.Info.ID, Experiment: reply.Run.Info.Experiment, Name: reply.Run.Info.Name, Status: reply.Run.Info.Status,
		Address: r.address(reply.Run), Params: map[string]string{}, Tags: map[string]string{}}
	for _, p := range reply.Run.Data.Params {
		run.Params[p.Key] = p.Value
	}
	for _, t := range reply.Run.Data.Tags {
		run.Tags[t.Key] = t.Value
	}
	for _, m := range reply.Run.Data.Metrics {
		run.Metrics = append(run.Metrics, m.Key)
	}
	slices.Sort(run.Metrics)
	if run.Name == "" { // servers before MLflow 2.0
		run.Name = run.Tags["mlflow.runName"]
	}
	return run, nil
}

// History returns the points of a metric, in the order of the server. It returns an error if there are more than most.
func (r *Reader) History(ctx context.Context, run, metric string, most int) (points []Point, err error) {
	query := url.Values{"run_id": {run}, "metric_key": {metric}, "max_results": {strconv.Itoa(r.page)}}
	for {
		var page struct {
			Metrics []struct {
				Value           Value
				Timestamp, Step integer
			}
			Next string `json:"next_page_token"`
		}
		if err := r.server.call(ctx, http.MethodGet, "/api/2.0/mlflow/metrics/get-history", query, nil, &page); err != nil {
			return nil, fmt.Errorf("metric %s: %w", metric, err)
		}
		for _, p := range page.Metrics {
			points = append(points, Point{int64(p.Step), int64(p.Timestamp), float64(p.Value)})
		}
		if len(points) > most {
			return nil, fmt.Errorf("metric %s: got more than %d points", metric, most)
		}
		if page.Next == "" {
			return points, nil
		}
		if len(page.Metrics) == 0 || page.Next == query.Get("page_token") {
			return nil, fmt.Errorf("metric %s: the server repeats a page", metric)
		}
		query.Set("page_token", page.Next)
	}
}

// integer is an integer that some servers write as a text.
type integer int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *integer) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(bytes.Trim(text, `"`), (*int64)(n))
}
