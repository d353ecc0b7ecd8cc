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
	readTimeout    = 30 * time.Second // time limit of one request
	mostReadReply  = 64 << 20         // bytes of a reply
	historyPage    = 10_000           // points of a page
	mostEmptyPages = 100              // empty pages after which a search for a run ends
	mostSlashes    = 8                // slashes in an address; each of them may be the separator of the two names
)

// ErrNotFound means that a server does not have a run or an experiment.
var ErrNotFound = errors.New("not found")

var errNoID = errors.New("the reply of MLflow contains no run id")

var errNoExperiment = fmt.Errorf("%w: MLflow has no experiment", ErrNotFound)

// ErrAmbiguous means that several runs have the names of an address.
var ErrAmbiguous = errors.New("several runs have these names")

// ErrLimit means that a run, or the search for a run, exceeds a limit of the reader.
var ErrLimit = errors.New("too large")

// ErrAddress means that a text is not the address of a run.
var ErrAddress = errors.New("want the address of a run's page in MLflow (http://HOST:5000/#/experiments/ID/runs/ID), or http://HOST:5000#EXPERIMENT/RUN with the names of both")

// Remote is a run on a server.
type Remote struct {
	ID           string
	Name         string
	Status       string // Running, Finished, Failed, Killed, or SCHEDULED
	Address      string // address of the run's page
	Params, Tags map[string]string
	Metrics      []string // names, sorted
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
	page   int // number of points in a page
}

// OpenRun finds the run with an address, in one of the forms that ErrAddress states. Both names can contain slashes. A
// slash in a name can be written as %2F. environ contains the credentials. OpenRun returns ErrAddress, ErrNotFound,
// ErrLimit, or ErrAmbiguous, which lists the addresses of the runs. All other errors are faults of the server.
func OpenRun(ctx context.Context, address string, environ []string) (*Reader, *Remote, error) {
	base, fragment, _ := strings.Cut(address, "#")
	server, err := newServer(strings.TrimRight(base, "/"), environ, readTimeout)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	server.mostReply = mostReadReply
	r := &Reader{server, historyPage}
	id, all, err := parseFragment(fragment)
	if err == nil && len(all) > 0 {
		id, err = r.find(ctx, all)
	}
	if err != nil {
		return nil, nil, err
	}
	run, err := r.run(ctx, id)
	return r, run, err
}

// find returns the id of the run whose names are one of the given pairs.
func (r *Reader) find(ctx context.Context, all []names) (id string, err error) {
	var found []remoteReply
	var missing error
	for _, n := range all {
		runs, err := r.search(ctx, n.experiment, n.run)
		switch {
		case err == nil:
			found = append(found, runs...)
		case !errors.Is(err, ErrNotFound):
			return "", err
		case missing == nil || errors.Is(missing, errNoExperiment):
			// prefer the error that states that the experiment exists
			missing = err
		}
	}
	switch len(found) {
	case 0:
		return "", missing
	case 1:
		return found[0].Info.ID, nil
	}
	var addresses []string
	for _, run := range found {
		addresses = append(addresses, r.address(run))
	}
	return "", fmt.Errorf("%w; give the address of one: %s", ErrAmbiguous, strings.Join(addresses, " "))
}

// names are the names of an experiment and of one of its runs.
type names struct{ experiment, run string }

// parseFragment parses the part of an address after "#": the id of a run, or the names of an experiment and a run. Both
// names can contain slashes, so a text with several slashes can mean several pairs of names. An escaped slash is part
// of a name.
func parseFragment(text string) (id string, all []names, err error) {
	if page, found := strings.CutPrefix(text, "/"); found {
		page, _, _ = strings.Cut(page, "?")
		parts := strings.Split(page, "/") // further parts are the name of a view on the page
		if len(parts) < 4 || parts[0] != "experiments" || parts[2] != "runs" || !isIdentity(parts[3]) {
			return "", nil, ErrAddress
		}
		return parts[3], nil, nil
	}
	if n := strings.Count(text, "/"); n > mostSlashes {
		return "", nil, fmt.Errorf("%w: the names contain %d slashes, want at most %d; write the slashes of a name as %%2F, or give the address of the run's page",
			ErrLimit, n, mostSlashes)
	}
	for at := len(text) - 2; at > 0; at-- {
		if text[at] != '/' {
			continue
		}
		experiment, err := url.PathUnescape(text[:at])
		run, err2 := url.PathUnescape(text[at+1:])
		if err := errors.Join(err, err2); err != nil {
			return "", nil, fmt.Errorf("%w: %w", ErrAddress, err)
		}
		all = append(all, names{experiment, run})
	}
	if len(all) == 0 {
		return "", nil, ErrAddress
	}
	return "", all, nil
}

