package etcdapi

import (
	"strings"
	"testing"
)

func TestListenRefusesTheWorld(t *testing.T) {
	for _, host := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "http://192.0.2.1:0"} {
		lis, err := Address{Host: host}.Listen()
		if err == nil {
			lis.Close()
			t.Errorf("%s: open to whoever reaches it", host)
		} else if !strings.Contains(err.Error(), "open to whoever reaches it") {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestListenOnThisMachine(t *testing.T) {
	for host, want := range map[string]string{"127.0.0.1:0": "http://127.0.0.1:", "http://127.0.0.1:0": "http://127.0.0.1:", "unix://" + t.TempDir() + "/s": "unix:///"} {
		lis, err := Address{Host: host}.Listen()
		if err != nil {
			t.Fatal(err)
		}
		if got := lis.URL(); !strings.HasPrefix(got, want) {
			t.Errorf("%s is served at %s, want %s...", host, got, want)
		}
		lis.Close()
	}
}
