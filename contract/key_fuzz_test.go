package contract_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"leased/contract"
)

// FuzzKeyNormalize holds what every normalised key must hold: normalising it
// again changes nothing, it obeys the limits, and its canonical text leads back
// to it and to nothing else.
func FuzzKeyNormalize(f *testing.F) {
	for _, target := range []contract.Target{
		{Type: "domain", ID: "Example.COM."}, {Type: "domain", ID: "bücher\u3002example"},
		{Type: "domain", ID: "xn--bcher-kva.example"}, {Type: "domain", ID: "क्\u200dष.com"},
		{Type: "domain", ID: "a\u0316\u00ad\u0316.faß"}, {Type: "domain", ID: "r3---sn.xn--a"},
		{Type: "ip", ID: "::FFFF:192.0.2.1"}, {Type: "ip", ID: "fe80::1%eth0"},
		{Type: "cidr", ID: "::ffff:192.0.2.1/100"}, {Type: "cidr", ID: "10.1.2.3/8"},
		{Type: "url", ID: "HTTP://b%C3%BCcher.example:080/a/%2e%2E/./%252e?a[]=%41#f"},
		{Type: "url", ID: "ws://[::ffff:192.0.2.1]:80//..//e\u0301?"}, {Type: "url", ID: "http://0x7f.1/%00"},
		{Type: "email", ID: "Ann+x@Example.COM."}, {Type: "email", ID: "e\u0301@例え.テスト"},
		{Type: "name", ID: "a/b:c%2F {d}*"}, {Type: "name", ID: "\u1112\u1161\u11ab\u212b"},
	} {
		f.Add("acme", "", string(target.Type), target.ID, "crawler", "a:b", "c")
		f.Add("a/b", "cafe\u0301", string(target.Type), target.ID, "%", "default", "")
	}
	f.Fuzz(func(t *testing.T, tenant, program, typ, id, actor, workflow, operation string) {
		raw := contract.Key{
			Tenant: tenant, Program: program,
			Target: contract.Target{Type: contract.TargetType(typ), ID: id},
			Actor:  actor, Workflow: workflow, Operation: operation,
		}
		k, err := raw.Normalize()
		if err != nil {
			if contract.CodeOf(err) != contract.CodeInvalid || k != (contract.Key{}) {
				t.Fatalf("%+q: got %+v, %v; want no key and CodeInvalid", raw, k, err)
			}
			return
		}
		if again, err := k.Normalize(); err != nil || again != k {
			t.Fatalf("%+q is %+q, which is %+q, %v", raw, k, again, err)
		}
		for _, part := range []string{k.Tenant, k.Program, k.Actor, k.Workflow, k.Operation} {
			checkPart(t, part, 256)
		}
		checkPart(t, k.Target.ID, 1024)
		checkTarget(t, k.Target)
		text := k.Canonical()
		if strings.Count(text, "/") != 6 || strings.Count(text, ":") != 1 || !isVisibleASCII(text) {
			t.Fatalf("%+q has canonical text %+q", k, text)
		}
		if back, err := contract.ParseCanonical(text); err != nil || back != k {
			t.Fatalf("%s: got %+q, %v; want %+q", text, back, err, k)
		}
		if back, err := contract.ParseKeyID(k.ID().String()); err != nil || back != k.ID() {
			t.Fatalf("%v: got %v, %v", k.ID(), back, err)
		}
		decomposed := raw
		decomposed.Target.ID = norm.NFD.String(id)
		if other, err := decomposed.Normalize(); err == nil && other != k {
			t.Fatalf("%+q is %+q, but decomposed it is %+q", raw, k, other)
		}
	})
}

func checkPart(t *testing.T, part string, limit int) {
	t.Helper()
	if part == "" || len(part) > limit || !utf8.ValidString(part) || !norm.NFC.IsNormalString(part) ||
		strings.TrimSpace(part) != part || strings.ContainsFunc(part, isControl) {
		t.Fatalf("%+q is in a normalised key", part)
	}
}

func isControl(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || r == '\u2028' || r == '\u2029' || r == utf8.RuneError
}

func isVisibleASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// checkTarget asks other parsers whether they read a normalised target as what
// it says it is.
func checkTarget(t *testing.T, target contract.Target) {
	t.Helper()
	switch target.Type {
	case contract.TargetDomain:
		checkHost(t, target.ID)
	case contract.TargetIP:
		if addr, err := netip.ParseAddr(target.ID); err != nil || addr.String() != target.ID || addr.Is4In6() {
			t.Fatalf("ip %q: %v, %v", target.ID, addr, err)
		}
	case contract.TargetCIDR:
		if prefix, err := netip.ParsePrefix(target.ID); err != nil || prefix.Masked().String() != target.ID || prefix.Addr().Is4In6() {
			t.Fatalf("cidr %q: %v, %v", target.ID, prefix, err)
		}
	case contract.TargetEmail:
		local, domain, ok := strings.Cut(target.ID, "@")
		if !ok || local == "" {
			t.Fatalf("email %q", target.ID)
		}
		checkHost(t, domain)
	case contract.TargetURL:
		u, err := url.Parse(target.ID)
		if err != nil || u.User != nil || u.Host == "" || !strings.HasPrefix(u.EscapedPath(), "/") || u.Fragment != "" {
			t.Fatalf("url %q: %v, %v", target.ID, u, err)
		}
		if !isVisibleASCII(target.ID) || u.Scheme+"://"+u.Host+u.RequestURI() != target.ID {
			t.Fatalf("url %q is read as %q", target.ID, u)
		}
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
			if addr.String() != u.Hostname() || addr.Is4In6() {
				t.Fatalf("url %q has address %v", target.ID, addr)
			}
			return
		}
		checkHost(t, u.Hostname())
	}
}

func checkHost(t *testing.T, host string) {
	t.Helper()
	if len(host) > 253 || host != strings.ToLower(host) || !isVisibleASCII(host) {
		t.Fatalf("host %q", host)
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 {
			t.Fatalf("host %q has label %q", host, label)
		}
	}
	if last := labels[len(labels)-1]; last[0] >= '0' && last[0] <= '9' && strings.Trim(last, "0123456789") == "" {
		t.Fatalf("host %q ends in a number", host)
	}
}

func FuzzParseCanonical(f *testing.F) {
	for _, seed := range []string{
		"v1/acme/recon/domain:example.com/crawler/default/scan",
		"v1/a%2Fb/default/name:%25%3A/c%3Ad/default/default",
		"v1/a/b/ip:2001%3Adb8%3A%3A1/c/d/e",
		"v1/a/b/cidr:10.0.0.0%2F8/c/d/e",
		"v1/a/b/url:http%3A%2F%2Fa%2F%3Fb/c/d/e",
		"v1/a/b/email:Ann@example.com/c/d/e",
		"v1/%C3%A9/b/name:%EF%BC%8E/c/../.",
		"v1//b/name:n/c/d/e", "v1/a/b/name:a:b/c/d/e", "v1/%2f/b/name:n/c/d/e", "v2/", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := contract.ParseCanonical(s)
		if err != nil {
			if contract.CodeOf(err) != contract.CodeInvalid || k != (contract.Key{}) {
				t.Fatalf("%+q: got %+v, %v; want no key and CodeInvalid", s, k, err)
			}
			return
		}
		if again, err := k.Normalize(); err != nil || again != k {
			t.Fatalf("%+q: got %+q, which is not normalised: %+q, %v", s, k, again, err)
		}
		if got := k.Canonical(); got != s {
			t.Fatalf("%+q was parsed, but its key has %+q", s, got)
		}
	})
}

func FuzzParseKeyID(f *testing.F) {
	for _, seed := range []string{
		scanKey().ID().String(), contract.KeyID{}.String(), strings.Repeat("_", 21) + "w",
		strings.Repeat("_", 22), strings.Repeat("A", 21) + "\n", strings.Repeat("A", 20) + "==", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := contract.ParseKeyID(s)
		switch {
		case err != nil && (contract.CodeOf(err) != contract.CodeInvalid || !id.IsZero()):
			t.Fatalf("%+q: got %v, %v; want no id and CodeInvalid", s, id, err)
		case err == nil && id.String() != s:
			t.Fatalf("%+q was parsed, but it is %v", s, id)
		}
	})
}

func FuzzParseLeaseID(f *testing.F) {
	for _, seed := range []string{
		contract.NewLeaseID(scanKey().ID(), [16]byte{1}).String(), contract.LeaseID{}.String(),
		strings.Repeat("_", 42) + "8", strings.Repeat("_", 43), strings.Repeat("A", 42) + "\r", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := contract.ParseLeaseID(s)
		switch {
		case err != nil && (contract.CodeOf(err) != contract.CodeInvalid || !id.IsZero()):
			t.Fatalf("%+q: got %v, %v; want no id and CodeInvalid", s, id, err)
		case err == nil && (id.String() != s || contract.NewLeaseID(id.KeyID(), [16]byte(id[16:])) != id):
			t.Fatalf("%+q was parsed, but it is %v", s, id)
		}
	})
}