// isIdentity reports whether a text can be the id of a run: letters, digits and "-".
func isIdentity(text string) bool {
	return text != "" && len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-'
	})
}

// remoteReply is the JSON form of a run in a reply of the MLflow server to a Reader.
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

// search returns the runs with a name, newest first. It returns at least one run. If there are several runs, it may not
// return all of them.
func (r *Reader) search(ctx context.Context, experiment, name string) (found []remoteReply, err error) {
	experimentID, err := r.server.experimentByName(ctx, experiment)
	if isMissing(err) {
		return nil, fmt.Errorf("%w %q", errNoExperiment, experiment)
	}
	if err != nil {
		return nil, err
	}
	quote := "'"
	if strings.Contains(name, quote) {
		quote = `"`
	}
	if strings.Contains(name, quote) {
		return nil, fmt.Errorf("%w: the name of the run contains both kinds of quotes", ErrAddress)
	}
	request := map[string]any{"experiment_ids": []string{experimentID}, "filter": "attributes.run_name = " + quote +
		name + quote,
		"max_results": 8, "order_by": []string{"attributes.start_time DESC"}}
	for pages := 1; ; pages++ {
		var page struct {
			Runs []remoteReply
			Next string `json:"next_page_token"`
		}
		if err := r.server.post(ctx, "runs/search", request, &page); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(page.Runs, func(run remoteReply) bool { return run.Info.ID == "" }) {
			return nil, errNoID
		}
		if found = append(found, page.Runs...); page.Next == "" || len(found) > 1 {
			break
		}
		if pages == mostEmptyPages {
			return nil,
				fmt.Errorf("%w: the search for run %q of experiment %q has more than %d pages; give the address of the run's page",
					ErrLimit, name, experiment, pages)
		}
		request["page_token"] = page.Next
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: experiment %q of MLflow has no run %q", ErrNotFound, experiment, name)
	}
	return found, nil
}

// run returns the run with an id.
func (r *Reader) run(ctx context.Context, id string) (*Remote, error) {
	var reply struct{ Run remoteReply }
	if err := r.server.call(ctx, http.MethodGet, "/api/2.0/mlflow/runs/get", url.Values{"run_id": {id}}, nil,
		&reply); isMissing(err) {
		return nil, fmt.Errorf("%w: MLflow has no run %s", ErrNotFound, id)
	} else if err != nil {
		return nil, err
	}
	if reply.Run.Info.ID == "" {
		return nil, errNoID
	}
	run := &Remote{ID: reply.Run.Info.ID, Name: reply.Run.Info.Name, Status: reply.Run.Info.Status,
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

// History returns the points of a metric, in the order of the server. It returns an ErrLimit if there are more than
// limit.
func (r *Reader) History(ctx context.Context, run, metric string, limit int) (points []Point, err error) {
	query := url.Values{"run_id": {run}, "metric_key": {metric}, "max_results": {strconv.Itoa(r.page)}}
	for {
		var page struct {
			Metrics []struct {
				Value           Value
				Timestamp, Step integer
			}
			Next string `json:"next_page_token"`
		}
		if err := r.server.call(ctx, http.MethodGet, "/api/2.0/mlflow/metrics/get-history", query, nil,
			&page); err != nil {
			return nil, fmt.Errorf("metric %s: %w", metric, err)
		}
		for _, p := range page.Metrics {
			points = append(points, Point{int64(p.Step), int64(p.Timestamp), float64(p.Value)})
		}
		if len(points) > limit {
			return nil, fmt.Errorf("%w: metric %s: got more than %d points", ErrLimit, metric, limit)
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

// integer is an integer that some servers encode as a string.
type integer int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *integer) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(bytes.Trim(text, `"`), (*int64)(n))
}
