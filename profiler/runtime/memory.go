package runtime

import "github.com/hetero-train/hetero-train/engine/memory"

// MemoryFile is the name of the file with the planned memory of all ranks, in the folder of logs. Each process that
// starts or resumes the run replaces it.
const MemoryFile = "memory.json"

// Memory is the content of MemoryFile.
type Memory struct {
	Start string       `json:"start"` // ID of the process that wrote the file, as in its result
	Step  int64        `json:"step"`  // number of completed steps when the process started, as in its StartEvent
	Ranks []RankMemory `json:"ranks"`
}

// RankMemory is the planned memory of a rank.
type RankMemory struct {
	memory.Account
	// MeasuredOf is the memory in bytes that corresponds to 100 % in the records of the rank. It is 0 for a GPU rank:
	// its percentages refer to the memory of the GPU, which other processes also use.
	MeasuredOf int64 `json:"measured_of_bytes,omitempty"`
}
