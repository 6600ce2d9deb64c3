package contract_test

import (
	"strings"
	"testing"

	"leased/contract"
)

func TestNormalizeTarget_email(t *testing.T) {
	local64 := strings.Repeat("a", 64)
	runTargets(t, contract.TargetEmail, []targetCase{
		{name: "plain", in: "ann@example.com", want: "ann@example.com"},
		{name: "local case kept, domain lower", in: "Ann.B+tag@Example.COM.", want: "Ann.B+tag@example.com"},
		{name: "all atoms", in: "!#$%&'*+-/=?^_`{|}~@example.com", want: "!#$%&'*+-/=?^_`{|}~@example.com"},
		{name: "IDN", in: "ann@Bücher.example", want: "ann@xn--bcher-kva.example"},
		{name: "soft hyphen in domain dropped", in: "ann@exam\u00adple.com", want: "ann@example.com"},
		{name: "joiner in domain", in: "ann@क्\u200dष.com", want: "ann@xn--11b2ezcw70k.com"},
		{name: "local in NFC", in: "e\u0301@example.com", want: "é@example.com"},
		{name: "local in Japanese", in: "名前@例え.テスト", want: "名前@xn--r8jz45g.xn--zckzah"},
		{name: "longest local", in: local64 + "@example.com", want: local64 + "@example.com"},

		{name: "empty", in: "", refused: "is required"},
		{name: "no at", in: "example.com", refused: "exactly one"},
		{name: "two ats", in: "a@b@example.com", refused: "exactly one"},
		{name: "full-width at", in: "a\uff20example.com", refused: "exactly one"},
		{name: "no local", in: "@example.com", refused: "nothing"},
		{name: "no domain", in: "a@", refused: "no domain name"},
		{name: "local too long", in: local64 + "a@example.com", refused: "more than 64"},
		{name: "local begins with dot", in: ".a@example.com", refused: "misplaced dot"},
		{name: "local ends with dot", in: "a.@example.com", refused: "misplaced dot"},
		{name: "two dots", in: "a..b@example.com", refused: "misplaced dot"},
		{name: "quoted", in: `"a b"@example.com`, refused: "quoted"},
		{name: "quoted at", in: `"a@b"@example.com`, refused: "exactly one"},
		{name: "space", in: "a b@example.com", refused: "U+0020"},
		{name: "no-break space", in: "a\u00a0b@example.com", refused: "U+00A0"},
		{name: "comment", in: "a(x)@example.com", refused: "U+0028"},
		{name: "Greek question mark is a semicolon", in: "a\u037eb@example.com", refused: "U+003B"},
		{name: "zero-width in local", in: "a\u200bb@example.com", refused: "U+200B"},
		{name: "joiner in local", in: "a\u200db@example.com", refused: "U+200D"},
		{name: "filler in local", in: "a\u3164b@example.com", refused: "U+3164"},
		{name: "display name", in: "Ann <ann@example.com>", refused: "U+0020"},
		{name: "literal", in: "a@[192.0.2.1]", refused: "character other than"},
		{name: "address", in: "a@192.0.2.1", refused: "ends in a number"},
		{name: "two trailing dots", in: "a@example.com..", refused: "empty label"},
		{name: "line end", in: "a@example.com\r\n", refused: "U+000D"},
	})
}
