// Package dashboard serves the web page about runs.
package dashboard
