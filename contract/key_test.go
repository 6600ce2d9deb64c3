package contract_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"leased/contract"
)

// plainKey is what most keys look like; scanKey is its normal form.
func plainKey() contract.Key {
	return contract.Key{
		Tenant: "acme", Program: "recon",
		Target: contract.Target{Type: contract.TargetDomain, ID: "Example.COM."},
		Actor:  "crawler", Operation: "scan",
	}
}

func scanKey() contract.Key {
	return contract.Key{
		Tenant: "acme", Program: "recon",
		Target: contract.Target{Type: contract.TargetDomain, ID: "example.com"},
		Actor:  "crawler", Workflow: "default", Operation: "scan",
	}
}

func TestKey_Normalize(t *testing.T) {
	got, err := plainKey().Normalize()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(scanKey(), got); diff != "" {
		t.Errorf("normalised key (-want +got):\n%s", diff)
	}
}

func TestKey_Normalize_defaults(t *testing.T) {
	short := plainKey()
	short.Program, short.Workflow, short.Operation = "", "", ""
	long := short
	long.Program, long.Workflow, long.Operation = "default", "default", "default"
	got, err := short.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	want, err := long.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	if got != want || got.Workflow != "default" {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Every part obeys the same rules of text, and a refusal names the field as the
// HTTP API does.
func TestKey_Normalize_refused(t *testing.T) {
	parts := map[string]func(k *contract.Key, s string){
		"key.tenant":    func(k *contract.Key, s string) { k.Tenant = s },
		"key.program":   func(k *contract.Key, s string) { k.Program = s },
		"key.actor":     func(k *contract.Key, s string) { k.Actor = s },
		"key.workflow":  func(k *contract.Key, s string) { k.Workflow = s },
		"key.operation": func(k *contract.Key, s string) { k.Operation = s },
		"key.target.id": func(k *contract.Key, s string) {
			k.Target = contract.Target{Type: contract.TargetName, ID: s}
		},
	}
	optional := map[string]bool{"key.program": true, "key.workflow": true, "key.operation": true}
	for field, set := range parts {
		limit := 256
		if field == "key.target.id" {
			limit = 1024
		}
		try := func(s string) (contract.Key, error) {
			k := scanKey()
			set(&k, s)
			return k.Normalize()
		}
		for in, part := range map[string]string{
			strings.Repeat("a", limit+1): "bytes",
			"a\x00b":                     "U+0000",
			"a\u202eb":                   "U+202E",
			" a":                         "white space",
			"a\n":                        "U+000A",
			"\xff":                       "UTF-8",
		} {
			got, err := try(in)
			wantInvalid(t, err, field, part)
			if got != (contract.Key{}) {
				t.Errorf("%s %q: got key %+v beside the error, want none", field, in, got)
			}
		}
		for _, in := range []string{strings.Repeat("a", limit), "a", "default", ".."} {
			if _, err := try(in); err != nil {
				t.Errorf("%s %.8q: %v", field, in, err)
			}
		}
		if _, err := try(""); optional[field] != (err == nil) {
			t.Errorf("%s empty: %v", field, err)
		} else if err != nil {
			wantInvalid(t, err, field, "is required")
		}
	}
}

func TestKey_Normalize_targetType(t *testing.T) {
	for _, typ := range []contract.TargetType{"", "Domain", "domain ", "host", "ipv4", "\x00"} {
		k := plainKey()
		k.Target.Type = typ
		_, err := k.Normalize()
		wantInvalid(t, err, "key.target.type", "domain, ip, cidr, url, email or name")
		_, err = contract.NormalizeTarget(k.Target)
		wantInvalid(t, err, "target_type", "domain, ip, cidr, url, email or name")
	}
	k := plainKey()
	k.Target.ID = "a..b"
	_, err := k.Normalize()
	wantInvalid(t, err, "key.target.id", "empty label")
}

func TestNormalizeTarget_name(t *testing.T) {
	runTargets(t, contract.TargetName, []targetCase{
		{name: "case kept", in: "Build #7", want: "Build #7"},
		{name: "not read as a domain", in: "Example.COM.", want: "Example.COM."},
		{name: "NFC", in: "cafe\u0301", want: "café"},
		{name: "longest", in: strings.Repeat("a", 1024), want: strings.Repeat("a", 1024)},
		{name: "empty", in: "", refused: "is required"},
		{name: "too long", in: strings.Repeat("a", 1025), refused: "more than 1024"},
		{name: "zero-width", in: "a\u200b", refused: "U+200B"},
	})
}

// A target is the same by itself and in a key, or a list filter would miss it;
// a target in a key is the same whatever stands around it.
func TestNormalizeTarget_asInKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t)
		alone, errAlone := contract.NormalizeTarget(k.Target)
		around := plainKey()
		around.Target = k.Target
		within, errWithin := around.Normalize()
		if (errAlone == nil) != (errWithin == nil) || alone != within.Target {
			t.Fatalf("%+q: alone %+q, %v; in a key %+q, %v", k.Target, alone, errAlone, within.Target, errWithin)
		}
	})
}

