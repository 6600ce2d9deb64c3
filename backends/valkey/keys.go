package valkey

import (
	"crypto/sha256"
	"encoding/base64"

	"leased/contract"
)

// Tags stand for texts in records and indexes: the first bytes of a SHA-256.
// What an index finds is compared with the text itself before it is shown.
const (
	ownerTagLen = 12
	tagLen      = 8
)

// spaceTag is the hash tag that puts all keys of a namespace into one slot. It
// is a hash, so that braces in the name of a namespace cannot move it.
func spaceTag(namespace string) string {
	sum := sha256.Sum256([]byte(namespace))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// base is the namespace's KEYS[1]; every key of the namespace begins with it.
func base(prefix, namespace string) string { return prefix + "{" + spaceTag(namespace) + "}" }

// declared are the keys that scripts name to the server. Neither ever exists,
// and there are two of them: while a cluster moves the slot key by key, a server
// refuses a command on several keys of which one is missing (TRYAGAIN). A script
// that ran then would find half of the namespace, and grant what is held.
func declared(prefix, namespace string) []string {
	b := base(prefix, namespace)
	return []string{b, b + ":-"}
}

// textTag returns the tag of a text, and zeros for an empty one.
func textTag(kind byte, text string, n int) string {
	return string(appendTag(make([]byte, 0, ownerTagLen), kind, text, n))
}

// appendTag appends the tag of a text. A grant has seven of them: nothing of one
// is allocated.
func appendTag(b []byte, kind byte, text string, n int) []byte {
	var sum [sha256.Size]byte
	if text != "" {
		var room [128]byte
		sum = sha256.Sum256(append(append(room[:0], kind), text...))
	}
	return append(b, sum[:n]...)
}

// targetText is a target as one text; the type has no colon.
func targetText(t contract.Target) string {
	if t == (contract.Target{}) {
		return ""
	}
	return string(t.Type) + ":" + t.ID
}

// holderTag stands for owner and instance together.
func holderTag(owner, instance string) [16]byte {
	buf := make([]byte, 0, 128)
	buf = appendText(buf, owner)
	buf = appendText(buf, instance)
	sum := sha256.Sum256(buf)
	return [16]byte(sum[:16])
}
