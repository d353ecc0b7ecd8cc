package config

import "fmt"

// Metrics is the [metrics] table.
type Metrics struct {
	Address   string // "" = no server
	Ranks     string // first, all
	TokenFile string
	Insecure  bool
	CertFile  string
	KeyFile   string
	MaxBytes  int // largest total size of all files of records; 0: no limit
}

// ServedBy reports whether a rank serves metrics.
func (m *Metrics) ServedBy(rank int) bool { return m.Address != "" && (m.Ranks == "all" || rank == 0) }

// Keys lists the table's keys.
func (m *Metrics) Keys() []Key {
	on := IsNot("metrics.address", "")
	return each(Key.Operational, []Key{
		String(&m.Address, "address", "").
			Doc("Address on which the run serves `/metrics` for Prometheus, such as `127.0.0.1:9464`. Port 0: any free port, which the log names. To admit other machines, set an address of this machine or `0.0.0.0`, and a token. Empty: no metrics."),
		Choice(&m.Ranks, "ranks", "first", "first", "all").Only(on).
			Doc("`first`: rank 0 serves the metrics of all ranks. `all`: each rank serves its own metrics, on the port of `address` plus its local rank."),
		String(&m.TokenFile, "token_file", "").Path().Only(on).
			Doc("File with the secret that a scraper sends (`authorization` in Prometheus). Only the owner may have access to the file. If the owner is root, the group may read the file, too. Empty: the environment variable `HETERO_METRICS_TOKEN`."),
		String(&m.CertFile, "cert_file", "").Path().Only(on).
			Doc("Certificate of the server (PEM, followed by the certificates of intermediate authorities). With `key_file`, the server accepts only HTTPS (`scheme: https` in Prometheus). A new certificate in this file is used without a restart. `hetero-train certs` makes both files. Empty: plain HTTP."),
		String(&m.KeyFile, "key_file", "").Path().Only(on).
			Doc("Private key of `cert_file` (PEM). The permissions must be those of `token_file`: only the owner, or, for a file of root, also its group."),
		Bool(&m.Insecure, "insecure", false).Only(on).
			Doc("Lets other machines read the metrics without a token. Every start logs a warning."),
		Int(&m.MaxBytes, "max_bytes", 4<<30).Unit("bytes").AtMost(1 << 50).
			Doc("Largest size of all files of records in the folder of logs together: `rank_<r>_metrics.json`, `balance.jsonl`, `events.jsonl`, `communication.jsonl`, `norms.jsonl`. Each file has an equal part. A file that reaches its part loses records of older steps: the older the steps, the fewer of them have a record. All reports still cover the whole run (`docs/reports.md`). 0: no limit; else at least 1048576."),
	})
}

const (
	// lineFiles is the number of files of records that do not belong to a rank: decisions, events, communication,
	// norms.
	lineFiles = 4
	// leastFileBytes is the smallest permitted size limit of a file. It is enough for the records of about 80 steps.
	leastFileBytes = 64 << 10
)

// FileBytes returns the size limit of one file of records in bytes. The parameter ranks is the number of ranks of the
// run. If there is no limit, FileBytes returns 0. MaxBytes is divided equally among the files of the run. One
// additional part is reserved for the file that replaces another one.
func (m *Metrics) FileBytes(ranks int) int { return m.MaxBytes / (max(ranks, 1) + lineFiles + 1) }

// checkRanks refuses a limit that is too small for the files of all ranks.
func (m *Metrics) checkRanks(ranks int) *Fault {
	f := unless(m.MaxBytes == 0 || m.FileBytes(ranks) >= leastFileBytes,
		fmt.Sprintf("too small for the files of records of %d ranks", ranks),
		fmt.Sprint(m.MaxBytes), fmt.Sprintf("0 or at least %d", (ranks+lineFiles+1)*leastFileBytes))
	if f != nil {
		f.Key = "metrics.max_bytes"
	}
	return f
}
