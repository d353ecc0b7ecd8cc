// Package selftest checks devices and communicators with the conformance suites of engine.
package selftest
