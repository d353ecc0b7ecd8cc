package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue/programs"
)

// Labels and annotations that users write.
const (
	kindNote  = "hetero-train/kind"
	stepsNote = "hetero-train/steps"
	optIn     = "hetero-train/schedule" // label of a Job, with the value true
	host      = "kubernetes.io/hostname"
)

// kueue is the label of Jobs that Kueue suspends and starts.
const kueue = "kueue.x-k8s.io/queue-name"

// ErrOutput is wrapped by errors about the output of kubectl.
var ErrOutput = errors.New("unexpected output")

// Client runs kubectl from the search path.
type Client struct {
	Context   string            // context of the kubeconfig; "": the current one
	Namespace string            // namespace of the jobs to place; "": all
	versions  map[string]string // version of each Job that Read returned, by job ID
	uids      map[string]string // UID of each Job, by job ID
	hosts     map[string]string // value of the host name label, by node
	undos     int               // number of calls of Undo
	exist     map[string]string // UIDs of all Jobs of the cluster, by job ID; set by the second call of Undo
}

func (c *Client) kubectl(ctx context.Context, args ...string) ([]byte, error) {
	if c.Context != "" {
		args = append([]string{"--context=" + c.Context}, args...)
	}
	return programs.Run(ctx, "kubectl", args...)
}

// fetch returns all items of a list.
func fetch[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	var all []T
	query.Set("limit", "500")
	for {
		text, err := c.kubectl(ctx, "get", "--raw", path+"?"+query.Encode())
		if err != nil {
			return nil, err
		}
		var p page[T]
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, fmt.Errorf("kubectl get --raw %s: %w: %w", path, ErrOutput, err)
		}
		all = append(all, p.Items...)
		if p.Metadata.Continue == "" {
			return all, nil
		}
		query.Set("continue", p.Metadata.Continue)
	}
}

// Read returns the queue and the nodes. The parameter now is the time in seconds since 1970.
func (c *Client) Read(ctx context.Context, now float64) (*jobqueue.Snapshot, error) {
	nodes, err := fetch[node](ctx, c, "/api/v1/nodes", url.Values{})
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("kubectl get --raw /api/v1/nodes: %w: got no nodes", ErrOutput)
	}
	pods, err := fetch[pod](ctx, c, "/api/v1/pods",
		url.Values{"fieldSelector": {"status.phase!=Succeeded,status.phase!=Failed"}})
	if err != nil {
		return nil, err
	}
	path := "/apis/batch/v1/jobs"
	if c.Namespace != "" {
		path = "/apis/batch/v1/namespaces/" + url.PathEscape(c.Namespace) + "/jobs"
	}
	jobs, err := fetch[job](ctx, c, path, url.Values{})
	if err != nil {
		return nil, err
	}
	path = "/api/v1/resourcequotas"
	if c.Namespace != "" {
		path = "/api/v1/namespaces/" + url.PathEscape(c.Namespace) + "/resourcequotas"
	}
	quotas, err := fetch[quota](ctx, c, path, url.Values{})
	if err != nil {
		return nil, err
	}
	return c.snapshot(nodes, pods, jobs, quotas, now)
}

func (c *Client) snapshot(nodes []node, pods []pod, jobs []job, all []quota, now float64) (*jobqueue.Snapshot, error) {
	limits, err := quotasOf(all)
	if err != nil {
		return nil, err
	}
	s := &jobqueue.Snapshot{System: "Kubernetes", Now: now, Budgets: limits.budgets}
	c.versions, c.uids, c.hosts = map[string]string{}, map[string]string{}, map[string]string{}
	byName := map[string]int{}
	for _, n := range nodes {
		one, err := n.node()
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Metadata.Name, err)
		}
		byName[one.Name] = len(s.Nodes)
		c.hosts[one.Name] = cmp.Or(n.Metadata.Labels[host], one.Name)
		s.Nodes = append(s.Nodes, one)
	}
	for _, p := range pods {
		d, err := p.Spec.requested()
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", p.Metadata.Namespace, p.Metadata.Name, err)
		}
		on, known := byName[p.Spec.NodeName]
		if known {
			n := &s.Nodes[on]
			n.UsedCPUs, n.UsedMemory = n.UsedCPUs+d.cpus, n.UsedMemory+d.memory
			if len(n.GPUs) > 0 {
				n.GPUs[0].Used += d.gpus
			}
		}
		if d.gpus > 0 && (known || p.Spec.NodeName == "") {
			s.Jobs = append(s.Jobs, p.job(d, known, s.Nodes, on))
		}
	}
	for _, j := range jobs {
		if !j.Spec.Suspend || j.Status.CompletionTime != nil {
			continue // the list of pods contains the pods of an active Job
		}
		if one, ok := j.job(limits); ok {
			c.versions[one.ID], c.uids[one.ID] = j.Metadata.ResourceVersion, j.Metadata.UID
			one.Skip = cmp.Or(j.held(), one.Skip)
			s.Jobs = append(s.Jobs, one)
		}
	}
	return s, nil
}

