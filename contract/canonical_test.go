package contract_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"leased/contract"
)

// TestKey_vectors reads the vectors that clients in other languages can test
// against. Their canonical texts were written, and their ids hashed, without
// this package; a change in one makes every stored key unreadable.
func TestKey_vectors(t *testing.T) {
	data, err := os.ReadFile("testdata/keys.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Key struct {
			Tenant, Program            string
			Target                     struct{ Type, ID string }
			Actor, Workflow, Operation string
		}
		Canonical string
		KeyID     string `json:"key_id"`
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors {
		k, err := contract.Key{
			Tenant: v.Key.Tenant, Program: v.Key.Program,
			Target: contract.Target{Type: contract.TargetType(v.Key.Target.Type), ID: v.Key.Target.ID},
			Actor:  v.Key.Actor, Workflow: v.Key.Workflow, Operation: v.Key.Operation,
		}.Normalize()
		if err != nil {
			t.Errorf("%s: %v", v.Canonical, err)
			continue
		}
		if diff := cmp.Diff([]string{v.Canonical, v.KeyID}, []string{k.Canonical(), k.ID().String()}); diff != "" {
			t.Errorf("%s: canonical text and key id (-want +got):\n%s", v.Canonical, diff)
		}
	}
}

func TestKey_Canonical(t *testing.T) {
	cases := []struct {
		name string
		set  func(k *contract.Key)
		want string
	}{
		{"plain", func(*contract.Key) {}, "v1/acme/recon/domain:example.com/crawler/default/scan"},
		{"separators", func(k *contract.Key) { k.Tenant, k.Actor = "a/b", "c:d%2F" },
			"v1/a%2Fb/recon/domain:example.com/c%3Ad%252F/default/scan"},
		{"hash tags and globs", func(k *contract.Key) { k.Tenant = "{a}*?[b]" },
			"v1/%7Ba%7D%2A%3F%5Bb%5D/recon/domain:example.com/crawler/default/scan"},
		{"space and plus", func(k *contract.Key) { k.Tenant = "a b+c" },
			"v1/a%20b%2Bc/recon/domain:example.com/crawler/default/scan"},
		{"beyond ASCII", func(k *contract.Key) { k.Tenant = "é" },
			"v1/%C3%A9/recon/domain:example.com/crawler/default/scan"},
		{"unreserved", func(k *contract.Key) { k.Tenant = "A.z_0~-@" },
			"v1/A.z_0~-@/recon/domain:example.com/crawler/default/scan"},
		{"v6", func(k *contract.Key) { k.Target = contract.Target{Type: contract.TargetIP, ID: "2001:db8::1"} },
			"v1/acme/recon/ip:2001%3Adb8%3A%3A1/crawler/default/scan"},
		{"url", func(k *contract.Key) {
			k.Target = contract.Target{Type: contract.TargetURL, ID: "http://example.com/%2F?a=1"}
		}, "v1/acme/recon/url:http%3A%2F%2Fexample.com%2F%252F%3Fa%3D1/crawler/default/scan"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			k := scanKey()
			tc.set(&k)
			if got := k.Canonical(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if got, err := contract.ParseCanonical(tc.want); err != nil || got != k {
				t.Errorf("parsed: got %+v, %v; want %+v", got, err, k)
			}
		})
	}
}

// The longest key there is does not fit the buffer on the stack.
func TestKey_Canonical_longest(t *testing.T) {
	part := strings.Repeat("é", 128)
	k := contract.Key{
		Tenant: part, Program: part,
		Target: contract.Target{Type: contract.TargetName, ID: strings.Repeat("é", 512)},
		Actor:  part, Workflow: part, Operation: part,
	}
	got, err := contract.ParseCanonical(k.Canonical())
	if err != nil || got != k {
		t.Errorf("got %+v, %v; want the same key", got, err)
	}
}

