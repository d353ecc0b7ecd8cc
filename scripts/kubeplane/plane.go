// Command kubeplane runs a real Kubernetes control plane on this machine in one process group: etcd (embedded),
// kube-apiserver, kube-controller-manager and kube-scheduler. Nodes are simulated: a pod runs for the time in its
// annotation, without containers, unless --image names its image. Tests apply manifests to this control plane.
//
//	kubeplane up DIR [NODE...]                       starts everything, writes DIR/kubeconfig, prints "ready", stops on SIGTERM
//	kubeplane up --image NAME=FOLDER DIR [NODE...]   containers of this image run as processes (type kubelet)
//	kubeplane apiserver|controller-manager|scheduler ARGS...      the component itself
//
// NODE is NAME=cpu:8,memory:32Gi,nvidia.com/gpu:1,label:gpu=h100.
package main

import (
	"context"
	cryptorand "crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// token is that of the administrator.
var token = cryptorand.Text()

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: kubeplane up DIR [NAME=cpu:8,memory:32Gi,nvidia.com/gpu:1,label:KEY=VALUE ...]")
		os.Exit(2)
	}
	component := os.Args[1]
	if component != "up" {
		os.Args = append([]string{component}, os.Args[2:]...)
	}
	switch component {
	case "apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "controller-manager":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case "scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "up":
		args, containers := os.Args[2:], (*kubelet)(nil)
		if len(args) > 2 && args[0] == "--image" {
			name, folder, _ := strings.Cut(args[1], "=")
			containers, args = &kubelet{image: name, usr: folder, pods: map[string]*process{}}, args[2:]
		}
		if err := up(args[0], args[1:], containers); err != nil {
			fmt.Fprintln(os.Stderr, "kubeplane:", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "kubeplane: unknown component", component)
		os.Exit(2)
	}
}

func up(dir string, nodes []string, containers *kubelet) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if containers != nil {
		// Containers get a bridge and addresses, and their processes come from this machine.
		interfaces, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, i := range interfaces {
			if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
				return fmt.Errorf("--image: got the network interface %s, want a network namespace with lo only: start "+
					"kubeplane by unshare --net --mount --pid --fork --kill-child --mount-proc", i.Name)
			}
		}
		containers.folder = dir
		if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o755); err != nil {
			return err
		}
	}
	store, endpoint, err := startEtcd(filepath.Join(dir, "etcd"))
	if err != nil {
		return err
	}
	defer store.Close()

	keyFile := filepath.Join(dir, "service-account.key")
	if err := writeKey(keyFile); err != nil {
		return err
	}
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,1,system:masters\n"), 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	server := fmt.Sprintf("https://127.0.0.1:%d", port)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(fmt.Sprintf(configText, server, token)), 0o600); err != nil {
		return err
	}

	var running []*exec.Cmd
	stopAll := func() {
		for i := len(running) - 1; i >= 0; i-- {
			running[i].Process.Signal(syscall.SIGTERM)
			running[i].Wait()
		}
	}
	defer stopAll()
	start := func(name string, args ...string) error {
		log, err := os.Create(filepath.Join(dir, name+".log"))
		if err != nil {
			return err
		}
		cmd := exec.Command("/proc/self/exe", append([]string{name}, args...)...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
		running = append(running, cmd)
		return nil
	}

	if err := start("apiserver",
		"--etcd-servers="+endpoint,
		"--secure-port="+fmt.Sprint(port), "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--cert-dir="+filepath.Join(dir, "certs"),
		"--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer="+server, "--service-account-key-file="+keyFile,
		"--service-account-signing-key-file="+keyFile); err != nil {
		return err
	}
	if err := waitReady(server + "/readyz"); err != nil {
		return fmt.Errorf("apiserver: %w (see %s/apiserver.log)", err, dir)
	}
	if err := start("controller-manager", "--kubeconfig="+kubeconfig, "--leader-elect=false",
		"--service-account-private-key-file="+keyFile, "--use-service-account-credentials=true",
		"--bind-address=127.0.0.1", "--secure-port=0"); err != nil {
		return err
	}
	if err := start("scheduler", "--kubeconfig="+kubeconfig, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port=0"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := simulateNodes(ctx, kubeconfig, nodes, containers); err != nil {
		return err
	}
	fmt.Println("ready", kubeconfig)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	return nil
}

func startEtcd(dir string) (*embed.Etcd, string, error) {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "error"
	cfg.UnsafeNoFsync = true
	clientPort, err := freePort()
	if err != nil {
		return nil, "", err
	}
	peerPort, err := freePort()
	if err != nil {
		return nil, "", err
	}
	client := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", clientPort)}
	peer := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", peerPort)}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + peer.String()
	store, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("etcd: %w", err)
	}
	select {
	case <-store.Server.ReadyNotify():
		return store, client.String(), nil
	case <-time.After(time.Minute):
		store.Close()
		return nil, "", fmt.Errorf("etcd: not ready after a minute")
	}
}

func writeKey(path string) error {
	key, err := rsa.GenerateKey(cryptorand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func waitReady(url string) error {
	client := &http.Client{Timeout: 2 * time.Second, // the server makes its certificate itself, on loopback
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	var last error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(300 * time.Millisecond) {
		req, _ := http.NewRequest("GET", url, nil)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			last = err
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		last = fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return last
}

const configText = `apiVersion: v1
kind: Config
clusters:
- name: kubeplane
  cluster: {server: "%s", insecure-skip-tls-verify: true}
users:
- name: admin
  user: {token: "%s"}
contexts:
- name: kubeplane
  context: {cluster: kubeplane, user: admin}
current-context: kubeplane
`
