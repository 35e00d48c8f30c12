// Command build builds programs that tests and benchmarks run, by their names,
// and prints their paths. It never runs one.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/xbernetes/xbernetes/test/lab/program"
)

func main() {
	for _, name := range os.Args[1:] {
		fmt.Fprintln(os.Stderr, "building", name)
		file, err := program.Path(context.Background(), name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(file)
	}
}
