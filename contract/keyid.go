package contract

import (
	"crypto/sha256"
	"encoding/base64"
)

// KeyID stands for a key where its text would be too long: the first 16 bytes
// of the SHA-256 of its canonical text. The zero KeyID is no key's, so it can
// mean absent in a struct; but ParseKeyID accepts its text, and a filter that
// came from outside must not be taken for absent because it is zero.
type KeyID [16]byte

// ID returns the id of a normalised key.
func (k Key) ID() KeyID {
	sum := sha256.Sum256(k.appendCanonical(make([]byte, 0, canonicalStack)))
	return KeyID(sum[:16])
}

// String returns the id in unpadded base64url, 22 characters.
func (id KeyID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// IsZero reports whether id is the zero KeyID.
func (id KeyID) IsZero() bool { return id == KeyID{} }

// ParseKeyID is the strict inverse of String. The error is an *Error with
// CodeInvalid and Field "key_id".
func ParseKeyID(s string) (KeyID, error) {
	var id KeyID
	if !decodeID(id[:], s) {
		return KeyID{}, Invalid("key_id", "is not a key id of 22 base64url characters")
	}
	return id, nil
}

// LeaseID names one grant and leads to its key without a second index: the key
// id, then 16 bytes that nobody can guess. The part that cannot be guessed is
// what makes naming a lease proof of having seen it.
type LeaseID [32]byte

// NewLeaseID returns the id of a grant of key. The nonce comes from crypto/rand
// and is used once.
func NewLeaseID(key KeyID, nonce [16]byte) LeaseID {
	var id LeaseID
	copy(id[:16], key[:])
	copy(id[16:], nonce[:])
	return id
}

// KeyID returns the id of the key that the lease is of.
func (id LeaseID) KeyID() KeyID { return KeyID(id[:16]) }

// String returns the id in unpadded base64url, 43 characters.
func (id LeaseID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// IsZero reports whether id is the zero LeaseID; as for KeyID, its text parses.
func (id LeaseID) IsZero() bool { return id == LeaseID{} }

// ParseLeaseID is the strict inverse of String. The error is an *Error with
// CodeInvalid and Field "lease_id".
func ParseLeaseID(s string) (LeaseID, error) {
	var id LeaseID
	if !decodeID(id[:], s) {
		return LeaseID{}, Invalid("lease_id", "is not a lease id of 43 base64url characters")
	}
	return id, nil
}

// decodeID fills dst from s and reports whether s is the one text of what it
// holds.
func decodeID(dst []byte, s string) bool {
	if len(s) != base64.RawURLEncoding.EncodedLen(len(dst)) {
		return false
	}
	b, ok := DecodeText(s)
	return ok && copy(dst, b) == len(dst)
}

// EncodeText returns bytes as ids and cursors show them: base64url without
// padding.
func EncodeText(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// DecodeText is its reverse, and refuses every text but the one that EncodeText
// gives. Comparing with the text encoded again is what makes it strict: the
// decoder skips line ends and ignores the bits that the last character has too
// many, so that several texts would name one lease or one place in a list.
func DecodeText(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	return b, err == nil && EncodeText(b) == s
}
