package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"leased/contract"
	"leased/gateway/api"
)

// fakeCluster keeps what it was asked to do.
type fakeCluster struct {
	done     []string
	restored []byte
	err      error // what every change answers
	writeErr error // of a backup, after its first bytes
}

func (f *fakeCluster) Status(context.Context) (*api.Cluster, error) {
	return &api.Cluster{ClusterID: "c1", Term: 7, Leader: "n1", AppliedIndex: 812, Nodes: []api.ClusterNode{{
		ID: "n1", Address: "127.0.0.1:8471", Role: api.RoleLeader, Voter: true, AppliedIndex: 812, Healthy: true,
	}}}, f.err
}

func (f *fakeCluster) note(what string) error {
	f.done = append(f.done, what)
	return f.err
}

func (f *fakeCluster) AddMember(_ context.Context, r *api.AddMemberRequest) error {
	return f.note("add " + r.ID + " " + r.Address)
}
func (f *fakeCluster) RemoveMember(_ context.Context, id string) error { return f.note("remove " + id) }
func (f *fakeCluster) Transfer(_ context.Context, to string) error     { return f.note("transfer " + to) }

func (f *fakeCluster) Backup(context.Context) (*Backup, error) {
	return &Backup{ClusterID: "c1", Index: 812, Time: time.Unix(1700000000, 0), Write: func(w io.Writer) error {
		_, err := io.WriteString(w, "the backup")
		return errors.Join(err, f.writeErr)
	}}, f.err
}

func (f *fakeCluster) Restore(_ context.Context, from io.Reader) (*api.RestoreReply, error) {
	var err error
	f.restored, err = io.ReadAll(from)
	return &api.RestoreReply{ClusterID: "c1", Index: 812, BackupTime: api.NewTime(time.Unix(1700000000, 0)), EndedLeases: 3, Floor: 99}, errors.Join(err, f.err)
}

func withCluster(c Cluster) func(*Options) { return func(o *Options) { o.Cluster = c } }

const clusterPath = "/v1/cluster"

func (r *rig) restore(t *testing.T, body string) answer {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, clusterPath+"/restore", strings.NewReader(body))
	request.Header.Set("Content-Type", api.BackupMediaType)
	recorder := httptest.NewRecorder()
	r.Handler().ServeHTTP(recorder, request)
	return answer{status: recorder.Code, header: recorder.Header(), body: recorder.Body.String()}
}

func TestGolden_cluster(t *testing.T) {
	f := new(fakeCluster)
	g := newGoldens(t, withCluster(f))
	g.reply("cluster", http.MethodGet, clusterPath, g.call(t, http.MethodGet, clusterPath, ""))
	g.reply("cluster_add", http.MethodPost, clusterPath+"/members",
		g.call(t, http.MethodPost, clusterPath+"/members", `{"id":"n4","address":"127.0.0.1:8501"}`))
	g.reply("cluster_remove", http.MethodDelete, clusterPath+"/members/{id}", g.call(t, http.MethodDelete, clusterPath+"/members/n4", ""))
	g.reply("cluster_transfer", http.MethodPost, clusterPath+"/transfer", g.call(t, http.MethodPost, clusterPath+"/transfer", `{"to":"n2"}`))
	g.reply("cluster_restore", http.MethodPost, clusterPath+"/restore", g.restore(t, "the backup"))
	if got := strings.Join(f.done, ", "); got != "add n4 127.0.0.1:8501, remove n4, transfer n2" {
		t.Errorf("the cluster was asked to %s", got)
	}
	if string(f.restored) != "the backup" {
		t.Errorf("restored %q", f.restored)
	}
	a := g.call(t, http.MethodGet, clusterPath+"/backup", "")
	if a.status != http.StatusOK || a.body != "the backup" || a.header.Get("Content-Type") != api.BackupMediaType ||
		!strings.Contains(a.header.Get("Content-Disposition"), "leased-20231114T221320Z-812.backup") {
		t.Errorf("got the backup %d %q with %v", a.status, a.body, a.header)
	}
}

// A backup that breaks off must not end as a whole reply does.
func TestCluster_backupCut(t *testing.T) {
	r := newRig(t, withCluster(&fakeCluster{writeErr: errors.New("disk")}))
	defer func() {
		if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so as well
			t.Errorf("got %v, want the connection cut", p)
		}
	}()
	r.call(t, http.MethodGet, clusterPath+"/backup", "")
}

func TestCluster_refused(t *testing.T) {
	changes := map[string]func(*rig) answer{
		"add": func(r *rig) answer {
			return r.call(t, http.MethodPost, clusterPath+"/members", `{"id":"n4","address":"a:1"}`)
		},
		"remove":   func(r *rig) answer { return r.call(t, http.MethodDelete, clusterPath+"/members/n4", "") },
		"transfer": func(r *rig) answer { return r.call(t, http.MethodPost, clusterPath+"/transfer", `{}`) },
		"backup":   func(r *rig) answer { return r.call(t, http.MethodGet, clusterPath+"/backup", "") },
		"restore":  func(r *rig) answer { return r.restore(t, "x") },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			f, sink := new(fakeCluster), new(keptAudit)
			denied := newRig(t, withCluster(f), func(o *Options) { o.Auth, o.Audit = noAdmin{AuthNone()}, sink })
			wantProblem(t, change(denied), api.CodeDenied)
			if len(f.done) > 0 || f.restored != nil {
				t.Errorf("it was done all the same: %v", f.done)
			}
			wantProblem(t, change(newRig(t)), api.CodeNotFound)
			failing := &fakeCluster{err: contract.Errorf(contract.CodeUnavailable, errors.New("secret address"), "no node leads")}
			if p := wantProblem(t, change(newRig(t, withCluster(failing), func(o *Options) { o.Audit = sink })), api.CodeUnavailable); p.Detail != "no node leads" {
				t.Errorf("got the detail %q", p.Detail)
			}
			if got := sink.outcomes("cluster_" + name); got != "denied unavailable" {
				t.Errorf("got the audit events %q, want one denied, one unavailable", got)
			}
		})
	}
	wantProblem(t, newRig(t).call(t, http.MethodGet, clusterPath, ""), api.CodeNotFound)
}

