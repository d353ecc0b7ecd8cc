// Package dashboard contains the command that serves the web page about runs.
package dashboard
