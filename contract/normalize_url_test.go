package contract_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"leased/contract"
)

func TestNormalizeTarget_url(t *testing.T) {
	long := "http://example.com/" + strings.Repeat("a", 1024-len("http://example.com/"))
	runTargets(t, contract.TargetURL, []targetCase{
		{name: "plain", in: "https://example.com/a/b?q=1", want: "https://example.com/a/b?q=1"},
		{name: "scheme and host case", in: "HTTPS://EXAMPLE.com/Path", want: "https://example.com/Path"},
		{name: "empty path", in: "http://example.com", want: "http://example.com/"},
		{name: "empty path with query", in: "http://example.com?q", want: "http://example.com/?q"},
		{name: "other scheme", in: "S3+x.y-z://bucket", want: "s3+x.y-z://bucket/"},
		{name: "fragment", in: "http://example.com/a#b?c", want: "http://example.com/a"},
		{name: "fragment right after host", in: "http://example.com#x", want: "http://example.com/"},
		{name: "query order kept", in: "http://example.com/?b=2&a=1&b=1", want: "http://example.com/?b=2&a=1&b=1"},
		{name: "empty query is not none", in: "http://example.com/?", want: "http://example.com/?"},
		{name: "second question mark", in: "http://example.com/?a?b", want: "http://example.com/?a?b"},
		{name: "dot segments in query", in: "http://example.com/?/../a", want: "http://example.com/?/../a"},
		{name: "longest", in: long, want: long},

		{name: "http port", in: "http://example.com:80/", want: "http://example.com/"},
		{name: "https port", in: "https://example.com:443/", want: "https://example.com/"},
		{name: "ws port", in: "ws://example.com:80/", want: "ws://example.com/"},
		{name: "wss port", in: "wss://example.com:443/", want: "wss://example.com/"},
		{name: "ftp port", in: "ftp://example.com:21/", want: "ftp://example.com/"},
		{name: "port of another scheme", in: "http://example.com:443/", want: "http://example.com:443/"},
		{name: "no default port", in: "foo://example.com:80/", want: "foo://example.com:80/"},
		{name: "empty port", in: "http://example.com:/", want: "http://example.com/"},
		{name: "port with leading zeros", in: "http://example.com:0080/", want: "http://example.com/"},
		{name: "highest port", in: "http://example.com:65535/", want: "http://example.com:65535/"},

		{name: "IDN", in: "http://Bücher.example/", want: "http://xn--bcher-kva.example/"},
		{name: "IDN with escapes", in: "http://b%C3%BCcher.example/", want: "http://xn--bcher-kva.example/"},
		{name: "escaped letter in host", in: "http://ex%61mple.com/", want: "http://example.com/"},
		{name: "escaped dot in host", in: "http://example%2Ecom/", want: "http://example.com/"},
		{name: "root dot", in: "http://example.com./", want: "http://example.com/"},
		{name: "root dot and port", in: "http://example.com.:80/", want: "http://example.com/"},
		{name: "v4", in: "http://192.0.2.1:8080/", want: "http://192.0.2.1:8080/"},
		{name: "v6", in: "http://[2001:DB8:0::1]:80/", want: "http://[2001:db8::1]/"},
		{name: "v6 with port", in: "http://[2001:DB8::1]:81/", want: "http://[2001:db8::1]:81/"},
		{name: "v6 without path", in: "http://[::1]", want: "http://[::1]/"},
		{name: "v4 mapped", in: "http://[::ffff:192.0.2.1]:81/", want: "http://192.0.2.1:81/"},

		{name: "dot segments", in: "http://example.com/a/./b/../c", want: "http://example.com/a/c"},
		{name: "dot segments at the end", in: "http://example.com/a/b/..", want: "http://example.com/a/"},
		{name: "dot at the end", in: "http://example.com/a/.", want: "http://example.com/a/"},
		{name: "above the root", in: "http://example.com/../../a", want: "http://example.com/a"},
		{name: "only dots", in: "http://example.com/..", want: "http://example.com/"},
		{name: "three dots are a name", in: "http://example.com/.../a", want: "http://example.com/.../a"},
		{name: "dot file", in: "http://example.com/.git", want: "http://example.com/.git"},
		{name: "empty segments", in: "http://example.com//a///b/", want: "http://example.com//a///b/"},
		{name: "dots take an empty segment", in: "http://example.com/a//../b", want: "http://example.com/a/b"},
		{name: "dots then empty segment", in: "http://example.com/..//a", want: "http://example.com//a"},
		{name: "escaped dot segments", in: "http://example.com/a/%2e%2E/b", want: "http://example.com/b"},
		{name: "half escaped dot segment", in: "http://example.com/a/.%2e/b", want: "http://example.com/b"},
		{name: "dots before an escaped slash", in: "http://example.com/a/..%2fb", want: "http://example.com/a/..%2Fb"},

		{name: "unreserved decoded", in: "http://example.com/%7E%61%2D%5F?%7e", want: "http://example.com/~a-_?~"},
		{name: "reserved kept", in: "http://example.com/%2f%3a%26?%26%3d%23", want: "http://example.com/%2F%3A%26?%26%3D%23"},
		{name: "decoded once", in: "http://example.com/%252e%252e/a", want: "http://example.com/%252e%252e/a"},
		{name: "decoded once, unreserved", in: "http://example.com/%2561", want: "http://example.com/%2561"},
		{name: "escaped NUL kept", in: "http://example.com/%00", want: "http://example.com/%00"},
		{name: "escaped byte beyond UTF-8 kept", in: "http://example.com/%ff%fe", want: "http://example.com/%FF%FE"},
		{name: "space", in: "http://example.com/a b?c d", want: "http://example.com/a%20b?c%20d"},
		{name: "plus is not space", in: "http://example.com/a+b?c+d", want: "http://example.com/a+b?c+d"},
		{name: "brackets in query", in: "http://example.com/?a[]=1", want: "http://example.com/?a%5B%5D=1"},
		{name: "what a URL cannot hold", in: "http://example.com/<\"^`{|}>", want: "http://example.com/%3C%22%5E%60%7B%7C%7D%3E"},
		{name: "what a path can hold", in: "http://example.com/:@!$&'()*+,;=", want: "http://example.com/:@!$&'()*+,;="},
		{name: "at in path", in: "http://example.com/@user", want: "http://example.com/@user"},
		{name: "composed", in: "http://example.com/\u00e9", want: "http://example.com/%C3%A9"},
		{name: "decomposed", in: "http://example.com/e\u0301", want: "http://example.com/%C3%A9"},
		{name: "decomposed bytes are bytes", in: "http://example.com/e%cc%81", want: "http://example.com/e%CC%81"},
		{name: "zero-width in path shows", in: "http://example.com/a\u200bb", want: "http://example.com/a%E2%80%8Bb"},
		{name: "full-width dots are no dot segment", in: "http://example.com/a/\uff0e\uff0e/b", want: "http://example.com/a/%EF%BC%8E%EF%BC%8E/b"},

		{name: "empty", in: "", refused: "is required"},
		{name: "relative", in: "/a/b", refused: "absolute"},
		{name: "without scheme", in: "//example.com/", refused: "absolute"},
		{name: "host alone", in: "example.com:80/a", refused: "absolute"},
		{name: "opaque", in: "mailto:a@example.com", refused: "absolute"},
		{name: "one slash", in: "http:/example.com", refused: "absolute"},
		{name: "bad scheme", in: "1http://example.com/", refused: "absolute"},
		{name: "scheme with space", in: "ht tp://example.com/", refused: "absolute"},
		{name: "BOM before scheme", in: "\ufeffhttp://example.com/", refused: "absolute"},
		{name: "no host", in: "http:///a", refused: "no host"},
		{name: "file", in: "file:///etc/hosts", refused: "no host"},
		{name: "no host but port", in: "http://:80/", refused: "no host"},
		{name: "user", in: "http://ann@example.com/", refused: "user information"},
		{name: "password", in: "http://ann:secret@example.com/", refused: "user information"},
		{name: "empty user", in: "http://@example.com/", refused: "user information"},
		{name: "backslash", in: `http://example.com\a`, refused: `holds a "\"`},
		{name: "backslash for slash", in: `http:\\example.com\`, refused: `holds a "\"`},
		{name: "backslash hiding the host", in: `http://example.com\@evil.example/`, refused: `holds a "\"`},
		{name: "port not a number", in: "http://example.com:http/", refused: "not a decimal number"},
		{name: "port with sign", in: "http://example.com:+80/", refused: "not a decimal number"},
		{name: "port 0", in: "http://example.com:0/", refused: "1 to 65535"},
		{name: "port too high", in: "http://example.com:65536/", refused: "1 to 65535"},
		{name: "port far too high", in: "http://example.com:18446744073709551617/", refused: "1 to 65535"},
		{name: "two ports", in: "http://example.com:80:80/", refused: "with a colon"},
		{name: "v6 without brackets", in: "http://2001:db8::1/", refused: "with a colon"},
		{name: "v6 without brackets, no port", in: "http://2001:db8::a/", refused: "with a colon"},
		{name: "zone", in: "http://[fe80::1%25eth0]/", refused: "zone"},
		{name: "raw zone", in: "http://[fe80::1%eth0]/", refused: "zone"},
		{name: "v4 in brackets", in: "http://[192.0.2.1]/", refused: "not an IPv6 address"},
		{name: "future literal", in: "http://[v1.a:b]/", refused: "brackets"},
		{name: "unclosed bracket", in: "http://[::1/", refused: "brackets"},
		{name: "text after bracket", in: "http://[::1]a/", refused: "brackets"},
		{name: "bracket escaped", in: "http://%5B::1%5D/", refused: "with a colon"},
		{name: "hexadecimal v4", in: "http://0x7f.1/", refused: "ends in a number"},
		{name: "integer v4", in: "http://2130706433/", refused: "ends in a number"},
		{name: "short v4", in: "http://127.1/", refused: "ends in a number"},
		{name: "three numbers", in: "http://1.2.3/", refused: "ends in a number"},
		{name: "five numbers", in: "http://1.2.3.4.5/", refused: "ends in a number"},
		{name: "octal v4", in: "http://0177.0.0.1/", refused: "ends in a number"},
		{name: "v4 with root dot", in: "http://192.0.2.1./", refused: "ends in a number"},
		{name: "v4 in full width", in: "http://１92.0.2.1/", refused: "ends in a number"},
		{name: "v4 in circled digits", in: "http://①.②.③.④/", refused: "ends in a number"},
		{name: "slash escaped in host", in: "http://a%2Fb/", refused: "character other than"},
		{name: "double escape in host", in: "http://ex%2561mple.com/", refused: "character other than"},
		{name: "at escaped in host", in: "http://a%40b.com/", refused: "character other than"},
		{name: "space escaped in host", in: "http://%20example.com/", refused: "character other than"},
		{name: "NUL escaped in host", in: "http://example.com%00/", refused: "U+0000"},
		{name: "bytes escaped in host", in: "http://ex%ffmple.com/", refused: "UTF-8"},
		{name: "capital sharp s escaped in host", in: "http://stra%E1%BA%9Ee.de/", refused: "U+1E9E"},
		{name: "malformed escape in host", in: "http://ex%6/", refused: "two hexadecimal digits"},
		{name: "malformed escape in path", in: "http://example.com/%zz", refused: "two hexadecimal digits"},
		{name: "cut escape in path", in: "http://example.com/%2", refused: "two hexadecimal digits"},
		{name: "bare percent in path", in: "http://example.com/100%", refused: "two hexadecimal digits"},
		{name: "malformed escape in query", in: "http://example.com/?%g0", refused: "two hexadecimal digits"},
		{name: "malformed escape in fragment", in: "http://example.com/#%", refused: "two hexadecimal digits"},
		{name: "underscore in host", in: "http://a_b.example.com/", refused: "character other than"},
		{name: "two trailing dots", in: "http://example.com../", refused: "empty label"},
		{name: "tab", in: "http://exam\tple.com/", refused: "U+0009"},
		{name: "line end", in: "http://example.com/\n", refused: "U+000A"},
		{name: "line separator", in: "http://example.com/a\u2028b", refused: "U+2028"},
		{name: "invalid UTF-8", in: "http://example.com/\xff", refused: "UTF-8"},
		{name: "unassigned", in: "http://example.com/\U0002fffe", refused: "U+2FFFE"},
		{name: "too long", in: long + "a", refused: "more than 1024 bytes"},
		{name: "too long once escaped", in: "http://example.com/" + strings.Repeat("é", 400), refused: "once normalised"},
	})
}

// A refusal goes to clients and logs.
func TestNormalizeTarget_urlHidesPassword(t *testing.T) {
	for _, in := range []string{
		"http://ann:s3cret@example.com/", "http://ann:s3cret@example.com:x/%", `http://ann:s3cret@\`, "ann:s3cret@example.com",
	} {
		_, err := contract.NormalizeTarget(contract.Target{Type: contract.TargetURL, ID: in})
		wantInvalid(t, err, "target", "")
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error shows the password: %v", in, err)
		}
	}
}

// TestNormalizeTarget_urlSpellings writes one URL in equivalent ways, and in
// ways that are close but not equivalent.
func TestNormalizeTarget_urlSpellings(t *testing.T) {
	segment := rapid.StringMatching(`[a-zA-Z0-9~._!$&'()*+,;=:@-]{1,6}|%2F|%25|%C3%A9`)
	rapid.Check(t, func(t *rapid.T) {
		path := "/" + strings.Join(rapid.SliceOfN(segment, 0, 5).Draw(t, "path"), "/")
		query := rapid.StringMatching(`(\?([a-z0-9&=/?+-]|%26){0,6})?`).Draw(t, "query")
		in := "http://example.com" + path + query
		want := mustURL(t, in)

		for name, spelling := range map[string]string{
			"scheme and host": "HTTP://EXAMPLE.com." + path + query,
			"port":            "http://example.com:80" + path + query,
			"fragment":        in + "#" + query,
			"dot segments":    "http://example.com/./x/.." + path + query,
			"escaped":         "http://example.com" + escapeSome(t, path) + query,
			"hex case":        "http://example.com" + lowerEscapes(path) + query,
		} {
			if got := mustURL(t, spelling); got != want {
				t.Fatalf("%s: %q is %q, but %q is %q", name, spelling, got, in, want)
			}
		}
		for name, other := range map[string]string{
			"scheme": "https://example.com" + path + query,
			"port":   "http://example.com:81" + path + query,
			"query":  in + "?",
			"path":   "http://example.com" + path + "x" + query,
			"host":   "http://www.example.com" + path + query,
		} {
			if got := mustURL(t, other); got == want {
				t.Fatalf("%s: %q and %q are both %q", name, other, in, want)
			}
		}
		parsed, err := url.Parse(want)
		if err != nil || parsed.Host != "example.com" || parsed.String() != want {
			t.Fatalf("package net/url reads %q as %v, %v", want, parsed, err)
		}
	})
}

// escapeSome writes some unreserved characters of s as escapes.
func escapeSome(t *rapid.T, s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%':
			b.WriteString(s[i : i+3])
			i += 2
		case strings.IndexByte("/!$&'()*+,;=:@", c) < 0 && rapid.Bool().Draw(t, "escape"):
			fmt.Fprintf(&b, "%%%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func lowerEscapes(s string) string {
	return strings.NewReplacer("%2F", "%2f", "%C3%A9", "%c3%a9").Replace(s)
}

func mustURL(t *rapid.T, s string) string {
	target, err := contract.NormalizeTarget(contract.Target{Type: contract.TargetURL, ID: s})
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return target.ID
}
