package contract_test

import (
	"strings"
	"testing"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"leased/contract"
)

// targetCase is a spelling of a target id and what becomes of it: want, or an
// error whose detail contains refused.
type targetCase struct {
	name, in, want, refused string
}

func runTargets(t *testing.T, typ contract.TargetType, cases []targetCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if (tc.want == "") == (tc.refused == "") {
				t.Fatal("a case has either want or refused")
			}
			got, err := contract.NormalizeTarget(contract.Target{Type: typ, ID: tc.in})
			if tc.refused != "" {
				wantInvalid(t, err, "target", tc.refused)
				return
			}
			if err != nil {
				t.Fatalf("%s %q: %v", typ, tc.in, err)
			}
			if want := (contract.Target{Type: typ, ID: tc.want}); got != want {
				t.Fatalf("%s %q: got %+q, want %+q", typ, tc.in, got, want)
			}
			again, err := contract.NormalizeTarget(got)
			if err != nil || again != got {
				t.Errorf("normalised again: got %+q, %v; want %+q unchanged", again, err, got)
			}
		})
	}
}

func TestNormalizeTarget_domain(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	name253 := strings.Join([]string{label63, label63, label63, strings.Repeat("b", 61)}, ".")
	runTargets(t, contract.TargetDomain, []targetCase{
		{name: "plain", in: "example.com", want: "example.com"},
		{name: "case", in: "ExAmPlE.COM", want: "example.com"},
		{name: "trailing dot", in: "example.com.", want: "example.com"},
		{name: "trailing ideographic dot", in: "example.com\u3002", want: "example.com"},
		{name: "single label", in: "localhost", want: "localhost"},
		{name: "digits within", in: "1.2.3.in-addr.arpa", want: "1.2.3.in-addr.arpa"},
		{name: "hyphens in third and fourth place", in: "r3---sn-4g5e6nez.example.com", want: "r3---sn-4g5e6nez.example.com"},
		{name: "umlaut", in: "Bücher.example", want: "xn--bcher-kva.example"},
		{name: "umlaut decomposed", in: "Bu\u0308cher.example", want: "xn--bcher-kva.example"},
		{name: "umlaut as A-label", in: "XN--BCHER-KVA.example", want: "xn--bcher-kva.example"},
		{name: "sharp s is not ss", in: "faß.de", want: "xn--fa-hia.de"},
		{name: "ss is not sharp s", in: "fass.de", want: "fass.de"},
		{name: "final sigma kept", in: "βόλος.com", want: "xn--nxasmm1c.com"},
		{name: "Cyrillic is not Latin", in: "exаmple.com", want: "xn--exmple-4nf.com"},
		{name: "full-width letters", in: "ｅｘａｍｐｌｅ.com", want: "example.com"},
		{name: "full-width dot", in: "example\uff0ecom", want: "example.com"},
		{name: "ideographic dots", in: "例え\u3002テスト\uff61", want: "xn--r8jz45g.xn--zckzah"},
		{name: "Kelvin sign", in: "\u212aelvin.example", want: "kelvin.example"},
		{name: "soft hyphen dropped", in: "exam\u00adple.com", want: "example.com"},
		{name: "zero-width space dropped", in: "exam\u200bple.com", want: "example.com"},
		{name: "joiner where the script needs it", in: "क्\u200dष.com", want: "xn--11b2ezcw70k.com"},
		{name: "the same without the joiner is another", in: "क्ष.com", want: "xn--11b2ezc.com"},
		{name: "right to left", in: "مثال.إختبار", want: "xn--mgbh0fb.xn--kgbechtv"},
		{name: "longest label", in: label63 + ".com", want: label63 + ".com"},
		{name: "longest name", in: name253, want: name253},
		{name: "longest name with root dot", in: name253 + ".", want: name253},

		{name: "empty", in: "", refused: "is required"},
		{name: "dot", in: ".", refused: "no domain name"},
		{name: "two trailing dots", in: "example.com..", refused: "empty label"},
		{name: "two trailing dots, mixed", in: "example.com.\u3002", refused: "empty label"},
		{name: "leading dot", in: ".example.com", refused: "empty label"},
		{name: "leading dot before IDN", in: ".bücher.example", refused: "empty label"},
		{name: "inner empty label", in: "a..b", refused: "empty label"},
		{name: "label too long", in: label63 + "a.com", refused: "label of more than 63"},
		{name: "label too long in ASCII", in: strings.Repeat("ü", 60) + ".com", refused: "label of more than 63"},
		{name: "name too long", in: "b" + name253, refused: "more than 253"},
		{name: "name too long for a decoder", in: "xn--" + strings.Repeat("a9b", 300), refused: "more than 253"},
		{name: "leading hyphen", in: "-a.com", refused: "hyphen"},
		{name: "trailing hyphen", in: "a-.com", refused: "hyphen"},
		{name: "leading hyphen of an IDN", in: "-ü.com", refused: "UTS #46"},
		{name: "underscore", in: "_dmarc.example.com", refused: "use target type name"},
		{name: "space", in: "exa mple.com", refused: "character other than"},
		{name: "port", in: "example.com:80", refused: "character other than"},
		{name: "path", in: "example.com/", refused: "character other than"},
		{name: "wildcard", in: "*.example.com", refused: "character other than"},
		{name: "percent", in: "ex%61mple.com", refused: "character other than"},
		{name: "NUL", in: "example.com\x00", refused: "U+0000"},
		{name: "DEL", in: "example\x7f.com", refused: "U+007F"},
		{name: "leading space", in: " example.com", refused: "white space"},
		{name: "trailing ideographic space", in: "example.com\u3000", refused: "white space"},
		{name: "invalid UTF-8", in: "example\xff.com", refused: "UTF-8"},
		{name: "replacement character", in: "example\ufffd.com", refused: "U+FFFD"},
		{name: "bidi override", in: "exa\u202emple.com", refused: "UTS #46"},
		{name: "mixed direction", in: "aא.com", refused: "UTS #46"},
		{name: "joiner out of place", in: "a\u200db.com", refused: "UTS #46"},
		{name: "leading combining mark", in: "\u0301a.com", refused: "UTS #46"},
		{name: "full-width slash", in: "a\uff0fb.com", refused: "UTS #46"},
		{name: "one-dot leader", in: "a\u2024com", refused: "UTS #46"},
		{name: "account-of sign", in: "\u2100.com", refused: "UTS #46"},
		{name: "capital sharp s", in: "STRAẞE.de", refused: "U+1E9E"},
		{name: "punycode that decodes to nothing", in: "xn--.com", refused: "empty label"},
		{name: "punycode that cannot be decoded", in: "xn--a.com", refused: "UTS #46"},
		{name: "punycode that cannot be decoded, upper case", in: "XN--A.com", refused: "UTS #46"},
		{name: "punycode that cannot be decoded, inner label", in: "www.xn--a.com", refused: "UTS #46"},
		{name: "punycode of ASCII", in: "xn--example-.com", refused: "UTS #46"},
		{name: "punycode of upper case", in: "xn--bcher-2pa.com", refused: "UTS #46"},
		{name: "punycode of decomposed text", in: "xn--bucher-xyd.com", refused: "UTS #46"},
		{name: "punycode of capital sharp s", in: "xn--strae-301b.com", refused: "UTS #46"},
		{name: "punycode of an ignored character", in: "xn--ab-x0b.com", refused: "UTS #46"},
		{name: "punycode of full width", in: "xn--b-yq0i.com", refused: "UTS #46"},
		{name: "punycode with overlong integer", in: "xn--99999999999.com", refused: "UTS #46"},
		{name: "double punycode", in: "xn--xn--bcher-kva-.com", refused: "UTS #46"},
		{name: "marks that meet when a soft hyphen goes", in: "a" + strings.Repeat("\u0316", 20) + "\u00ad" + strings.Repeat("\u0316", 20) + ".com",
			refused: "no stable ASCII form"},

		{name: "IPv4", in: "192.0.2.1", refused: "has type ip"},
		{name: "IPv4 with root dot", in: "192.0.2.1.", refused: "has type ip"},
		{name: "IPv4 in full width", in: "１９２.０.２.１", refused: "has type ip"},
		{name: "IPv4 integer", in: "2130706433", refused: "has type ip"},
		{name: "IPv4 hexadecimal", in: "0x7f.1", refused: "has type ip"},
		{name: "IPv4 one hexadecimal", in: "0X7F000001", refused: "has type ip"},
		{name: "IPv4 empty hexadecimal", in: "a.0x", refused: "has type ip"},
		{name: "IPv4 short", in: "127.1", refused: "has type ip"},
		{name: "three numbers", in: "1.2.3", refused: "has type ip"},
		{name: "five numbers", in: "1.2.3.4.5", refused: "has type ip"},
		{name: "numeric last label", in: "example.123", refused: "has type ip"},
		{name: "IPv6", in: "2001:db8::1", refused: "character other than"},
	})
}

