// Package kubernetes reads the queue and the nodes of a Kubernetes cluster, and starts suspended jobs on chosen nodes.
//
// It runs kubectl, so the usual kubeconfig, cloud plug-ins and service accounts work. It reads with `kubectl get
// --raw`.
//
// Kubernetes permits changes of the placement of a batch/v1 Job only while the job is suspended. The pending jobs of
// the snapshot are therefore the suspended Jobs that request GPUs. All GPUs of a Job's parallel pods form one gang. The
// snapshot also lists Pods without a node, with the reason why their placement cannot change.
//
// A Job opts in with the label hetero-train/schedule=true. The package never starts a Job that has an owner or Kueue's
// label, or that another controller manages. The snapshot lists such Jobs with the reason. The unused part of a
// namespace's quotas (GPUs, CPU, memory, pods) is a budget, which the proposed Jobs use up in their order.
//
// [Client.Apply] patches a Job: a required node affinity on the chosen nodes, and suspend = false. The patch contains
// the version that was read, so it fails if the Job has changed since then.
//
// The annotations hetero-train/kind and hetero-train/steps of a Job state its kind in the speed table and its number of
// steps.
package kubernetes
