package discovery

import (
	"slices"
	"strings"
	"testing"
)

func TestExpandsNodeLists(t *testing.T) {
	tests := []struct{ list, want, err string }{
		{"login", "login", ""},
		{"n1,n2", "n1 n2", ""},
		{"n[1-3]", "n1 n2 n3", ""},
		{"gpu-[008-011,020]", "gpu-008 gpu-009 gpu-010 gpu-011 gpu-020", ""},
		{"a[1,3-4]-ib,login.example", "a1-ib a3-ib a4-ib login.example", ""},
		{"r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02", ""},
		{"n[9-11]", "n9 n10 n11", ""},
		{"[1-2]", "1 2", ""},
		{"", "", "no host name"},
		{"a,,b", "", "no host name"},
		{"a[1-", "", "missing ]"},
		{"a[3-1]", "", `"3-1" is not a number`},
		{"a[]", "", `"" is not a number`},
		{"a[x]", "", `"x" is not a number`},
		{"a[1-2-3]", "", "is not a number"},
		{"a[1]]", "", "no host name"},
		{"a b", "", "no host name"},
		{"a[0-99999999]", "", "more than 65536 hosts"},
		{"a[0-999]b[0-999]", "", "more than 65536 hosts"},
		{"a[0-65535],b", "", "more than 65536 hosts"},
		{"a[0-9,0-65530]", "", "more than 65536 hosts"},
	}
	for _, test := range tests {
		t.Run(test.list, func(t *testing.T) {
			hosts, err := expandHosts(test.list)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got %v and error %v, want %q", hosts, err, test.err)
				}
				return
			}
			if err != nil || !slices.Equal(hosts, strings.Fields(test.want)) {
				t.Errorf("got %q (error %v), want %q", hosts, err, test.want)
			}
		})
	}
}

func TestExpandsTaskCounts(t *testing.T) {
	tests := []struct {
		list string
		want []int // nil: an error
	}{
		{"4", []int{4}},
		{"2(x3),1", []int{2, 2, 2, 1}},
		{"", nil},
		{"2(x0)", nil},
		{"2(x2", nil},
		{"0", nil},
		{"2(x99999999)", nil},
		{"9999999999", nil},
	}
	for _, test := range tests {
		t.Run(test.list, func(t *testing.T) {
			counts, err := expandCounts(test.list)
			if !slices.Equal(counts, test.want) || (err == nil) != (test.want != nil) {
				t.Errorf("got %v (error %v), want %v", counts, err, test.want)
			}
		})
	}
}
