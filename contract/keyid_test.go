package contract_test

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"leased/contract"
)

func TestKey_ID(t *testing.T) {
	k := scanKey()
	sum := sha256.Sum256([]byte("v1/acme/recon/domain:example.com/crawler/default/scan"))
	want := base64.RawURLEncoding.EncodeToString(sum[:16])
	got := k.ID()
	if got.String() != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if got.IsZero() || !(contract.KeyID{}).IsZero() {
		t.Error("IsZero is wrong")
	}
	if back, err := contract.ParseKeyID(want); err != nil || back != got {
		t.Errorf("parsed: got %v, %v; want %v", back, err, got)
	}
}

func TestLeaseID(t *testing.T) {
	key := scanKey().ID()
	nonce := [16]byte{0: 1, 15: 0xff}
	id := contract.NewLeaseID(key, nonce)
	if id.KeyID() != key {
		t.Errorf("key id: got %v, want %v", id.KeyID(), key)
	}
	if [16]byte(id[16:]) != nonce {
		t.Errorf("nonce: got %v, want %v", id[16:], nonce)
	}
	text := id.String()
	if len(text) != 43 {
		t.Errorf("%s has %d characters, want 43", text, len(text))
	}
	if back, err := contract.ParseLeaseID(text); err != nil || back != id {
		t.Errorf("parsed: got %v, %v; want %v", back, err, id)
	}
	if id.IsZero() || !(contract.LeaseID{}).IsZero() {
		t.Error("IsZero is wrong")
	}
}

func TestParseID_refused(t *testing.T) {
	keyID := scanKey().ID().String()
	leaseID := contract.NewLeaseID(scanKey().ID(), [16]byte{1}).String()
	spoil := func(id string) map[string]string {
		n := len(id)
		return map[string]string{
			"empty":             "",
			"short":             id[:n-1],
			"long":              id + "A",
			"padded":            id + "=",
			"padded to length":  id[:n-1] + "=",
			"trailing bits":     id[:n-1] + "B",
			"line end":          id + "\n",
			"line end within":   id[:n-1] + "\n",
			"line end for 4":    id[:4] + "\n" + id[5:],
			"carriage return":   id[:n-1] + "\r",
			"standard alphabet": "+/" + id[2:],
			"space":             " " + id[1:],
			"NUL":               id[:n-1] + "\x00",
			"beyond ASCII":      id[:n-2] + "é",
			"very long":         strings.Repeat("A", 1<<16),
		}
	}
	for name, in := range spoil(keyID) {
		_, err := contract.ParseKeyID(in)
		t.Run("key/"+name, func(t *testing.T) { wantInvalid(t, err, "key_id", "22 base64url characters") })
	}
	for name, in := range spoil(leaseID) {
		_, err := contract.ParseLeaseID(in)
		t.Run("lease/"+name, func(t *testing.T) { wantInvalid(t, err, "lease_id", "43 base64url characters") })
	}
}

// The last character carries bits that no id uses: of the texts that differ in
// it alone, only some are ids, and no two are the same one.
func TestParseID_trailingBits(t *testing.T) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	keyIDs, leaseIDs := map[contract.KeyID]string{}, map[contract.LeaseID]string{}
	for _, c := range alphabet {
		text := strings.Repeat("A", 21) + string(c)
		if id, err := contract.ParseKeyID(text); err == nil {
			keyIDs[id] = text
		}
		text = strings.Repeat("A", 42) + string(c)
		if id, err := contract.ParseLeaseID(text); err == nil {
			leaseIDs[id] = text
		}
	}
	if len(keyIDs) != 4 || len(leaseIDs) != 16 {
		t.Errorf("got %d key ids and %d lease ids, want 4 and 16", len(keyIDs), len(leaseIDs))
	}
}
