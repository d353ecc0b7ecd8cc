// Package nccl checks and tunes NCCL on these machines.
package nccl
