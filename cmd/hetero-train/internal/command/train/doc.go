// Package train is the command that trains: its flags, and its messages before the run starts.
package train
