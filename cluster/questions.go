package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// What nodes ask each other about the cluster itself, under protoMembers.
const (
	pathReport = "/v1/report" // who are you and how are you
	pathTerm   = "/v1/term"   // which term have you heard of
	pathFound  = "/v1/found"  // take part in this first configuration
	pathJoin   = "/v1/join"   // belong to this cluster from now on
	pathAdmit  = "/v1/admit"  // to the leader: give me my place
	pathChange = "/v1/change" // to the leader: do this for an operator

	// surveyTimeout bounds a question to all members.
	surveyTimeout = time.Second
	// maxAnswer bounds an answer, and a question; both are small.
	maxAnswer = 64 << 10
)

// report is what a node says of itself.
type report struct {
	ServerID  string   `json:"server_id"`
	ClusterID string   `json:"cluster_id"`
	Member    bool     `json:"member"`
	Members   []string `json:"members"` // ids in its configuration file, in order
	Address   string   `json:"address"`
	Role      string   `json:"role"`
	Leader    string   `json:"leader"`
	Waiting   string   `json:"waiting,omitempty"` // for its place in the cluster
	Term      uint64   `json:"term"`

	LastIndex     uint64    `json:"last_index"`
	CommitIndex   uint64    `json:"commit_index"`
	AppliedIndex  uint64    `json:"applied_index"`
	LastContactMS int64     `json:"last_contact_ms"` // -1 for never
	SnapshotIndex uint64    `json:"snapshot_index"`
	SnapshotTime  time.Time `json:"snapshot_time"`
	LogBytes      int64     `json:"log_bytes"`
	LogError      string    `json:"log_error,omitempty"` // why it cannot be written
	// CommandVersion is the highest version of a command that its FSM applies; 0, of
	// a release that did not tell, means 1.
	CommandVersion int `json:"command_version,omitempty"`

	err error // why there is no report
}

type joinRequest struct {
	ClusterID string `json:"cluster_id"`
	Voter     bool   `json:"voter"`
}

type admitRequest struct {
	NodeID   string `json:"node_id"`
	ServerID string `json:"server_id"`
	Address  string `json:"address"`
	Voter    bool   `json:"voter"` // what it was told to become
}

type admission struct {
	Next string `json:"next"` // what is being done
}

type changeRequest struct {
	Do      string `json:"do"`
	NodeID  string `json:"node_id"`
	Address string `json:"address,omitempty"`
	Voter   bool   `json:"voter,omitempty"`
}

type termAnswer struct {
	ServerID  string `json:"server_id"`
	Term      uint64 `json:"term"`
	LastIndex uint64 `json:"last_index,omitempty"` // 0 of a release that did not tell
}

// report returns what this node says of itself.
func (n *Node) report() report {
	s := n.Status()
	r := report{
		ServerID: string(n.raftID), ClusterID: s.ClusterID, Member: n.storage.id.get().member(),
		Members: slices.Sorted(maps.Keys(n.cfg.Members)), Address: n.address,
		Role: s.Role, Leader: s.LeaderID, Term: s.Term, Waiting: s.Waiting,
		LastIndex: s.LastIndex, CommitIndex: s.CommitIndex, AppliedIndex: s.AppliedIndex, LastContactMS: -1,
		SnapshotIndex: s.SnapshotIndex, SnapshotTime: s.SnapshotTime, LogBytes: s.LogBytes, LogError: s.LogError,
		CommandVersion: n.cfg.CommandVersion,
	}
	switch {
	case s.Role == roleLeader:
		r.LastContactMS = 0
	case !s.LastContact.IsZero():
		r.LastContactMS = time.Since(s.LastContact).Milliseconds()
	}
	return r
}

// questions answers other nodes.
func (n *Node) questions() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathReport, func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, n.report()) })
	mux.HandleFunc("GET "+pathTerm, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, termAnswer{ServerID: string(n.raftID), Term: n.raft.CurrentTerm(), LastIndex: n.raft.LastIndex()})
	})
	mux.HandleFunc("POST "+pathFound, taking(func(_ context.Context, f *founding) (struct{}, error) {
		return struct{}{}, n.agree(f)
	}))
	mux.HandleFunc("POST "+pathJoin, taking(func(_ context.Context, j *joinRequest) (struct{}, error) {
		return struct{}{}, n.belong(j)
	}))
	mux.HandleFunc("POST "+pathAdmit, taking(n.admit))
	mux.HandleFunc("POST "+pathChange, taking(func(ctx context.Context, c *changeRequest) (struct{}, error) {
		return struct{}{}, n.changeHere(ctx, c)
	}))
	return mux
}

