// Package certs creates the certificates by which the machines of a run identify each other.
package certs