// TestNormalizeTarget_domainOracle compares with package idna: a domain means
// what the strict lookup profile says, and no spelling of a name has a second
// form.
func TestNormalizeTarget_domainOracle(t *testing.T) {
	oracle := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false))
	label := rapid.OneOf(
		rapid.StringMatching(`[A-Za-z0-9-]{1,8}`),
		rapid.StringMatching(`xn--[a-z0-9-]{1,12}`),
		rapid.StringOfN(rapid.SampledFrom([]rune("aZ9-ßüÜéе例א\u0301\u0308\u200c\u200d\u00ad\u212aｅ０۱क्")), 1, 6, -1),
	)
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		in := strings.Join(rapid.SliceOfN(label, 1, 4).Draw(t, "labels"), ".")
		got, err := domain(in)
		want, oracleErr := oracle.ToASCII(in)
		if err == nil {
			accepted++
			switch {
			case oracleErr == nil && got != want:
				t.Fatalf("%+q: got %q, want %q", in, got, want)
			case oracleErr != nil && got != strings.ToLower(in):
				t.Fatalf("%+q: got %q, but package idna refuses it: %v", in, got, oracleErr)
			}
		}
		for _, spelling := range []string{
			norm.NFD.String(in), norm.NFC.String(in), in + ".", strings.ReplaceAll(in, ".", "\u3002"),
		} {
			other, err2 := domain(spelling)
			if err == nil && err2 == nil && other != got {
				t.Fatalf("%+q is %q, but %+q is %q", in, got, spelling, other)
			}
		}
	})
	if accepted == 0 {
		t.Error("no generated domain was accepted: nothing was compared")
	}
}

func domain(s string) (string, error) {
	target, err := contract.NormalizeTarget(contract.Target{Type: contract.TargetDomain, ID: s})
	return target.ID, err
}