// taking decodes a question, and answers an error with its reason and the status
// that tells what kind of error it is.
func taking[Q, A any](do func(context.Context, *Q) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		question := new(Q)
		if err := json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(question); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := do(r.Context(), question)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		answerJSON(w, answer)
	}
}

func answerJSON(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) //nolint:errchkjson // the peer sees the cut connection
}

// statusOf and kindOf carry what kind of error it is from node to node.
func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrUnreachable):
		return http.StatusFailedDependency
	case errors.Is(err, ErrNoMember):
		return http.StatusGone
	case errors.Is(err, ErrInvalid):
		return http.StatusUnprocessableEntity
	case errors.Is(err, ErrRefused):
		return http.StatusPreconditionFailed
	case errors.Is(err, raft.ErrNotLeader):
		return http.StatusMisdirectedRequest
	}
	return http.StatusConflict
}

func kindOf(status int) error {
	switch status {
	case http.StatusFailedDependency:
		return ErrUnreachable
	case http.StatusGone:
		return ErrNoMember
	case http.StatusUnprocessableEntity:
		return ErrInvalid
	case http.StatusPreconditionFailed:
		return ErrRefused
	case http.StatusMisdirectedRequest:
		return raft.ErrNotLeader
	}
	return nil
}

// peerError is a peer's answer that it does not do what it was asked.
type peerError struct {
	text string
	kind error // nil for most
}

// Error implements error.
func (e *peerError) Error() string { return e.text }

// Unwrap returns the kind of error.
func (e *peerError) Unwrap() error { return e.kind }

// askPeer sends question, or nothing when it is nil, to a node.
func (n *Node) askPeer(ctx context.Context, node, path string, question, answer any) error {
	method, body := http.MethodGet, []byte(nil)
	if question != nil {
		content, err := json.Marshal(question)
		if err != nil {
			return err
		}
		method, body = http.MethodPost, content
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+node+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := roundTripper{n.peers.members}.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	content, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return &peerError{text: strings.TrimSpace(string(content)), kind: kindOf(res.StatusCode)}
	}
	return json.Unmarshal(content, answer)
}

// askLog returns where the log of a server ends, 0 when it does not say.
func (n *Node) askLog(ctx context.Context, server raft.ServerID) uint64 {
	var a termAnswer
	if err := n.askPeer(ctx, nodeOf(string(server)), pathTerm, nil, &a); err != nil || a.ServerID != string(server) {
		return 0
	}
	return a.LastIndex
}

// tellPeer is askPeer where nothing but success is of interest.
func (n *Node) tellPeer(ctx context.Context, node, path string, question any) error {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	return n.askPeer(ctx, node, path, question, new(struct{}))
}

// survey asks nodes for their reports, all at once. Each has an entry, with an
// error for one that did not answer in time.
func (n *Node) survey(ctx context.Context, nodes []string) map[string]report {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	found := make([]report, len(nodes))
	var asked sync.WaitGroup
	for i, node := range nodes {
		asked.Go(func() {
			if n.port == nil {
				found[i].err = errNoPeerPort
				return
			}
			err := n.askPeer(ctx, node, pathReport, nil, &found[i])
			if err != nil {
				found[i] = report{err: brief(err)}
			}
		})
	}
	asked.Wait()
	reports := make(map[string]report, len(nodes))
	for i, node := range nodes {
		reports[node] = found[i]
	}
	return reports
}

// brief makes of what a dial to several addresses says one line.
func brief(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer")
	}
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// belong makes this node one of a cluster, for ever: its leader says so.
func (n *Node) belong(j *joinRequest) error {
	return n.storage.id.change(func(id *identity) error {
		if id.member() && id.ClusterID != j.ClusterID {
			return fmt.Errorf("node %s belongs to cluster %s", id.NodeID, id.ClusterID)
		}
		id.ClusterID, id.Voter, id.Pending = j.ClusterID, j.Voter, nil
		id.Joined = !id.Founded
		return nil
	})
}
