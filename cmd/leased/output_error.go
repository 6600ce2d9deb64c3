package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"leased/client"
	"leased/gateway/api"
)

// printError tells the person at the terminal what happened, who has the key,
// and what to do. With --json a refusal is the API's problem, on one line.
func printError(e *env, cmd *cobra.Command, err error) {
	if _, ok := errors.AsType[*commandError](err); ok {
		return
	}
	asJSON, flagErr := cmd.Flags().GetBool("json")
	asJSON = asJSON && flagErr == nil
	if _, ok := errors.AsType[*lostRunError](err); ok {
		if !asJSON {
			e.complain("error: the lease was lost; what the command did last may have been refused\n")
		}
		return
	}
	if _, ok := errors.AsType[*toldError](err); ok && asJSON {
		return
	}
	if refused, ok := errors.AsType[*client.Error](err); ok {
		printRefusal(e, cmd, refused)
		return
	}
	if wrong, ok := errors.AsType[problems](err); ok {
		for _, line := range wrong {
			e.complain("error: %s\n", line)
		}
		return
	}
	e.complain("error: %v\n", err)
	if _, ok := errors.AsType[*usageError](err); ok {
		e.complain("see %s --help\n", cmd.CommandPath())
	}
}

// complain writes to standard error. That is the last resort: when it is gone,
// nobody can be told.
func (e *env) complain(format string, args ...any) {
	_, _ = fmt.Fprintf(e.stderr, format, args...)
}

func printRefusal(e *env, cmd *cobra.Command, refused *client.Error) {
	p := &refused.Problem
	if asJSON, err := cmd.Flags().GetBool("json"); err == nil && asJSON {
		if text, err := json.Marshal(p); err == nil {
			e.complain("%s\n", text)
			return
		}
	}
	b := block{headline: fmt.Sprintf("error: %s (%s)", headline(p), clean(string(p.Code)))}
	if !strings.HasPrefix(p.Detail, p.Field) {
		b.add("field", clean(p.Field))
	}
	if p.Holder == nil { // else the lines below say the same
		b.add("detail", clean(p.Detail))
	}
	if refused.Err != nil {
		b.add("cause", clean(cause(refused)))
	}
	if h := p.Holder; h != nil {
		holder := clean(h.Owner) + ", instance " + clean(h.Instance)
		if h.JobID != "" {
			holder += ", job " + clean(h.JobID)
		}
		b.add("holder", holder)
		b.add("since", instant(h.AcquiredAt))
		b.add("until", fmt.Sprintf("in %s, unless it is renewed", milliseconds(h.ExpiresInMS)))
	}
	if p.Queue != nil {
		b.add("queue", strconv.Itoa(p.Queue.Length)+" waiting")
	}
	if p.Lease != nil {
		b.add("lease", clean(p.Lease.LeaseID))
		b.add("ended", ending(p.Lease))
	}
	if p.RetryAfterMS > 0 {
		b.add("try again", "in "+milliseconds(p.RetryAfterMS))
	}
	if wait := cmd.Flags().Lookup("wait"); wait != nil && wait.Changed && p.Code == api.CodeConflict {
		b.add("what to do", "wait longer than "+wait.Value.String()+", or ask its holder")
	} else {
		b.add("what to do", advice(cmd, refused))
	}
	b.add("request", clean(p.RequestID))
	_ = b.print(e.stderr) // as complain
}

// clusterAdvice is for the commands about nodes, which have no request id and no
// namespace.
func clusterAdvice(p *api.Problem, answered bool) string {
	switch {
	case p.Code == api.CodeOutcomeUnknown:
		return "see what was done with leased cluster status before you repeat it"
	case p.Code == api.CodeNotFound:
		return "compare the id with leased cluster status, and --server"
	case p.Code == api.CodeUnavailable && answered:
		return "see leased cluster status for what the detail names; then try again"
	default:
		return ""
	}
}

// cause returns what lies behind a refusal of the client's own making, without
// the request id, which has a line of its own.
func cause(refused *client.Error) string {
	if errors.Is(refused.Err, context.Canceled) {
		return "this command was interrupted"
	}
	var parts []string
	for line := range strings.SplitSeq(refused.Err.Error(), "\n") {
		if line != context.DeadlineExceeded.Error() {
			parts = append(parts, strings.TrimSuffix(line, " (request "+refused.Problem.RequestID+")"))
		}
	}
	if len(parts) == 0 {
		return "the time given by --timeout is over"
	}
	return strings.Join(parts, "; ")
}

// headline says what happened. The server's title is for those codes that need
// no more than it says.
func headline(p *api.Problem) string {
	switch p.Code {
	case api.CodeConflict:
		return "the key is held by another"
	case api.CodeNotOwner:
		return "the lease is held by another owner or instance"
	case api.CodeStaleToken:
		return "the token is not the current one"
	case api.CodeNotFound:
		return "there is no such lease or key, or it ended too long ago to be remembered"
	case api.CodeInvalid:
		return "the server calls the request invalid"
	case api.CodeUnavailable:
		return "unavailable; nothing was applied"
	case api.CodeClosed:
		return "the server is shutting down; nothing was applied"
	case api.CodeTimeout:
		return "the time was over before the server could act; nothing was applied"
	case api.CodeOutcomeUnknown:
		return "it is not known whether this was done"
	default:
		if p.Title == "" {
			return "the server refused"
		}
		return strings.ToLower(p.Title[:1]) + clean(p.Title[1:])
	}
}

func advice(cmd *cobra.Command, refused *client.Error) string {
	p := &refused.Problem
	answered := refused.Err == nil
	if cmd.Parent() != nil && cmd.Parent().Name() == "cluster" {
		if text := clusterAdvice(p, answered); text != "" {
			return text
		}
	}
	switch p.Code {
	case api.CodeUnavailable, api.CodeClosed:
		if answered {
			return "see what the server's /readyz and its log say, or name another one with --server; then try again"
		}
		return "see that the server runs and that --server names it; then try again"
	case api.CodeConflict:
		return "queue for it with --wait 1m, or ask its holder"
	case api.CodeExpired, api.CodeReleased, api.CodeRevoked:
		return "stop the work, since another may hold the key; then acquire it again"
	case api.CodeStaleToken:
		return "stop the work that has this token; a newer lease of the key may be active"
	case api.CodeNotOwner:
		return "name the --instance that acquired it, which is this host's name where none was given"
	case api.CodeNotFound:
		return "compare the id, and --namespace"
	case api.CodeUnknownNamespace:
		return "compare --namespace with the namespaces in the server's configuration"
	case api.CodeTimeout:
		return "try again, with a longer --timeout"
	case api.CodeOutcomeUnknown:
		return "find out with the same command and --request-id " + clean(p.RequestID)
	case api.CodeUnauthenticated, api.CodeDenied:
		return "name a credential that has the right, with --token-file"
	case api.CodeRequestIDReused:
		return "leave --request-id out, or use a new one"
	case api.CodeQuotaExceeded, api.CodeRateLimited:
		return "release what is not needed, or try again later"
	case api.CodeInternal:
		return "look in the server's log for the request id"
	default:
		return ""
	}
}
