package etcd

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"leased/contract"
)

// The last part of what a key's own prefix holds.
const (
	partAlive = "a" // attached to the holder's etcd lease: while it is there the lease is alive
	partHead  = "h" // the key's newest lease
	partLife  = "m" // attached to an etcd lease of the maximum lifetime, from the first renewal on
)

// names makes the etcd keys. Text of users is escaped so that no "/" of theirs
// is one of ours; the rest stays readable for an operator.
type names struct{ prefix string }

func escape(s string) string { return url.PathEscape(s) }

// keys is the prefix of everything volatile about the keys of a namespace.
func (n names) keys(ns string) string { return n.prefix + "k/" + escape(ns) + "/" }

// key is the prefix of everything volatile about one key.
func (n names) key(ns string, id contract.KeyID) string { return n.keys(ns) + id.String() + "/" }

// archives is the prefix of the ended leases of a namespace's keys.
func (n names) archives(ns string) string { return n.prefix + "l/" + escape(ns) + "/" }

func (n names) archivesOf(ns string, id contract.KeyID) string {
	return n.archives(ns) + id.String() + "/"
}

// archive is a lease that ended before the key's newest one began.
func (n names) archive(ns string, id contract.KeyID, ordinal uint64) string {
	return n.archivesOf(ns, id) + ordinalText(ordinal)
}

func ordinalText(ordinal uint64) string { return fmt.Sprintf("%016x", ordinal) }

func parseOrdinal(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 16, 64)
	return n, err == nil && ordinalText(n) == s
}

// owned is the prefix of the index of held keys.
func (n names) owned(ns string) string { return n.prefix + "o/" + escape(ns) + "/" }

func (n names) ownedBy(ns, owner string) string { return n.owned(ns) + escape(owner) + "/" }

func (n names) own(ns, owner string, id contract.KeyID) string {
	return n.ownedBy(ns, owner) + id.String()
}

// queues is the prefix of who waits for the keys of a namespace.
func (n names) queues(ns string) string { return n.prefix + "w/" + escape(ns) + "/" }

// queue is the prefix of who waits for a key.
func (n names) queue(ref keyRef) string { return n.queues(ref.ns) + ref.id.String() + "/" }

func (n names) place(ref keyRef, name string) string { return n.queue(ref) + name }

// placesLike is the prefix of the places that a scope's may be among.
func (n names) placesLike(ref keyRef, scope contract.Scope) string {
	return n.queue(ref) + placeBucket(scope)
}

// answer is what a request id was answered.
func (n names) answer(scope contract.Scope) string {
	return n.prefix + "r/" + base64.RawURLEncoding.EncodeToString(scope[:])
}

func (n names) floor(ns string) string { return n.prefix + "f/" + escape(ns) }

// count is rewritten by each acquire that a quota applies to, so that those of
// one owner cannot overlook each other.
func (n names) count(ns, owner string) string {
	return n.prefix + "c/" + escape(ns) + "/" + escape(owner)
}

// sessions is the prefix of the gateways whose waiters are present.
func (n names) sessions() string { return n.prefix + "g/" }

func (n names) session(id string) string { return n.sessions() + id }

// epoch is a random text that tells this store's data from what there was before
// etcd was emptied.
func (n names) epoch() string { return n.prefix + "epoch" }

// probe is read to see whether the server serves.
func (n names) probe() string { return n.prefix + "probe" }

// splitKey takes a key under keys apart.
func (n names) splitKey(name string) (ns string, id contract.KeyID, part string, ok bool) {
	rest, ok := strings.CutPrefix(name, n.prefix+"k/")
	if !ok {
		return "", contract.KeyID{}, "", false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 {
		return "", contract.KeyID{}, "", false
	}
	ns, err := url.PathUnescape(parts[0])
	if err != nil {
		return "", contract.KeyID{}, "", false
	}
	id, err = contract.ParseKeyID(parts[1])
	return ns, id, parts[2], err == nil
}
