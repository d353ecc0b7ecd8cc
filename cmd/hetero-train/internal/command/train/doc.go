// Package train contains the command that trains a model: its flags, and the messages before the run starts.
package train
