package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"github.com/go-json-experiment/json"

	"leased/gateway/api"
)

const clusterPath = "/v1/cluster"

// Cluster returns the nodes behind the gateway's raftkv backend. ErrNotFound when
// it has none.
func (c *Client) Cluster(ctx context.Context) (*api.Cluster, error) {
	return read[api.Cluster](ctx, c, clusterPath, nil, func(r *api.Cluster) bool { return len(r.Nodes) > 0 })
}

// AddMember makes a node a member, or changes its address or whether it votes.
func (c *Client) AddMember(ctx context.Context, r api.AddMemberRequest) error {
	return c.administer(ctx, &call{method: http.MethodPost, path: clusterPath + "/members", body: always(r)})
}

// RemoveMember makes a node no member.
func (c *Client) RemoveMember(ctx context.Context, id string) error {
	return c.administer(ctx, &call{method: http.MethodDelete, path: clusterPath + "/members/" + url.PathEscape(id)})
}

// Transfer makes the node lead; "" lets the leader choose another one.
func (c *Client) Transfer(ctx context.Context, to string) error {
	return c.administer(ctx, &call{method: http.MethodPost, path: clusterPath + "/transfer", body: always(api.TransferRequest{To: to})})
}

// administer asks once: what was done to a cluster is looked at before it is done
// again.
func (c *Client) administer(ctx context.Context, sent *call) error {
	var got api.ClusterReply
	sent.once, sent.reach, sent.read = true, true, into(&got, func(r *api.ClusterReply) bool { return r.Outcome != "" })
	return c.do(ctx, sent)
}

// Backup writes a backup of the gateway's raftkv store to w, and returns an error
// unless it is whole: its checksum was compared. ctx bounds all of it.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	resp, err := c.stream(ctx, http.MethodGet, "/backup", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	sum := &trailer{to: w, sum: sha256.New()}
	if _, err := io.Copy(sum, resp.Body); err != nil {
		return newError(api.CodeUnavailable, "", withoutURL(err), "the backup broke off")
	}
	if !sum.right() {
		return newError(api.CodeUnavailable, "", errors.New("the checksum is wrong"), "the backup is not whole")
	}
	return nil
}

// Restore replaces the gateway's raftkv store by a backup. It is sent once, to the
// first server that takes it: a lost answer is ErrOutcomeUnknown.
func (c *Client) Restore(ctx context.Context, from io.Reader) (*api.RestoreReply, error) {
	resp, err := c.stream(ctx, http.MethodPost, "/restore", from)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got := new(api.RestoreReply)
	if err := json.UnmarshalRead(io.LimitReader(resp.Body, maxReply), got); err != nil || got.Outcome != api.OutcomeRestored {
		return nil, newError(api.CodeOutcomeUnknown, "", err, "the answer is not what the API promises")
	}
	return got, nil
}

// stream sends a request whose body or answer is long. The answer is a success.
func (c *Client) stream(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	if body != nil {
		body = io.NopCloser(body) // for the next server, if this one cannot be reached
	}
	for tried := 1; ; tried++ {
		at := c.server.Load()
		resp, connected, err := c.streamAt(ctx, c.servers[at%uint32(len(c.servers))], method, path, body)
		if err == nil || connected || ctx.Err() != nil || tried >= len(c.servers) {
			return resp, err
		}
		c.server.CompareAndSwap(at, at+1)
	}
}

// streamAt is stream at one server. Without a connection nothing of the body was read.
func (c *Client) streamAt(ctx context.Context, server, method, path string, body io.Reader) (_ *http.Response, reached bool, _ error) {
	sent := &call{changes: body != nil}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, method, server+clusterPath+path, body)
	if err != nil {
		return nil, true, fmt.Errorf("client: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", api.BackupMediaType)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, connected.Load(), sent.lost(connected.Load(), withoutURL(err)).err
	}
	if resp.StatusCode/100 == 2 {
		return resp, true, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return nil, true, sent.lost(true, err).err
	}
	return nil, true, sent.refusal(resp, text).err
}

// trailer passes on what it is given, and takes the last bytes for the checksum
// of the others.
type trailer struct {
	to   io.Writer
	sum  hash.Hash
	last []byte
}

// Write implements io.Writer.
func (t *trailer) Write(p []byte) (int, error) {
	t.last = append(t.last, p...)
	if n := len(t.last) - sha256.Size; n > 0 {
		t.sum.Write(t.last[:n])
		t.last = append(t.last[:0], t.last[n:]...)
	}
	return t.to.Write(p)
}

func (t *trailer) right() bool { return bytes.Equal(t.sum.Sum(nil), t.last) }
