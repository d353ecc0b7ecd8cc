package doctor

import "testing"

func TestFoldersThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if s := spaceOf("x", dir+"/not/yet"); s.Fault != "" || s.Free <= 0 || s.Path != dir+"/not/yet" {
		t.Errorf("a folder that does not exist: got %+v", s)
	}
	if s := spaceOf("x", "/proc/nothing"); s.Fault == "" {
		t.Errorf("a folder of /proc: got %+v, want a fault", s)
	}
}
