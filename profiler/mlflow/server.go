package mlflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of MLflow, and of replies.
const (
	mostParams     = 100
	mostParamBytes = 6000
	mostTagBytes   = 5000
	mostName       = 250
	mostReply      = 4 << 20 // bytes, for a sender
)

// server is a store behind MLflow's REST interface.
type server struct {
	base    string // without a slash at the end
	header  http.Header
	client  *http.Client
	folders map[string]string // path of the files of each run, by id of the run; "": the server does not accept files

	mostReply int64 // bytes
}

func newServer(address string, environ []string, timeout time.Duration) (*server, error) {
	u, err := url.Parse(address)
	if err != nil { // without the text of the error: it contains the address, which may contain a password
		return nil, errors.New("the address is not a URL; want an address such as http://127.0.0.1:5000, or a folder")
	}
	if u.User != nil {
		return nil, errors.New("the address contains a user name or a password; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("got %q, want an address such as http://127.0.0.1:5000, or a folder", address)
	}
	s := &server{base: strings.TrimRight(address, "/"), header: http.Header{}, folders: map[string]string{},
		mostReply: mostReply,
		client: &http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}}
	v := variables(environ)
	if user, password := v[userVariable], v[passwordVariable]; user != "" {
		r := &http.Request{Header: s.header}
		r.SetBasicAuth(user, password)
	} else if token := v[tokenVariable]; token != "" {
		s.header.Set("Authorization", "Bearer "+token)
	}
	return s, nil
}

// Variables with the user's credentials.
const (
	userVariable     = "MLFLOW_TRACKING_USERNAME"
	passwordVariable = "MLFLOW_TRACKING_PASSWORD"
	tokenVariable    = "MLFLOW_TRACKING_TOKEN"
)

var credentials = []string{userVariable, tokenVariable}

// variables returns the values of the environment variables, by name.
func variables(environ []string) map[string]string {
	all := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	return all
}

// refusal is an error of the server, with MLflow's code.
type refusal struct {
	code   string
	status int
	text   string
}

func (r *refusal) Error() string {
	if r.code == "" { // the response comes from a proxy, for example
		return fmt.Sprintf("MLflow answered %d: %s", r.status, r.text)
	}
	return fmt.Sprintf("MLflow answered %d %s: %s", r.status, r.code, r.text)
}

// isMissing reports whether err states that the server does not have the requested resource.
func isMissing(err error) bool {
	r := new(refusal)
	return errors.As(err, &r) && r.code == "RESOURCE_DOES_NOT_EXIST"
}

// call sends a request. query contains the parameters of a GET request, and body the content of other requests. call
// decodes the response into reply, unless reply is nil.
func (s *server) call(ctx context.Context, method, path string, query url.Values, body []byte, reply any) error {
	address := s.base + path
	if query != nil {
		address += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return &Refused{err}
	}
	maps.Copy(r.Header, s.header)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, s.mostReply+1))
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK {
		if reply == nil {
			return nil
		}
		if int64(len(text)) > s.mostReply {
			return &Refused{fmt.Errorf("%w: %s: the reply is longer than %d bytes", ErrLimit, path, s.mostReply)}
		}
		if err := json.Unmarshal(text, reply); err != nil {
			return &Refused{fmt.Errorf("%s: the reply is not one of an MLflow server: %w", path, err)}
		}
		return nil
	}
	var fault struct {
		Code    string `json:"error_code"`
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &fault) != nil {
		fault.Message = string(text)
	}
	err = &refusal{fault.Code, resp.StatusCode, fault.Message[:min(len(fault.Message), 300)]}
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusRequestTimeout {
		return err
	}
	return &Refused{err}
}

// post calls a method of MLflow.
func (s *server) post(ctx context.Context, method string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return &Refused{err}
	}
	return s.call(ctx, http.MethodPost, "/api/2.0/mlflow/"+method, nil, body, reply)
}

type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// pairs converts a map to a list of key-value pairs for MLflow, sorted by key. It truncates long keys, and values of
// more than mostValue bytes.
func pairs(m map[string]string, mostValue int) []pair {
	list := make([]pair, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, pair{cut(key, mostName), cut(m[key], mostValue)})
	}
	return list
}

// cut truncates a text to at most limit bytes, but never within a character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}

// runReply is the JSON form of a run in replies to a sender.
type runReply struct {
	Info struct {
		ID       string `json:"run_id"`
		Artifact string `json:"artifact_uri"`
	} `json:"info"`
	Data struct {
		Tags []pair `json:"tags"`
	} `json:"data"`
}

