package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// kubelet runs the containers of pods as processes, if it has their image. Each pod has a network namespace. Its
// container has a mount, PID, IPC and host name namespace with the volumes of the pod. The root file system is
// read-only: it has /usr of this machine, and the folder of the image at /usr/local.
//
// It replaces a kubelet, a container runtime, and the cluster's DNS: /etc/hosts of all pods contains the names that a
// headless Service defines. It supports only what deploy/kubernetes uses, and refuses pods with other features.
type kubelet struct {
	client kubernetes.Interface
	folder string // of the state
	image  string // images whose names contain this text run
	usr    string // folder of the image

	mu       sync.Mutex
	pods     map[string]*process // by UID
	networks int
}

// process is the container of a pod.
type process struct {
	pod     *core.Pod
	address string
	cmd     *exec.Cmd
	started time.Time
	ended   chan struct{}
	code    int
	stop    sync.Once
}

//go:embed pod.sh
var podScript string

// network makes a bridge for the pods.
func (k *kubelet) network() error {
	for _, args := range []string{"link add pods type bridge", "addr add 10.79.0.1/16 dev pods", "link set pods up"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return os.WriteFile(k.hosts(), []byte("127.0.0.1 localhost\n"), 0o644)
}

func (k *kubelet) hosts() string { return filepath.Join(k.folder, "hosts") }

// runs reports whether kubelet runs the pod's container as a process.
func (k *kubelet) runs(pod *core.Pod) bool {
	return k != nil && strings.Contains(pod.Spec.Containers[0].Image, k.image)
}

// advance takes the next action for one pod: it starts the container, reports its state, or ends it.
func (k *kubelet) advance(ctx context.Context, pod *core.Pod) error {
	k.mu.Lock()
	p := k.pods[string(pod.UID)]
	k.mu.Unlock()
	switch {
	case p == nil && pod.DeletionTimestamp != nil:
		return k.remove(ctx, pod)
	case p == nil && pod.Status.Phase == core.PodPending:
		p, err := k.start(ctx, pod)
		if err != nil {
			return err
		}
		return k.report(ctx, p, core.PodRunning, core.ContainerState{
			Running: &core.ContainerStateRunning{StartedAt: meta.NewTime(p.started)}})
	case p == nil:
		return nil
	}
	if pod.DeletionTimestamp != nil {
		p.stop.Do(func() {
			p.cmd.Process.Signal(syscall.SIGTERM)
			grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
			time.AfterFunc(grace, func() { p.cmd.Process.Kill() })
		})
	}
	select {
	case <-p.ended:
	default:
		if pod.Status.Phase != core.PodPending {
			return nil
		}
		return k.report(ctx, p, core.PodRunning, core.ContainerState{ // the first report failed
			Running: &core.ContainerStateRunning{StartedAt: meta.NewTime(p.started)}})
	}
	if pod.Status.Phase == core.PodRunning || pod.Status.Phase == core.PodPending {
		phase := core.PodSucceeded
		if p.code != 0 {
			phase = core.PodFailed
		}
		if err := k.report(ctx, p, phase, core.ContainerState{Terminated: &core.ContainerStateTerminated{
			ExitCode: int32(p.code), StartedAt: meta.NewTime(p.started), FinishedAt: meta.Now()}}); err != nil {
			return err
		}
	}
	if pod.DeletionTimestamp != nil {
		return k.remove(ctx, pod)
	}
	return nil
}

// lose ends the containers of a node that is lost. Nothing reports their end.
func (k *kubelet) lose(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.pod.Spec.NodeName == node {
			p.cmd.Process.Kill()
		}
	}
}

func (k *kubelet) remove(ctx context.Context, pod *core.Pod) error {
	zero := int64(0)
	return k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, meta.DeleteOptions{GracePeriodSeconds: &zero,
		Preconditions: meta.NewUIDPreconditions(string(pod.UID))})
}

func (k *kubelet) report(ctx context.Context, p *process, phase core.PodPhase, state core.ContainerState) error {
	p.pod.Status.PodIP = p.address
	return setStatus(ctx, k.client, p.pod, phase, state)
}