func (n *node) node() (jobqueue.Node, error) {
	out := jobqueue.Node{Name: n.Metadata.Name}
	for k, v := range n.Metadata.Labels {
		out.Labels = append(out.Labels, k+"="+v)
	}
	slices.Sort(out.Labels)
	for _, name := range slices.Concat([]string{"cpu", "memory"}, gpuResources[:]) {
		text, ok := n.Status.Allocatable[name]
		if !ok {
			continue
		}
		v, err := quantity(text)
		if err != nil {
			return out, fmt.Errorf("allocatable %s: %w", name, err)
		}
		switch {
		case name == "cpu":
			out.CPUs = v
		case name == "memory":
			out.Memory = v
		case v > mostGPUs:
			return out, fmt.Errorf("allocatable %s: got %v, want at most %d", name, v, mostGPUs)
		case v >= 1 && len(out.GPUs) == 0:
			product := cmp.Or(n.Metadata.Labels["nvidia.com/gpu.product"],
				n.Metadata.Labels["amd.com/gpu.product-name"],
				n.Metadata.Labels["cloud.google.com/gke-accelerator"], name)
			out.GPUs = []jobqueue.GPUs{{Type: product, Total: int(v)}}
		}
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != "PreferNoSchedule" {
			out.Repels = append(out.Repels, t.Key+"="+t.Value+":"+t.Effect)
		}
	}
	if n.Spec.Unschedulable {
		out.Down = "cordoned"
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" && c.Status != "True" {
			out.Down = "not ready: " + c.Reason
		}
	}
	return out, nil
}

// job describes a pod with GPUs.
func (p *pod) job(d demand, placed bool, nodes []jobqueue.Node, on int) jobqueue.Job {
	out := jobqueue.Job{ID: "pod " + p.Metadata.Namespace + "/" + p.Metadata.Name, Name: p.Metadata.Name, GPUs: d.gpus,
		CPUs: d.cpus, Memory: d.memory,
		Submitted: seconds(p.Metadata.Created), Limit: limit(p.Spec.ActiveDeadlineSeconds), Phase: jobqueue.Pending}
	if p.Spec.Priority != nil {
		out.Urgency = *p.Spec.Priority
	}
	if !placed {
		out.Skip = "Kubernetes does not permit changes of a pod's placement; submit a suspended Job instead"
		return out
	}
	out.Phase, out.On = jobqueue.Active, []string{p.Spec.NodeName}
	if gpus := nodes[on].GPUs; len(gpus) > 0 {
		out.Holds = [][]jobqueue.GPUs{{{Type: gpus[0].Type, Total: d.gpus}}}
	}
	if p.Status.StartTime != nil {
		out.Started = seconds(*p.Status.StartTime)
	}
	out.Kind, out.Work = noted(p.Metadata.Annotations)
	return out
}

