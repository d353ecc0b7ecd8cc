// Package signals turns the signals that end or save a run into contexts and requests.
package signals
