// Package certs makes the certificates by which the machines of a run identify each other.
package certs