func TestParseCanonical_refused(t *testing.T) {
	cases := []struct{ name, in string }{
		{"empty", ""},
		{"no version", "acme/recon/domain:example.com/crawler/default/scan"},
		{"other version", "v2/acme/recon/domain:example.com/crawler/default/scan"},
		{"version in upper case", "V1/acme/recon/domain:example.com/crawler/default/scan"},
		{"leading slash", "/v1/acme/recon/domain:example.com/crawler/default/scan"},
		{"part missing", "v1/acme/recon/domain:example.com/crawler/default"},
		{"part too many", "v1/acme/recon/domain:example.com/crawler/default/scan/x"},
		{"trailing slash", "v1/acme/recon/domain:example.com/crawler/default/scan/"},
		{"trailing line end", "v1/acme/recon/domain:example.com/crawler/default/scan\n"},
		{"empty optional part", "v1/acme//domain:example.com/crawler/default/scan"},
		{"empty required part", "v1//recon/domain:example.com/crawler/default/scan"},
		{"no target type", "v1/acme/recon/example.com/crawler/default/scan"},
		{"empty target type", "v1/acme/recon/:example.com/crawler/default/scan"},
		{"unknown target type", "v1/acme/recon/host:example.com/crawler/default/scan"},
		{"empty target", "v1/acme/recon/domain:/crawler/default/scan"},
		{"escaped colon", "v1/acme/recon/domain%3Aexample.com/crawler/default/scan"},
		{"escaped type", "v1/acme/recon/doma%69n:example.com/crawler/default/scan"},
		{"target not normalised", "v1/acme/recon/domain:Example.com/crawler/default/scan"},
		{"target invalid", "v1/acme/recon/domain:a..b/crawler/default/scan"},
		{"bare colon in target", "v1/acme/recon/name:a:b/crawler/default/scan"},
		{"bare colon in part", "v1/ac:me/recon/domain:example.com/crawler/default/scan"},
		{"needless escape", "v1/%61cme/recon/domain:example.com/crawler/default/scan"},
		{"escape in lower case", "v1/a%2fb/recon/domain:example.com/crawler/default/scan"},
		{"missing escape", "v1/a b/recon/domain:example.com/crawler/default/scan"},
		{"beyond ASCII", "v1/é/recon/domain:example.com/crawler/default/scan"},
		{"not in NFC", "v1/e%CC%81/recon/domain:example.com/crawler/default/scan"},
		{"not UTF-8", "v1/%FF/recon/domain:example.com/crawler/default/scan"},
		{"escaped control", "v1/a%00/recon/domain:example.com/crawler/default/scan"},
		{"cut escape", "v1/a%2/recon/domain:example.com/crawler/default/scan"},
		{"malformed escape", "v1/acme/recon/name:%zz/crawler/default/scan"},
		{"part too long", "v1/" + strings.Repeat("a", 257) + "/recon/domain:example.com/crawler/default/scan"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got, err := contract.ParseCanonical(tc.in)
			wantInvalid(t, err, "canonical", "canonical text")
			if got != (contract.Key{}) {
				t.Errorf("got key %+v beside the error, want none", got)
			}
		})
	}
}

// TestKey_Canonical_injective draws two keys: their texts and ids are equal
// exactly when the normalised keys are, and each text leads back to its key.
func TestKey_Canonical_injective(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		first, err1 := drawKey(t).Normalize()
		second, err2 := drawKey(t).Normalize()
		if err1 != nil || err2 != nil {
			return
		}
		accepted++
		text1, text2 := first.Canonical(), second.Canonical()
		if (first == second) != (text1 == text2) || (first == second) != (first.ID() == second.ID()) {
			t.Fatalf("%+v has %s and %v, %+v has %s and %v", first, text1, first.ID(), second, text2, second.ID())
		}
		if got, err := contract.ParseCanonical(text1); err != nil || got != first {
			t.Fatalf("%s: got %+v, %v; want %+v", text1, got, err, first)
		}
		if again, err := first.Normalize(); err != nil || again != first {
			t.Fatalf("normalised again: got %+v, %v; want %+v", again, err, first)
		}
	})
	if accepted == 0 {
		t.Error("no generated pair was accepted: nothing was compared")
	}
}

// The boundary between two parts is part of the key: moving text over it makes
// another key. These are the pairs that a plain join would confuse.
func TestKey_Canonical_boundaries(t *testing.T) {
	seen := map[string]contract.Key{}
	for _, sep := range []string{"/", ":", "%2F", "%3A", "%", "@", "."} {
		for _, whole := range [][2]string{{"a", "b" + sep + "c"}, {"a" + sep + "b", "c"}, {"a" + sep, "b" + sep + "c"}, {"a", sep + "b" + sep + "c"}} {
			for i := range 5 {
				k := contract.Key{Tenant: "t", Program: "p", Target: contract.Target{Type: contract.TargetName, ID: "n"}, Actor: "x", Workflow: "w", Operation: "o"}
				parts := []*string{&k.Tenant, &k.Program, &k.Target.ID, &k.Actor, &k.Workflow, &k.Operation}
				*parts[i], *parts[i+1] = whole[0], whole[1]
				text := k.Canonical()
				if other, ok := seen[text]; ok && other != k {
					t.Errorf("%+v and %+v are both %s", other, k, text)
				}
				seen[text] = k
			}
		}
	}
}
