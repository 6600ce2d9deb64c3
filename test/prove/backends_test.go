package prove

import (
	"maps"
	"slices"
	"testing"

	"leased/test/history"
	"leased/test/proc"
)

// edited is a way in which a backend is made wrong: by edits of its files, which are
// compiled into a program of its own, and the rule that has to notice.
type edited struct {
	rule     string
	edits    []proc.Edit
	unfenced bool
}

// backendDefects has for each deployment the same six defects, as near to a mistake that
// could be made there as an edit of a few lines comes.
func backendDefects() map[string]map[string]edited {
	all := map[string]map[string]edited{"raftkv": onRaftkv(), "valkey": onValkey(), "etcd": onEtcd()}
	for _, on := range all {
		// The mistake of a client, whatever the store: its writes do not show their tokens.
		on["no fence"] = edited{rule: history.Fenced, unfenced: true}
	}
	return all
}

func onRaftkv() map[string]edited {
	const (
		apply = "backends/raftkv/apply.go"
		verbs = "backends/raftkv/apply_verbs.go"
		reads = "backends/raftkv/reads.go"
	)
	return map[string]edited{
		// Whoever releases a lease ends that which the key has.
		"release without compare": {rule: history.Compared, edits: []proc.Edit{{
			File:    verbs,
			Is:      "l, refused := st.match(ks, c.LeaseID, c.Owner, c.Instance, c.Token)\n",
			Becomes: "l, refused := st.match(ks, c.LeaseID, c.Owner, c.Instance, c.Token)\nif ks != nil && ks.active != nil {\nl = ks.active\n}\n",
		}}},
		// What meets a lease takes it for over too soon. That leases are given less time than
		// was asked for would not be wrong: their holders are told.
		"early expiry": {rule: history.Exclusive, edits: []proc.Edit{{
			File: apply, Is: "ks.active.expires <= st.now {", Becomes: "ks.active.expires <= st.now+100e6 {",
		}}},
		// A read without the leader's confirmation is as wrong, and stale on nodes that are
		// cut off only; on a single one it takes a copy.
		"stale read": {rule: history.Linearisable, edits: []proc.Edit{
			{File: reads, Is: "import (\n", Becomes: "import (\n\"sync\"\n\"time\"\n"},
			{File: reads, Is: "// Check implements contract.Store.\n", Becomes: `
type copied struct {
	of *keyState
	at time.Time
}

var copies sync.Map

// Check implements contract.Store.
`},
			{File: reads, Is: "newest := ks.active\n", Becomes: `
		if c, ok := copies.Load(ks.id); ok && time.Since(c.(copied).at) < 100*time.Millisecond {
			ks = c.(copied).of
		} else {
			copies.Store(ks.id, copied{ks, time.Now()})
		}
		newest := ks.active
`},
		}},
		// An entry of the log is carried out in one step, and there is nothing in between:
		// this is what comes of it where the key is read 5 ms before it is written.
		"acquire not atomic": {rule: history.Exclusive, edits: []proc.Edit{{
			File: verbs, Is: "\tif ks == nil {\n\t\tks = &keyState{ident: id}\n\t}\n", Becomes: `
	if ks == nil {
		ks = &keyState{ident: id}
	}
	if l := ks.active; l != nil && l.scope != c.Scope && l.renewals == 0 && st.now-l.expires+l.ttl < 5e6 {
		st.end(ks, ending{state: contract.StateReleased, by: l.owner, requestID: l.requestID}, 0)
		if ks = st.key(id); ks == nil {
			ks = &keyState{ident: id}
		}
	}
`,
		}}},
		// The answer to an acquire goes with its lease.
		"lost replay": {rule: history.RequestIDs, edits: []proc.Edit{{
			File:    apply,
			Is:      "st.answerDrops.Set(due[contract.Scope]{at: st.now + l.keepAnswer, what: l.scope})",
			Becomes: "st.answers.Delete(answer{scope: l.scope})",
		}}},
	}
}

