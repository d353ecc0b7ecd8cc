package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// A pod on a simulated node runs for the seconds of the first annotation (default 2). Then it succeeds, or fails with
// the exit code of the second annotation.
const (
	secondsAnnotation = "kubeplane/seconds"
	exitAnnotation    = "kubeplane/exit"
)

// simulateNodes registers nodes "NAME=cpu:8,memory:32Gi,nvidia.com/gpu:1,label:gpu=h100", keeps them ready, and acts as
// the kubelet of each node until ctx ends. If containers has the image of a pod, the pod runs as a process.
func simulateNodes(ctx context.Context, kubeconfig string, specs []string, containers *kubelet) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = 500, 1000
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ours := map[string]bool{}
	for _, spec := range specs {
		node, err := parseNode(spec)
		if err != nil {
			return err
		}
		created, err := client.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{})
		if err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
		created.Status = node.Status
		if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, created, meta.UpdateOptions{}); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
		ours[node.Name] = true
	}
	if containers != nil {
		containers.client = client
		if err := containers.network(); err != nil {
			return err
		}
	}
	go heartbeat(ctx, client, ours)
	go runPods(ctx, client, ours, containers)
	return nil
}

func parseNode(spec string) (*core.Node, error) {
	name, rest, ok := strings.Cut(spec, "=")
	if !ok {
		return nil, fmt.Errorf("node %q: want NAME=cpu:8,memory:32Gi,label:KEY=VALUE", spec)
	}
	node := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name,
		Labels: map[string]string{"kubernetes.io/hostname": name}}}
	capacity := core.ResourceList{core.ResourcePods: resource.MustParse("110")}
	for _, part := range strings.Split(rest, ",") {
		key, value, _ := strings.Cut(part, ":")
		if key == "label" {
			k, v, _ := strings.Cut(value, "=")
			node.Labels[k] = v
			continue
		}
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return nil, fmt.Errorf("node %q: %s: %w", spec, part, err)
		}
		capacity[core.ResourceName(key)] = q
	}
	node.Status = core.NodeStatus{Capacity: capacity, Allocatable: capacity, Conditions: []core.NodeCondition{{
		Type: core.NodeReady, Status: core.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: meta.Now(), LastTransitionTime: meta.Now()}}}
	return node, nil
}

func heartbeat(ctx context.Context, client kubernetes.Interface, nodes map[string]bool) {
	for ; ctx.Err() == nil; time.Sleep(10 * time.Second) {
		for name := range nodes {
			holder, seconds, now := name, int32(40), meta.NowMicro()
			leases := client.CoordinationV1().Leases("kube-node-lease")
			lease, err := leases.Get(ctx, name, meta.GetOptions{})
			if err != nil {
				_, err = leases.Create(ctx, &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: name},
					Spec: coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds,
						RenewTime: &now}}, meta.CreateOptions{})
			} else {
				lease.Spec.RenewTime = &now
				_, err = leases.Update(ctx, lease, meta.UpdateOptions{})
			}
			if err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "kubeplane: lease", name, err)
			}
		}
	}
}

func runPods(ctx context.Context, client kubernetes.Interface, nodes map[string]bool, containers *kubelet) {
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		pods, err := client.CoreV1().Pods("").List(ctx, meta.ListOptions{})
		if err != nil {
			continue
		}
		there, err := client.CoreV1().Nodes().List(ctx, meta.ListOptions{})
		if err != nil {
			continue
		}
		lives := map[string]bool{}
		for i := range there.Items {
			lives[there.Items[i].Name] = true
		}
		for name := range nodes {
			if containers != nil && !lives[name] {
				containers.lose(name)
			}
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if !nodes[pod.Spec.NodeName] || !lives[pod.Spec.NodeName] {
				continue
			}
			step := advance
			if containers.runs(pod) {
				step = func(ctx context.Context, _ kubernetes.Interface, pod *core.Pod) error {
					return containers.advance(ctx, pod)
				}
			}
			if err := step(ctx, client, pod); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "kubeplane: pod", pod.Namespace, pod.Name, err)
			}
		}
	}
}

// advance takes the next action of the kubelet for one pod.
func advance(ctx context.Context, client kubernetes.Interface, pod *core.Pod) error {
	if pod.DeletionTimestamp != nil {
		zero := int64(0)
		return client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, meta.DeleteOptions{GracePeriodSeconds: &zero})
	}
	seconds, err := strconv.ParseFloat(pod.Annotations[secondsAnnotation], 64)
	if err != nil {
		seconds = 2
	}
	code, _ := strconv.Atoi(pod.Annotations[exitAnnotation])
	switch {
	case pod.Status.Phase == core.PodPending:
		return setStatus(ctx, client, pod, core.PodRunning, core.ContainerState{
			Running: &core.ContainerStateRunning{StartedAt: meta.Now()}})
	case pod.Status.Phase == core.PodRunning && time.Since(pod.Status.StartTime.Time).Seconds() >= seconds:
		phase := core.PodSucceeded
		if code != 0 {
			phase = core.PodFailed
		}
		return setStatus(ctx, client, pod, phase, core.ContainerState{Terminated: &core.ContainerStateTerminated{
			ExitCode: int32(code), StartedAt: *pod.Status.StartTime, FinishedAt: meta.Now()}})
	}
	return nil
}

func setStatus(ctx context.Context, client kubernetes.Interface, pod *core.Pod, phase core.PodPhase,
	state core.ContainerState) error {
	running := phase == core.PodRunning
	ready := core.ConditionFalse
	if running {
		ready = core.ConditionTrue
	}
	status := core.PodStatus{Phase: phase, StartTime: pod.Status.StartTime, PodIP: pod.Status.PodIP,
		Conditions: []core.PodCondition{{Type: core.PodReady, Status: ready, LastTransitionTime: meta.Now()}}}
	if pod.Status.PodIP != "" {
		status.PodIPs = []core.PodIP{{IP: pod.Status.PodIP}}
	}
	if status.StartTime == nil {
		now := meta.Now()
		status.StartTime = &now
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, core.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: running, Started: &running, State: state})
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		meta.PatchOptions{}, "status")
	return err
}
