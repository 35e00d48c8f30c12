package s3log

import (
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
)

func TestMemory(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture { return fixture(serve(t, memoryStore(t))) })
}