// job describes a suspended Job. The result ok is false if the Job requests no GPU.
func (j *job) job(limits *quotas) (out jobqueue.Job, ok bool) {
	spec := &j.Spec.Template.Spec
	out = jobqueue.Job{ID: j.Metadata.Namespace + "/" + j.Metadata.Name, Name: j.Metadata.Name, Phase: jobqueue.Pending,
		Submitted: seconds(j.Metadata.Created), Limit: limit(j.Spec.ActiveDeadlineSeconds)}
	out.Kind, out.Work = noted(j.Metadata.Annotations)
	d, err := spec.requested()
	if err != nil {
		out.GPUs, out.Skip = 1, err.Error()
		return out, true
	}
	if d.gpus == 0 {
		return out, false
	}
	pods := 1
	if j.Spec.Parallelism != nil {
		pods = *j.Spec.Parallelism
	}
	if j.Spec.Completions != nil {
		pods = min(pods, *j.Spec.Completions)
	}
	if pods < 1 || pods > mostGPUs/d.gpus {
		out.GPUs, out.Skip = d.gpus,
			fmt.Sprintf("got %d pods at the same time, want at least 1 and at most %d GPUs in all", pods, mostGPUs)
		return out, true
	}
	out.GPUs, out.CPUs, out.Memory = pods*d.gpus, float64(pods)*d.cpus, float64(pods)*d.memory
	out.Takes = limits.takes(j.Metadata.Namespace, pods, d)
	if spec.Priority != nil {
		out.Urgency = *spec.Priority
	}
	for k, v := range spec.NodeSelector {
		out.Requires = append(out.Requires, k+"="+v)
	}
	slices.Sort(out.Requires)
	for _, t := range spec.Tolerations {
		switch {
		case t.Key == "" && t.Operator == "Exists":
			out.Tolerates = append(out.Tolerates, "*:"+t.Effect)
		case t.Operator == "Exists":
			out.Tolerates = append(out.Tolerates, t.Key+"=*:"+t.Effect)
		default:
			out.Tolerates = append(out.Tolerates, t.Key+"="+t.Value+":"+t.Effect)
		}
	}
	if a := spec.Affinity; a != nil {
		switch {
		case a.NodeAffinity != nil && a.NodeAffinity.Required != nil:
			out.Skip = "the Job already has a required node affinity"
		case a.PodAffinity != nil && len(a.PodAffinity.Required) > 0, a.PodAntiAffinity != nil &&
			len(a.PodAntiAffinity.Required) > 0:
			out.Skip = "the Job has a required pod affinity"
		}
	}
	return out, true
}

// held returns the reason why the package must not start a Job, or "" if it may. Possible reasons are that another
// program starts the Job, and that its owner has not opted in.
func (j *job) held() string {
	if queue, ok := j.Metadata.Labels[kueue]; ok {
		return "Kueue starts the Job, from its queue " + queue
	}
	for _, o := range j.Metadata.Owners {
		if o.Controller {
			return fmt.Sprintf("%s %s owns the Job, and decides when it runs", o.Kind, o.Name)
		}
	}
	if m := j.Spec.ManagedBy; m != "" && m != "kubernetes.io/job-controller" {
		return m + " manages the Job"
	}
	if j.Metadata.Labels[optIn] != "true" {
		return "the Job does not opt in: want its label " + optIn + "=true"
	}
	return ""
}

// takes returns a job's demand for each resource that a quota of its namespace limits. It treats quotas that apply only
// to some pods (scopes) as if they applied to all pods.
func (s *quotas) takes(namespace string, pods int, d demand) []jobqueue.Take {
	amounts := map[string]float64{"pods": 1, "count/pods": 1, "cpu": d.cpus, "requests.cpu": d.cpus, "memory": d.memory,
		"requests.memory": d.memory}
	for i, name := range gpuResources {
		amounts["requests."+name] = float64(d.of[i])
	}
	var out []jobqueue.Take
	for i, l := range s.limits {
		if amount := amounts[l.resource] * float64(pods); l.namespace == namespace && amount > 0 {
			out = append(out, jobqueue.Take{Budget: i, Amount: amount})
		}
	}
	return out
}

// quotas are the limits of all quotas, in the order of their budgets.
type quotas struct {
	limits  []limited
	budgets []jobqueue.Budget
}

type limited struct{ namespace, resource string }

func quotasOf(all []quota) (*quotas, error) {
	out := new(quotas)
	for _, q := range all {
		for _, resource := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			name := fmt.Sprintf("the quota %s of the namespace %s for %s", q.Metadata.Name, q.Metadata.Namespace,
				resource)
			hard, err := quantity(q.Status.Hard[resource])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			used, err := quantity(cmp.Or(q.Status.Used[resource], "0"))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out.limits = append(out.limits, limited{q.Metadata.Namespace, resource})
			out.budgets = append(out.budgets, jobqueue.Budget{Name: name, Left: hard - used})
		}
	}
	return out, nil
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

func limit(deadline *float64) float64 {
	if deadline == nil || !(*deadline > 0) {
		return math.Inf(1)
	}
	return *deadline
}

func noted(annotations map[string]string) (kind string, steps float64) {
	v, err := strconv.ParseFloat(annotations[stepsNote], 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		v = 0
	}
	return annotations[kindNote], v
}
