package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
)

// Apply starts a suspended Job on the nodes of a placement. It fails if the Job has changed since Read.
func (c *Client) Apply(ctx context.Context, p jobqueue.Placement) error {
	namespace, name, ok := strings.Cut(p.Job, "/")
	version, known := c.versions[p.Job]
	if !ok || !known || len(p.Nodes) == 0 {
		return fmt.Errorf("job %s: got a placement on %d nodes, want a suspended Job that was read and at least 1 node",
			p.Job, len(p.Nodes))
	}
	hosts := c.hostsOf(p.Nodes)
	type object = map[string]any
	affinity := object{
		"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []object{
			{"matchExpressions": []object{{"key": host, "operator": "In", "values": hosts}}}}}}}
	patch, err := json.Marshal(object{"metadata": object{"resourceVersion": version},
		"spec": object{"suspend": false, "template": object{"spec": object{"affinity": affinity}}}})
	if err != nil {
		return err
	}
	_, err = c.kubectl(ctx, "patch", "job", "--namespace="+namespace, "--type=merge", "--patch="+string(patch), "--",
		name)
	return err
}

// Change describes what Apply will do with a placement of a Job that Read returned.
func (c *Client) Change(p jobqueue.Placement) jobqueue.Change {
	return jobqueue.Change{Job: p.Job, Name: p.Name, Identity: c.uids[p.Job], Nodes: p.Nodes, Hosts: c.hostsOf(p.Nodes),
		Released: true}
}

func (c *Client) hostsOf(nodes []string) []string {
	hosts := make([]string, len(nodes))
	for i, n := range nodes {
		hosts[i] = c.hosts[n]
	}
	return hosts
}
