package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"leased/cmd/leased/supervise"
)

// superviseName is the word that makes this program the process between `leased
// run` and its command.
const superviseName = "supervise"

func newSupervise(e *env) *cobra.Command {
	return &cobra.Command{
		Use: superviseName + " SOCKET", Hidden: true,
		Short: "Run a command for leased run, which starts this",
		Args:  exactly("SOCKET"),
		RunE: func(_ *cobra.Command, args []string) error {
			fd, err := strconv.ParseUint(args[0], 10, 31)
			if err != nil {
				return usagef("SOCKET is not the number of an open file: leased run starts this command")
			}
			_, give := e.takeSignals(nil) // they are for others, and must not end this
			defer give()
			return supervise.Main(uintptr(fd))
		},
	}
}
