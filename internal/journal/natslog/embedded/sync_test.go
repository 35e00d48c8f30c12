package embedded

import "testing"

// TestEveryWriteIsSynced: the server that Open says syncs every write is set up to do so. Only
// a crash of the machine would show it.
func TestEveryWriteIsSynced(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if is := s.server.JetStreamConfig(); !is.SyncAlways {
		t.Errorf("the server syncs every %v", is.SyncInterval)
	}
}
