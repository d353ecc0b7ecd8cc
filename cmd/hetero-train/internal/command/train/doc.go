// Package train is the command that trains: its flags, and what it says before the run starts.
package train