func (s *server) open(ctx context.Context, start *Start, id string) (string, int64, error) {
	var reply struct{ Run runReply }
	if id == "" {
		experiment, err := s.experiment(ctx, start.Experiment)
		if err != nil {
			return "", 0, err
		}
		var found struct{ Runs []runReply }
		// The ID is random text of letters and digits, so it needs no quoting.
		search := map[string]any{"experiment_ids": []string{experiment},
			"filter": fmt.Sprintf("tags.`%s` = '%s'", idTag, start.ID), "max_results": 1}
		if err := s.post(ctx, "runs/search", search, &found); err != nil {
			return "", 0, err
		}
		if len(found.Runs) > 0 {
			reply.Run = found.Runs[0]
		} else {
			tags := maps.Clone(start.Tags)
			if tags == nil {
				tags = map[string]string{}
			}
			tags[idTag] = start.ID
			create := map[string]any{"experiment_id": experiment, "run_name": start.Name, "start_time": start.Time,
				"tags": pairs(tags, mostTagBytes)}
			if err := s.post(ctx, "runs/create", create, &reply); err != nil {
				return "", 0, err
			}
		}
	} else if err := s.call(ctx, http.MethodGet, "/api/2.0/mlflow/runs/get", url.Values{"run_id": {id}}, nil,
		&reply); err != nil {
		return "", 0, err
	}
	if reply.Run.Info.ID == "" {
		return "", 0, &Refused{errors.New("the reply of MLflow contains no run id")}
	}
	sent := int64(0)
	for _, tag := range reply.Run.Data.Tags {
		switch tag.Key {
		case SentTag:
			n, err := strconv.ParseInt(tag.Value, 10, 64)
			if err != nil || n < 0 {
				return "", 0, &Refused{fmt.Errorf("tag %s of run %s: got %q, want a position in the spool", SentTag,
					reply.Run.Info.ID, tag.Value)}
			}
			sent = n
		case idTag:
			if tag.Value != start.ID {
				return "", 0,
					&Refused{fmt.Errorf("the MLflow run %s belongs to another run of hetero-train", reply.Run.Info.ID)}
			}
		}
	}
	folder, _ := strings.CutPrefix(reply.Run.Info.Artifact, "mlflow-artifacts:/")
	if folder == reply.Run.Info.Artifact {
		folder = ""
	}
	s.folders[reply.Run.Info.ID] = strings.TrimLeft(folder, "/")
	return reply.Run.Info.ID, sent, nil
}

// experiment finds or creates an experiment.
func (s *server) experiment(ctx context.Context, name string) (string, error) {
	id, err := s.experimentByName(ctx, name)
	if !isMissing(err) {
		return id, err
	}
	var reply struct {
		ID string `json:"experiment_id"`
	}
	err = s.post(ctx, "experiments/create", map[string]string{"name": name}, &reply)
	if r := new(refusal); errors.As(err, &r) && r.code == "RESOURCE_ALREADY_EXISTS" {
		// meanwhile, another run has created it
		return s.experimentByName(ctx, name)
	}
	return reply.ID, err
}

// experimentByName returns the id of an experiment.
func (s *server) experimentByName(ctx context.Context, name string) (id string, err error) {
	var reply struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		}
	}
	err = s.call(ctx, http.MethodGet, "/api/2.0/mlflow/experiments/get-by-name", url.Values{"experiment_name": {name}},
		nil, &reply)
	return reply.Experiment.ID, err
}

type metric struct {
	Key   string `json:"key"`
	Value Value  `json:"value"`
	Time  int64  `json:"timestamp"`
	Step  int64  `json:"step"`
}

func (s *server) add(ctx context.Context, run string, b *batch) error {
	metrics, tags := []metric{}, map[string]string{}
	for _, l := range b.lines {
		for _, key := range slices.Sorted(maps.Keys(l.Metrics)) {
			metrics = append(metrics, metric{cut(key, mostName), l.Metrics[key], l.Time, l.Step})
		}
		maps.Copy(tags, l.Tags)
	}
	tags[SentTag] = strconv.FormatInt(b.end, 10)
	return s.post(ctx, "runs/log-batch",
		map[string]any{"run_id": run, "metrics": metrics, "tags": pairs(tags, mostTagBytes)}, nil)
}

func (s *server) params(ctx context.Context, run string, params map[string]string) error {
	for list := range slices.Chunk(pairs(params, mostParamBytes), mostParams) {
		if err := s.post(ctx, "runs/log-batch", map[string]any{"run_id": run, "params": list}, nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) status(ctx context.Context, run, status string, time int64) error {
	request := map[string]any{"run_id": run, "status": status}
	if status != Running {
		request["end_time"] = time
	}
	return s.post(ctx, "runs/update", request, nil)
}

func (s *server) artifact(ctx context.Context, run, name string, content []byte) error {
	folder := s.folders[run]
	if folder == "" {
		return &Refused{errors.New("the server does not accept files: start it with mlflow server --serve-artifacts")}
	}
	var path strings.Builder
	for part := range strings.SplitSeq(folder+"/"+name, "/") {
		path.WriteString("/" + url.PathEscape(part))
	}
	return s.call(ctx, http.MethodPut, "/api/2.0/mlflow-artifacts/artifacts"+path.String(), nil, content, nil)
}
