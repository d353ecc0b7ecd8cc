package config

import (
	"strings"
	"testing"
)

func TestTextsThatCouldNameTwoPlacesAreRefused(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{ // want: part of the fault; "": accepted
		{"tracking.mlflow", "127.0.0.1:5000",
			`want "http://127.0.0.1:5000" for the server, or "./127.0.0.1:5000" for the folder`},
		{"tracking.mlflow", "localhost:5000", `"http://localhost:5000" for the server`},
		{"tracking.mlflow", "mlflow.example.com:80/base", `"http://mlflow.example.com:80/base"`},
		{"tracking.mlflow", "[::1]:5000", `"http://[::1]:5000"`},
		{"tracking.mlflow", "localhost", `"./localhost" for the folder`},
		{"tracking.mlflow", "10.0.0.1", `"http://10.0.0.1"`},
		{"tracking.mlflow", "points", ""}, // old runs have this value in their stored settings
		{"tracking.mlflow", "runs/mlflow", ""},
		{"tracking.mlflow", "./mlflow.example.com", ""},
		{"tracking.mlflow", "https:/127.0.0.1:5000",
			"want the address of a server such as http://127.0.0.1:5000, or a folder"},
		{"tracking.mlflow", "http//server:5000", "want the address of a server"},
		{"tracking.mlflow", "s3://bucket/x", "want the address of a server such as http://127.0.0.1:5000, or a folder"},
		{"tracking.mlflow", "~/mlruns", "only a shell replaces ~"},
		{"tracking.mlflow", "http://127.0.0.1:5000", ""},
		{"tracking.mlflow", "https://mlflow.example.com/base", ""},
		{"tracking.mlflow", "./127.0.0.1:5000", ""},
		{"tracking.mlflow", "mlruns", ""},
		{"tracking.mlflow", "/data/a:b/5000", ""},
		{"experiment.output_dir", "s3://bucket/runs", `got "s3://bucket/runs", want a path on this machine`},
		{"experiment.output_dir", "file:///data/runs", `want "/data/runs"`},
		{"experiment.output_dir", "~/runs", `got "~/runs", want the full path, or "./~/runs"`},
		{"experiment.output_dir", "~user/runs", "only a shell replaces ~"},
		{"experiment.output_dir", "run~1", ""},
		{"data.path", "a.tar::https://host/b.tar", `got "https://host/b.tar"`},
		{"data.path", "a.tar::b.tar", ""},
		{"train.resume", "~/run", "only a shell"},
		{"model.init_from", "https://host/w.safetensors", "a path cannot be a URL"},
		{"parallel.master_addr", "10.0.0.1:29500", `want "10.0.0.1" here and 29500 in parallel.master_port`},
		{"parallel.master_addr", "tcp://10.0.0.1:29500", `want "10.0.0.1" here and 29500`},
		{"parallel.master_addr", "http://node-a/", `is a URL (got "http://node-a/", want "node-a")`},
		{"parallel.master_addr", "fe80::1%eth0", ""},
		{"parallel.master_addr", "[::1]", ""},
		{"parallel.master_addr", "node-a.cluster", ""},
		{"dashboard.address", "127.0.0.1:8501", `want "127.0.0.1" here and 8501 in dashboard.port`},
		{"dashboard.address", "http://0.0.0.0:8501", `want "0.0.0.0" here and 8501`},
		{"dashboard.address", "::", ""},
	} {
		// Only a fault of the key itself counts, because the data set may lack this key.
		_, err := Parse("", nil, town, Override{Origin: "--set " + c.key, Key: c.key, Value: c.value},
			Override{Key: "data.dataset", Value: "images"}, Override{Key: "data.path", Value: pathOf(c.key, c.value)})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s = %s: got %v, want %q", c.key, c.value, err, c.want)
		}
	}
}

// pathOf returns value if key is data.path, otherwise a valid path.
func pathOf(key, value string) string {
	if key == "data.path" {
		return value
	}
	return "images"
}

func TestBareNamesThatMayBeServersAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"mlflow.example.com":   `"http://mlflow.example.com" for the server`,
		"databricks":           `"./databricks" for the folder`,
		"mlflow-server":        `"http://mlflow-server" for the server`,
		"mlruns":               "",
		"runs/mlflow":          "",
		"./mlflow.example.com": "",
		"http://mlflow":        "",
	} {
		err := CheckBareName(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
