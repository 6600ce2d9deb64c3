package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildVersion is what `leased version` tells.
type buildVersion struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Commit  string `json:"commit"` // "unknown" outside a checkout
}

func newVersion(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version, the Go release and the commit",
		Example: "  leased version",
		Args:    noArgs,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(*cobra.Command, []string) error {
		v := buildVersion{Version: e.version, Go: runtime.Version(), Commit: commit(debug.ReadBuildInfo())}
		if asJSON {
			return printJSON(e, v)
		}
		_, err := fmt.Fprintf(e.stdout, "leased %s\n  go      %s %s/%s\n  commit  %s\n", v.Version, v.Go, runtime.GOOS, runtime.GOARCH, v.Commit)
		return err
	}
	return cmd
}

func commit(info *debug.BuildInfo, ok bool) string {
	revision, modified := "unknown", ""
	if !ok {
		return revision
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " (modified)"
		}
	}
	return revision + modified
}