func onValkey() map[string]edited {
	const scripts = "backends/valkey/scripts/"
	return map[string]edited{
		"release without compare": {rule: history.Compared, edits: []proc.Edit{
			{File: scripts + "ending.lua", Is: "local rec = find(kid, nonce)", Becomes: "local rec = load(kid)"},
			{File: scripts + "release.lua", Is: "  if rec:sub(35, 50) ~= ARGV[7] then return 'owner' end\n  if dyn(rec) ~= token then return 'stale' end\n", Becomes: ""},
		}},
		"early expiry": {rule: history.Exclusive, edits: []proc.Edit{{
			File:    scripts + "record.lua",
			Is:      "if rec:byte(2) == 2 and struct.unpack('>I8', rec, 75) <= now then",
			Becomes: "if rec:byte(2) == 2 and struct.unpack('>I8', rec, 75) <= now + 100000 then",
		}}},
		"stale read": {rule: history.Linearisable, edits: []proc.Edit{{
			File: scripts + "check.lua", Is: "local rec = load(ARGV[1])\n", Becomes: `
local rec = call('GET', B .. 'copy:' .. ARGV[1])
if not rec then
  rec = load(ARGV[1])
  if rec then call('SET', B .. 'copy:' .. ARGV[1], rec, 'PX', 100) end;
end
`,
		}}},
		// A script is carried out in one step, too.
		"acquire not atomic": {rule: history.Exclusive, edits: []proc.Edit{{
			File: scripts + "acquire.lua", Is: "if most > 0 and not place and queue().full(most, ARGV[5])", Becomes: `
if rec and rec:byte(2) == 2 and rec:sub(131, 146) ~= scope then
  local _, acquired, _, _, _, renewals = dyn(rec)
  if renewals == 0 and now - acquired < 5000 then rec = finish(kid, rec, 4, now, ARGV[8], hist, events, idem) end;
end
if most > 0 and not place and queue().full(most, ARGV[5])`,
		}}},
		"lost replay": {rule: history.RequestIDs, edits: []proc.Edit{{
			File:    scripts + "record.lua",
			Is:      "  call('SET', B .. 'k:' .. kid, rec, 'PX', keep)\n  return rec\n",
			Becomes: "  call('SET', B .. 'k:' .. kid, rec, 'PX', keep)\n  call('DEL', B .. 'a:' .. rec:sub(131, 146))\n  return rec\n",
		}}},
	}
}

func onEtcd() map[string]edited {
	const (
		acquire = "backends/etcd/acquire.go"
		end     = "backends/etcd/end.go"
		grant   = "backends/etcd/grant.go"
		reads   = "backends/etcd/reads.go"
		state   = "backends/etcd/state.go"
	)
	return map[string]edited{
		"release without compare": {rule: history.Compared, edits: []proc.Edit{
			{
				File: end, Is: "return l.Match(r.Owner, r.Instance, r.Token)",
				Becomes: "return contract.EndedOutcome(l.State)",
			},
			{
				File: end, Is: "\tr := st.find(c.id, t)\n",
				Becomes: "\tr := st.find(c.id, t)\nif l := st.active(); l != nil && c.verb == contract.VerbRelease {\nr = l\n}\n",
			},
		}},
		// Gateways go by their own clocks, and those are 100 ms ahead. Etcd itself counts
		// whole seconds and is told none that it could end early.
		"early expiry": {rule: history.Exclusive, edits: []proc.Edit{{
			File: state, Is: "return st.aliveMod != 0 && (",
			Becomes: "return st.aliveMod != 0 && now()+100_000 < st.head.Expires && (",
		}}},
		// What a gateway remembers is good for a guess that is compared, and for no answer.
		"stale read": {rule: history.Linearisable, edits: []proc.Edit{{
			File: reads, Is: "st, err := s.load(ctx, ref, w)", Becomes: "st, err := s.first(ctx, ref, w)",
		}}},
		// The key is read and then written, whatever has become of it between.
		"acquire not atomic": {rule: history.Exclusive, edits: []proc.Edit{
			{File: grant, Is: "g.cmps = s.guessed(st, s.unchanged(st))", Becomes: "g.cmps = s.guessed(st, nil)"},
			{File: grant, Is: "\tif st.aliveMod == 0 {\n", Becomes: "\tif false {\n"},
		}},
		// An answer to an acquire is good for as long as its lease.
		"lost replay": {rule: history.RequestIDs, edits: []proc.Edit{{
			File: acquire, Is: "\tif st.answer != nil {\n",
			Becomes: "\tif l := st.active(); st.answer != nil && l != nil && l.Ordinal == st.answer.Ordinal {\n",
		}}},
	}
}

// TestBackendDefects_edits holds the defects of the backends to be edits of what stands
// there, and each to be one of all backends. That all are caught takes minutes: `make test`
// has one of each backend, `make chaos` all of them.
func TestBackendDefects_edits(t *testing.T) {
	t.Parallel()
	var names []string
	for backend, all := range backendDefects() {
		has := slices.Sorted(maps.Keys(all))
		if names == nil {
			names = has
		}
		if !slices.Equal(has, names) {
			t.Errorf("%s has the defects %q, another backend %q", backend, has, names)
		}
		for name, d := range all {
			if _, err := proc.Edited(proc.Root(t), d.edits...); err != nil {
				t.Errorf("%s, %s: %v", backend, name, err)
			}
			if (len(d.edits) == 0) != d.unfenced {
				t.Errorf("%s, %s: it is not a defect", backend, name)
			}
		}
	}
}