// start makes the network and the volumes of a pod, and starts its container.
func (k *kubelet) start(ctx context.Context, pod *core.Pod) (*process, error) {
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) > 0 {
		return nil, errors.New("got several containers, want one")
	}
	c := pod.Spec.Containers[0]
	k.mu.Lock()
	k.networks++
	number := k.networks
	k.mu.Unlock()
	p := &process{pod: pod, address: fmt.Sprintf("10.79.%d.%d", 1+number/250, 1+number%250), ended: make(chan struct{})}
	name := fmt.Sprintf("pod%d", number)
	for _, args := range []string{"netns add " + name,
		fmt.Sprintf("link add to%d type veth peer name eth0 netns %s", number, name),
		fmt.Sprintf("link set to%d master pods up", number),
		fmt.Sprintf("-n %s addr add %s/16 dev eth0", name, p.address),
		fmt.Sprintf("-n %s link set lo up", name), fmt.Sprintf("-n %s link set eth0 up", name)} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	mounts, err := k.volumes(ctx, pod)
	if err != nil {
		return nil, err
	}
	env, err := environment(pod, p.address)
	if err != nil {
		return nil, err
	}
	// The container's command replaces the script, so it is PID 1 of its namespace.
	host := pod.Spec.Hostname
	if host == "" {
		host = pod.Name
	}
	security := pod.Spec.SecurityContext
	args := []string{"--net=/run/netns/" + name, "bash", "-c", podScript, "pod", host, k.usr, k.hosts(), mounts,
		fmt.Sprint(*security.RunAsUser), fmt.Sprint(*security.RunAsGroup), fmt.Sprint(*security.FSGroup),
		fmt.Sprint(len(env))}
	args = append(args, env...)
	args = append(args, c.Command...)
	known := map[string]string{}
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		known[name] = value
	}
	for _, arg := range c.Args {
		args = append(args, expand(arg, known))
	}
	p.cmd = exec.Command("nsenter", args...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	log, err := os.OpenFile(filepath.Join(k.folder, "logs", pod.Namespace+"_"+pod.Name+".log"),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr, p.started = log, log, time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(strings.TrimSuffix(log.Name(), ".log")+".pid", []byte(fmt.Sprint(p.cmd.Process.Pid)),
		0o644); err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.pods[string(pod.UID)] = p
	k.mu.Unlock()
	if err := k.name(ctx); err != nil {
		return nil, err
	}
	go func() {
		p.cmd.Wait()
		log.Close()
		p.code = p.cmd.ProcessState.ExitCode()
		if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
			p.code = 128 + int(status.Signal())
		}
		fmt.Fprintf(os.Stderr, "kubeplane: %s/%s ended with exit code %d\n", pod.Namespace, pod.Name, p.code)
		close(p.ended)
		exec.Command("ip", "netns", "del", name).Run()
	}()
	return p, nil
}

// name writes the names of the pods that headless Services select.
func (k *kubelet) name(ctx context.Context) error {
	services, err := k.client.CoreV1().Services("").List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	text := "127.0.0.1 localhost\n"
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		select {
		case <-p.ended:
			continue
		default:
		}
		for _, s := range services.Items {
			if s.Spec.ClusterIP == core.ClusterIPNone && s.Namespace == p.pod.Namespace &&
				s.Name == p.pod.Spec.Subdomain &&
				labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.pod.Labels)) {
				text += fmt.Sprintf("%s %s.%s\n", p.address, p.pod.Spec.Hostname, s.Name)
			}
		}
	}
	return os.WriteFile(k.hosts(), []byte(text), 0o644) // the same file: it is mounted in the pods
}

var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// expand replaces $(NAME) by the value of a variable. Text without a known name remains.
func expand(text string, known map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(name string) string {
		if v, ok := known[name[2:len(name)-1]]; ok {
			return v
		}
		return name
	})
}

// environment returns the variables of the container, as NAME=VALUE.
func environment(pod *core.Pod, address string) ([]string, error) {
	known := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOSTNAME": pod.Spec.Hostname}
	for _, e := range pod.Spec.Containers[0].Env {
		value := expand(e.Value, known)
		if e.ValueFrom != nil {
			if e.ValueFrom.FieldRef == nil {
				return nil, fmt.Errorf("the variable %s is not from a field", e.Name)
			}
			path := e.ValueFrom.FieldRef.FieldPath
			kind, rest, _ := strings.Cut(path, "['")
			key := strings.TrimSuffix(rest, "']")
			switch kind {
			case "metadata.annotations":
				value = pod.Annotations[key]
			case "metadata.labels":
				value = pod.Labels[key]
			case "metadata.name":
				value = pod.Name
			case "metadata.namespace":
				value = pod.Namespace
			case "status.podIP":
				value = address
			default:
				return nil, fmt.Errorf("the variable %s is from the field %s", e.Name, path)
			}
		}
		known[e.Name] = value
	}
	var env []string
	for name, value := range known {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env, nil
}