// drawKey draws keys whose parts hold little but what separates and escapes, so
// that collisions are likely if they are possible. Most of them are valid.
func drawKey(t *rapid.T) contract.Key {
	part := rapid.StringOfN(rapid.SampledFrom([]rune("a/:%2Fé@")), 1, 4, -1)
	optional := rapid.OneOf(rapid.Just(""), rapid.Just("default"), part)
	target := rapid.OneOf(
		drawTarget(contract.TargetName, part),
		drawTarget(contract.TargetDomain, rapid.StringMatching(`[aA]{1,2}(\.[bB]{1,2})?\.?`)),
		drawTarget(contract.TargetIP, rapid.StringMatching(`(::|::ffff:|0::)1\.2\.3\.[12]|1\.2\.3\.[12]`)),
		drawTarget(contract.TargetCIDR, rapid.StringMatching(`10\.[01]\.0\.[01]/([89]|1[56])`)),
		drawTarget(contract.TargetURL, rapid.StringMatching(`[hH]ttp://[aA](:80|:81)?(/|/\.|/%2e|/%2[fF]|a)?(\?|\?%41)?(#a)?`)),
		drawTarget(contract.TargetEmail, rapid.StringMatching(`[aA]@[bB]\.?`)),
	)
	return contract.Key{
		Tenant: part.Draw(t, "tenant"), Program: optional.Draw(t, "program"),
		Target: target.Draw(t, "target"),
		Actor:  part.Draw(t, "actor"), Workflow: optional.Draw(t, "workflow"), Operation: optional.Draw(t, "operation"),
	}
}

func drawTarget(typ contract.TargetType, id *rapid.Generator[string]) *rapid.Generator[contract.Target] {
	return rapid.Map(id, func(id string) contract.Target { return contract.Target{Type: typ, ID: id} })
}

func BenchmarkKey(b *testing.B) {
	url := scanKey()
	url.Target = contract.Target{Type: contract.TargetURL, ID: "https://example.com:443/a/../%7Eb?q=é"}
	idn := scanKey()
	idn.Target.ID = "bücher.example"
	for _, bench := range []struct {
		name string
		key  contract.Key
	}{{"normalised", scanKey()}, {"plain", plainKey()}, {"url", url}, {"idn", idn}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				k, err := bench.key.Normalize()
				if err != nil {
					b.Fatal(err)
				}
				if k.Canonical() == "" || k.ID().IsZero() {
					b.Fatal("no canonical text or id")
				}
			}
		})
	}
}

// Every request normalises a key and stores do it again, so what the plain case
// costs must not creep up: the canonical text is the one allocation.
func TestKey_allocations(t *testing.T) {
	k := scanKey()
	got := testing.AllocsPerRun(100, func() {
		k, err := k.Normalize()
		if err != nil || k.Canonical() == "" || k.ID().IsZero() {
			t.Error("no key")
		}
	})
	if got > 1 {
		t.Errorf("normalising, canonical text and id took %v allocations, want at most 1", got)
	}
}
