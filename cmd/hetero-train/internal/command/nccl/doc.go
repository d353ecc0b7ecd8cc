// Package nccl checks and tunes NCCL on the machines of a run.
package nccl
