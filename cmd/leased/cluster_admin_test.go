package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"leased/backends/raftkv"
	"leased/cluster"
	"leased/contract"
	"leased/gateway"
	"leased/gateway/api"
	"leased/test/proc"
)

// TestClusterAdmin_refused: a change of the cluster that was certainly not made is
// never answered as one that may have been, and one that makes no sense names the
// field.
func TestClusterAdmin_refused(t *testing.T) {
	node, err := cluster.Open(t.Context(), cluster.Config{NodeID: "n1", DataDir: t.TempDir(), Listen: "127.0.0.1:0"}, raftkv.NewFSM())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	proc.Until(t, "the node leads", proc.Patience, func() bool { term, _ := node.Leadership(); return term != 0 })
	c := &clusterAdmin{node: node}
	add := func(id string) error {
		return c.AddMember(t.Context(), &api.AddMemberRequest{ID: id, Address: "127.0.0.1:1"})
	}
	for name, tt := range map[string]struct {
		err   error
		code  contract.Code
		field string
	}{
		"add with a blank in the id": {add("n 5"), contract.CodeInvalid, "id"},
		"add with a long id":         {add(strings.Repeat("n", 65)), contract.CodeInvalid, "id"},
		"add the one that leads":     {add("n1"), contract.CodeInvalid, "id"},
		"add one that is not there":  {add("n2"), contract.CodeUnavailable, ""},
		"remove the only one":        {c.RemoveMember(t.Context(), "n1"), contract.CodeUnavailable, ""},
		"transfer to nobody":         {c.Transfer(t.Context(), ""), contract.CodeUnavailable, ""},
	} {
		var got *contract.Error
		if !errors.As(tt.err, &got) || got.Code != tt.code || got.Field != tt.field {
			t.Errorf("%s: got %v, want %v of field %q", name, tt.err, tt.code, tt.field)
		}
	}
	for name, err := range map[string]error{
		"remove": c.RemoveMember(t.Context(), "n9"), "transfer": c.Transfer(t.Context(), "n9"),
	} {
		if err == nil || err.Error() != gateway.NotFound("no member has this id; GET /v1/cluster lists them").Error() {
			t.Errorf("%s of a node that is no member: got %v, want not_found", name, err)
		}
	}
	if members := node.Members(t.Context()); len(members) != 1 {
		t.Errorf("after all of them: %+v", members)
	}
	// Without a leader nothing is decided either.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := changeError(ctx, "id", cluster.ErrClosed); contract.CodeOf(err) != contract.CodeClosed {
		t.Errorf("a node that stops: got %v", err)
	}
}
