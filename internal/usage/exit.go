package usage

import (
	"errors"
	"fmt"
)

// Exit is an error that ends the program with this code, and of which nothing is printed:
// the command has printed all that there is to say.
type Exit int

// Error implements error.
func (e Exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// coded is an error with the exit code that it ends the program with.
type coded struct {
	error
	code int
}

// WithCode returns err, which is not nil, as an error that is printed and ends the program
// with this code in place of 1.
func WithCode(err error, code int) error { return coded{err, code} }

// Unwrap returns the error without its code.
func (c coded) Unwrap() error { return c.error }

// ExitCode is the code that err, which is not nil, ends the program with, and whether err is to
// be printed.
func ExitCode(err error) (code int, printed bool) {
	if silent := Exit(0); errors.As(err, &silent) {
		return int(silent), false
	}
	if c := (coded{}); errors.As(err, &c) {
		return c.code, true
	}
	return 1, true
}