func TestCluster_strict(t *testing.T) {
	f := new(fakeCluster)
	r := newRig(t, withCluster(f))
	for field, body := range map[string]string{
		"id":      `{"address":"a:1"}`,
		"address": `{"id":"n4"}`,
		"voter":   `{"id":"n4","address":"a:1","voter":true}`,
	} {
		if p := wantProblem(t, r.call(t, http.MethodPost, clusterPath+"/members", body), api.CodeInvalid); p.Field != field {
			t.Errorf("%s: got the field %q, want %q", body, p.Field, field)
		}
	}
	for _, address := range []string{`a\nb:1`, ` a:1`, `a\u202e:1`, strings.Repeat("a", 260) + ":1"} {
		a := r.call(t, http.MethodPost, clusterPath+"/members", `{"id":"n4","address":"`+address+`"}`)
		if p := wantProblem(t, a, api.CodeInvalid); p.Field != "address" || len(a.body) > 500 {
			t.Errorf("address %q: got the field %q: %s", address, p.Field, a.body)
		}
	}
	wantProblem(t, r.call(t, http.MethodPost, clusterPath+"/restore", "{}"), api.CodeUnsupportedMediaType)
	wantProblem(t, r.call(t, http.MethodGet, clusterPath+"?timeout=never", ""), api.CodeInvalid)
	if len(f.done) > 0 {
		t.Errorf("it was done all the same: %v", f.done)
	}
}

// noAdmin gives every right but one.
type noAdmin struct{ Authenticator }

func (noAdmin) Authorize(_ Principal, a Action) bool { return a.Verb != VerbAdmin }

// keptAudit keeps its events.
type keptAudit struct{ events []*AuditEvent }

func (k *keptAudit) Record(e *AuditEvent)        { k.events = append(k.events, e) }
func (k *keptAudit) Dropped() uint64             { return 0 }
func (k *keptAudit) Close(context.Context) error { return nil }

func (k *keptAudit) outcomes(operation string) string {
	var all []string
	for _, e := range k.events {
		if e.Operation == operation {
			all = append(all, e.Outcome)
		}
	}
	return strings.Join(all, " ")
}

// A backup that does not end is not read for ever, and one of the largest size is.
func TestCluster_restoreTooLarge(t *testing.T) {
	f := new(fakeCluster)
	r := newRig(t, withCluster(f), func(o *Options) { o.MaxRestore = 100 })
	if a := r.restore(t, strings.Repeat("x", 100)); a.status != http.StatusOK || len(f.restored) != 100 {
		t.Errorf("100 bytes: got status %d, %d bytes restored", a.status, len(f.restored))
	}
	p := wantProblem(t, r.restore(t, strings.Repeat("x", 101)), api.CodeTooLarge)
	if p.Detail != "the backup is larger than 100 bytes" {
		t.Errorf("got the detail %q", p.Detail)
	}
}

// TestCluster_requestNamed: what is done to a cluster goes by the name that it came
// with, in the reply and in the audit log.
func TestCluster_requestNamed(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for path, c := range map[string]struct{ method, body string }{
		"/members":    {http.MethodPost, `{"id":"n4","address":"a:1"}`},
		"/members/n4": {http.MethodDelete, ""},
		"/transfer":   {http.MethodPost, `{}`},
	} {
		f, sink := new(fakeCluster), new(keptAudit)
		r := newRig(t, withCluster(f), func(o *Options) { o.Audit = sink })
		a := r.call(t, c.method, clusterPath+path, c.body, api.HeaderIdempotencyKey, "r-1", api.HeaderTraceParent, "00-"+trace+"-00f067aa0ba902b7-01")
		if got := a.header.Get(api.HeaderRequestID); a.status != http.StatusOK || got != "r-1" {
			t.Errorf("%s: got status %d, X-Request-Id %q, want r-1", path, a.status, got)
		}
		if len(sink.events) != 1 || sink.events[0].RequestID != "r-1" || sink.events[0].TraceID != trace {
			t.Errorf("%s: audited %+v, want the request r-1 and its trace", path, sink.events)
		}
		p := wantProblem(t, r.call(t, c.method, clusterPath+path, c.body, api.HeaderIdempotencyKey, "a b"), api.CodeInvalid)
		if p.Field != api.HeaderIdempotencyKey || len(f.done) != 1 {
			t.Errorf("%s: with a name that is none got field %q, done %v", path, p.Field, f.done)
		}
	}
}
