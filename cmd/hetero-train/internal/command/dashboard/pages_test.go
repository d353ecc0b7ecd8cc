package dashboard

import (
	"net"
	"os"
	"testing"
)

func TestPrintedAddressesWorkInABrowser(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ip     string
		secure bool
		want   string
	}{
		{"127.0.0.1", false, "http://localhost:8501/"},
		{"::1", true, "https://localhost:8501/"},
		{"10.0.0.7", false, "http://10.0.0.7:8501/"},
		{"fd00::1", false, "http://[fd00::1]:8501/"},
		{"0.0.0.0", false, "http://localhost:8501/, from other machines http://" + name + ":8501/"},
		{"::", true, "https://localhost:8501/, from other machines https://" + name + ":8501/"},
	} {
		if got := pagesOf(&net.TCPAddr{IP: net.ParseIP(c.ip), Port: 8501}, c.secure); got != c.want {
			t.Errorf("%s: got %s, want %s", c.ip, got, c.want)
		}
	}
}
