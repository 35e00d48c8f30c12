package usage

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// Log says what the commands of a program log, and how.
type Log struct{ level, format string }

// Register adds the flags to cmd and to every command below it.
func (l *Log) Register(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	fs.StringVar(&l.level, "log-level", "info", "what to log on standard error: debug, info, warn or error")
	fs.StringVar(&l.format, "log-format", "text", "how to log: text or json")
	OneOf(cmd, "log-level", "debug", "info", "warn", "error")
	OneOf(cmd, "log-format", "text", "json")
}

// Logger logs to w as the flags say.
func (l *Log) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, fmt.Errorf("--log-level is %q; want debug, info, warn or error", l.level)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	default:
		return nil, fmt.Errorf("--log-format is %q; want text or json", l.format)
	}
}
