package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leased/gateway/api"
)

func newClusterBackup(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the whole store to a file",
		Long: `Write the whole store, as it is at one moment, to a file; "-" is standard output.
The file is complete, and its checksum right, or it is not there. It holds leases,
histories and the answers to request ids of all namespaces on the raftkv store,
and no credential: protect it as you protect the names of owners and targets.`,
		Example: `  leased cluster backup leased-$(date +%F).backup
  leased cluster backup - | ssh vault 'cat > leased.backup'`,
		Args: exactly("FILE"),
	}
	f := addClientFlags(e, cmd)
	longTimeout(f, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		progress := newProgress(e, f.json, "received")
		defer progress.stop()
		if args[0] == "-" {
			return c.Backup(ctx, io.MultiWriter(e.stdout, progress))
		}
		if err := writeWhole(args[0], func(w io.Writer) error { return c.Backup(ctx, io.MultiWriter(w, progress)) }); err != nil {
			return err
		}
		if f.json {
			return printJSON(e, map[string]any{"file": args[0], "bytes": progress.bytes})
		}
		_, err = fmt.Fprintf(e.stdout, "%s: %s, checksum verified\n", clean(args[0]), bytesText(progress.bytes))
		return err
	}
	return cmd
}

// longTimeout makes room for a store of any size.
func longTimeout(f *clientFlags, cmd *cobra.Command) {
	flag := cmd.Flags().Lookup("timeout")
	f.timeout, flag.DefValue = 10*time.Minute, "10m0s"
}

// writeWhole makes a file that is complete, or none, and replaces none.
func writeWhole(name string, write func(io.Writer) error) error {
	if _, err := os.Lstat(name); err == nil {
		return usagef("%s is there already; name another file", name)
	}
	temp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part")
	if err != nil {
		return err
	}
	err = write(temp)
	if err == nil {
		err = temp.Sync()
	}
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(temp.Name()) // the first error says more
	}
	return err
}

// progress counts bytes, and says how many once a second.
type progress struct {
	to    io.Writer // nil: says nothing
	what  string
	bytes int64
	last  time.Time
	said  bool
}

func newProgress(e *env, quiet bool, what string) *progress {
	p := &progress{what: what, last: time.Now()}
	if !quiet {
		p.to = e.stderr
	}
	return p
}

// Write implements io.Writer.
func (p *progress) Write(b []byte) (int, error) {
	p.bytes += int64(len(b))
	if p.to != nil && time.Since(p.last) >= time.Second {
		p.last, p.said = time.Now(), true
		_, _ = fmt.Fprintf(p.to, "\r%s %s ", bytesText(p.bytes), p.what)
	}
	return len(b), nil
}

func (p *progress) stop() {
	if p.said {
		_, _ = fmt.Fprintln(p.to)
	}
}

func newClusterRestore(e *env) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace the whole store by a backup",
		Long: `Replace the whole store of all nodes by a backup. What the store holds now is
lost. The backup is read whole and its checksum compared before anything changes.

Every lease in it ends as expired, with a reason: nobody who held one may go on.
Every token from now on is higher than every one before, in every namespace, so
that what compares tokens needs to know nothing of the restore. Histories are as
in the backup, and request ids repeat the answers of then.

Stop the workers first, or expect their leases to be lost under them. The command
asks for the id of the cluster, unless --yes is given.`,
		Example: `  leased cluster restore leased-2026-01-02.backup
  leased cluster restore leased-2026-01-02.backup --yes --json`,
		Args: exactly("FILE"),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	f := addClientFlags(e, cmd)
	longTimeout(f, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		file, err := os.Open(args[0])
		if err != nil {
			return &usageError{err}
		}
		defer func() { _ = file.Close() }()
		if !yes {
			now, err := c.Cluster(ctx)
			if err != nil {
				return err
			}
			if err := confirm(e, cmd.InOrStdin(), now.ClusterID); err != nil {
				return err
			}
		}
		progress := newProgress(e, f.json, "sent")
		got, err := c.Restore(ctx, io.TeeReader(file, progress))
		progress.stop()
		if err != nil {
			return err
		}
		if f.json {
			return printJSON(e, got)
		}
		return printRestored(e, got)
	}
	return cmd
}

// confirm has the id of the cluster typed whose store is to be replaced.
func confirm(e *env, in io.Reader, id string) error {
	_, _ = fmt.Fprintf(e.stderr, "This replaces everything in the store of cluster %s.\nType the id of the cluster to go on: ", clean(id))
	line, err := bufio.NewReader(in).ReadString('\n')
	switch {
	case err != nil && line == "":
		_, _ = fmt.Fprintln(e.stderr)
		return usagef("nothing was typed and nothing was done; give --yes where nobody can be asked")
	case strings.TrimSpace(line) != id:
		return usagef("that is not the id of the cluster; nothing was done")
	}
	return nil
}

func printRestored(e *env, r *api.RestoreReply) error {
	b := block{headline: r.Outcome}
	b.add("backup of", fmt.Sprintf("cluster %s at log entry %d, %s", clean(r.ClusterID), r.Index, instant(r.BackupTime)))
	b.add("leases ended", strconv.FormatInt(r.EndedLeases, 10))
	b.add("tokens from now on", "above "+strconv.FormatUint(r.Floor, 10))
	return b.print(e.stdout)
}
