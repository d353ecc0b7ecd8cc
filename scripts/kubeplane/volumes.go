package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumes makes the volumes of a pod, and returns the mounts of its container, a line "TYPE SOURCE TARGET OPTIONS"
// each.
func (k *kubelet) volumes(ctx context.Context, pod *core.Pod) (string, error) {
	group := int(*pod.Spec.SecurityContext.FSGroup)
	var lines []string
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		at := filepath.Join(k.folder, "pods", string(pod.UID), m.Name)
		for _, v := range pod.Spec.Volumes {
			if v.Name != m.Name {
				continue
			}
			options := "rw"
			if m.ReadOnly {
				options = "ro"
			}
			source, err := at, error(nil)
			switch {
			case v.ConfigMap != nil:
				err = k.configMap(ctx, pod.Namespace, v.ConfigMap, at)
			case v.Secret != nil:
				err = k.secret(ctx, pod.Namespace, v.Secret, at, group)
			case v.PersistentVolumeClaim != nil:
				source, err = k.claim(ctx, pod.Namespace, v.PersistentVolumeClaim.ClaimName, group)
			case v.EmptyDir != nil && v.EmptyDir.Medium == core.StorageMediumMemory:
				lines = append(lines, fmt.Sprintf("tmpfs - %s mode=2777,gid=%d,size=%d", m.MountPath, group,
					v.EmptyDir.SizeLimit.Value()))
				continue
			case v.EmptyDir != nil:
				err = shared(at, group, 0o2777)
			default:
				err = fmt.Errorf("the volume is of another kind")
			}
			if err != nil {
				return "", fmt.Errorf("volume %s: %w", v.Name, err)
			}
			lines = append(lines, fmt.Sprintf("bind %s %s %s", source, m.MountPath, options))
		}
	}
	return strings.Join(lines, "\n"), nil
}

// shared makes a folder that the pod's group may write.
func shared(at string, group int, mode os.FileMode) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := os.Chown(at, 0, group); err != nil {
		return err
	}
	return os.Chmod(at, mode&0o777|os.ModeSetgid)
}

func (k *kubelet) configMap(ctx context.Context, namespace string, v *core.ConfigMapVolumeSource, at string) error {
	c, err := k.client.CoreV1().ConfigMaps(namespace).Get(ctx, v.Name, meta.GetOptions{})
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for name, text := range c.Data {
		files[name] = []byte(text)
	}
	return links(at, files, 0o644, 0)
}

func (k *kubelet) secret(ctx context.Context, namespace string, v *core.SecretVolumeSource, at string,
	group int) error {
	s, err := k.client.CoreV1().Secrets(namespace).Get(ctx, v.SecretName, meta.GetOptions{})
	if errors.IsNotFound(err) && v.Optional != nil && *v.Optional {
		return links(at, nil, 0, group)
	}
	if err != nil {
		return err
	}
	files := s.Data
	if len(v.Items) > 0 {
		files = map[string][]byte{}
		for _, item := range v.Items {
			text, ok := s.Data[item.Key]
			if !ok {
				return fmt.Errorf("the secret %s has no key %s", v.SecretName, item.Key)
			}
			files[item.Path] = text
		}
	}
	return links(at, files, os.FileMode(*v.DefaultMode), group)
}

// links writes files as a kubelet does: FILE is a link to ..data/FILE, and ..data a link to a folder with a date.
func links(at string, files map[string][]byte, mode os.FileMode, group int) error {
	const dated = "..2026_01_01"
	if err := os.MkdirAll(filepath.Join(at, dated), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(dated, filepath.Join(at, "..data")); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(at, dated, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
		if err := os.Chown(path, 0, group); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
		if err := os.Symlink("..data/"+name, filepath.Join(at, name)); err != nil {
			return err
		}
	}
	return nil
}

// claim returns the folder of the volume that is bound to a claim.
func (k *kubelet) claim(ctx context.Context, namespace, name string, group int) (string, error) {
	c, err := k.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return "", err
	}
	v, err := k.client.CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName, meta.GetOptions{})
	if err != nil {
		return "", err
	}
	if v.Spec.HostPath == nil {
		return "", fmt.Errorf("the volume %s has no host path", v.Name)
	}
	return v.Spec.HostPath.Path, shared(v.Spec.HostPath.Path, group, 0o2775)
}
