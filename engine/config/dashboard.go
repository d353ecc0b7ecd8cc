package config

// Dashboard contains the keys of table [dashboard].
type Dashboard struct {
	Enabled        bool
	Address        string
	Port           int
	RefreshSeconds int // seconds; 0: update after each change
	Hosts          []string
	TokenFile      string
	Insecure       bool
	BasePath       string // "" or such as "/user/me/proxy/8501"
	CertFile       string
	KeyFile        string
}

// Keys implements [Options].
func (d *Dashboard) Keys() []Key {
	return each(Key.Operational, []Key{
		Bool(&d.Enabled, "enabled", false).
			Doc("Starts the dashboard with the training, and ends it with the training. It shows all runs of `experiment.output_dir`. `hetero-train dashboard` shows the same page at any time."),
		String(&d.Address, "address", "127.0.0.1").Host("dashboard.port").
			Doc("Address to listen on. To admit clients on other machines, set an address of this machine or `0.0.0.0`, and a token."),
		Int(&d.Port, "port", 8501).AtMost(65535).
			Doc("TCP port. 0: any free port."),
		Int(&d.RefreshSeconds, "refresh_seconds", 0).Unit("s").AtMost(30).
			Doc("Time between two updates of the page. 0: the page is updated as soon as a run changes."),
		Strings(&d.Hosts, "hosts").
			Doc("Further host names under which browsers reach the server, for example that of a proxy. Requests for other names, and requests of pages of other hosts, are refused."),
		String(&d.BasePath, "base_path", "").
			Doc("Path below which a proxy serves the page, such as `/user/me/proxy/8501/`, if the proxy does not remove this path from the requests. Requests without this path are served, too. Empty: the proxy removes its path, or there is no proxy."),
		String(&d.CertFile, "cert_file", "").Path().
			Doc("Certificate of the server (PEM, followed by the certificates of intermediate authorities). With `key_file`, the server accepts only HTTPS. A new certificate in this file is used without a restart. `hetero-train certs` makes both files. Empty: plain HTTP."),
		String(&d.KeyFile, "key_file", "").Path().
			Doc("Private key of `cert_file` (PEM). The permissions must be those of `token_file`: only the owner, or, for a file of root, also its group."),
		String(&d.TokenFile, "token_file", "").Path().
			Doc("File with the secret that a browser must send. Only the owner may have access to the file. If the owner is root, the group may read the file, too. Empty: the environment variable `HETERO_DASHBOARD_TOKEN`. If other machines can reach the address and there is no token, `hetero-train dashboard` makes one and prints it, and `train --dashboard` refuses to start."),
		Bool(&d.Insecure, "insecure", false).
			Doc("Lets other machines read without a token."),
	})
}
