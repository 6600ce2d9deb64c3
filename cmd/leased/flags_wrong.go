package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError returns what the library says of a flag for a person: of a value that
// cannot be read it would show the names of Go functions.
func flagError(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return &usageError{err}
	}
	what := "cannot be read"
	switch wrong.GetFlag().Value.Type() {
	case "duration":
		what = notDuration
	case "uint", "uint64":
		what = "is not a whole number, not negative"
	case "int":
		what = "is not a whole number"
	case "bool":
		what = "is neither true nor false"
	}
	return usagef("--%s: %q %s", wrong.GetFlag().Name, wrong.GetValue(), what)
}

// notEmpty refuses a flag that is given and says nothing, as a script gives it
// whose variable is not set: taken for "not given", an empty filter would list
// everything, an empty namespace change leases in another one, and an empty
// request id let a retry do its work twice. Settings of the configuration may be
// empty, and say so: --audit.file= is no file.
func notEmpty(flags *pflag.FlagSet) error {
	var err error
	flags.Visit(func(flag *pflag.Flag) {
		if _, setting := flag.Value.(*settingValue); !setting && saysNothing(flag.Value) && err == nil {
			err = usagef("--%s is empty; leave it out, or give it a value", flag.Name)
		}
	})
	return err
}

// saysNothing reports whether a value, or one of a list, is empty. The text of a list
// is not, whatever is in it.
func saysNothing(v pflag.Value) bool {
	list, ok := v.(pflag.SliceValue)
	if !ok {
		return v.String() == ""
	}
	return slices.Contains(list.GetSlice(), "")
}

// newHelp is the library's help command, but for one thing: it does not show the
// help of something else when there is no such command.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, _, err := root.Find(args)
			switch {
			case err != nil:
				return &usageError{err}
			case cmd == root && len(args) > 0:
				return root.Args(root, args)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
