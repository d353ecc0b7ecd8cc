// Package signals converts signals into canceled contexts and requests to save.
package signals
