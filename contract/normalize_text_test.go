package contract_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"leased/contract"
)

// wantInvalid checks that err is a CodeInvalid *Error about field whose detail
// contains part.
func wantInvalid(t *testing.T, err error, field, part string) {
	t.Helper()
	var e *contract.Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want an *Error about %s with %q", err, field, part)
	}
	if e.Code != contract.CodeInvalid || e.Field != field || !strings.Contains(e.Detail, part) {
		t.Errorf("got %v, want invalid: %s: …%s…", err, field, part)
	}
}

func TestNormalizeText(t *testing.T) {
	cases := []struct {
		name, in, want, refused string
	}{
		{name: "plain", in: "worker-7", want: "worker-7"},
		{name: "case kept", in: "Worker", want: "Worker"},
		{name: "spaces within", in: "a b  c", want: "a b  c"},
		{name: "delimiters", in: "a/b:c%2Fd", want: "a/b:c%2Fd"},
		{name: "markup and globs", in: "<*?[a]{b}>'\"`\\", want: "<*?[a]{b}>'\"`\\"},
		{name: "composed", in: "caf\u00e9", want: "caf\u00e9"},
		{name: "decomposed", in: "cafe\u0301", want: "caf\u00e9"},
		{name: "marks reordered", in: "a\u0301\u0323", want: "\u1ea1\u0301"},
		{name: "Hangul", in: "\u1112\u1161\u11ab", want: "\ud55c"},
		{name: "Angstrom", in: "\u212b", want: "\u00c5"},
		{name: "compatibility kept", in: "ｆｕｌｌ\ufb01", want: "ｆｕｌｌ\ufb01"},
		{name: "ideographic space within", in: "東\u3000京", want: "東\u3000京"},
		{name: "emoji", in: "🚀❤\ufe0f", want: "🚀❤\ufe0f"},
		{name: "beyond the BMP", in: "𝒳", want: "𝒳"},
		{name: "30 marks", in: "a" + strings.Repeat("\u0316", 30), want: "a" + strings.Repeat("\u0316", 30)},
		{name: "limit", in: strings.Repeat("a", 256), want: strings.Repeat("a", 256)},
		{name: "limit in bytes", in: strings.Repeat("é", 128), want: strings.Repeat("é", 128)},

		{name: "empty", in: "", refused: "is required"},
		{name: "too long", in: strings.Repeat("a", 257), refused: "more than 256 bytes"},
		{name: "too long in bytes", in: strings.Repeat("é", 128) + "a", refused: "more than 256 bytes"},
		{name: "too long before", in: strings.Repeat("e\u0301", 100), refused: "more than 256 bytes"},
		{name: "too long after", in: strings.Repeat("\u0958", 80), refused: "normal form C"},
		{name: "space", in: " ", refused: "white space"},
		{name: "leading space", in: " a", refused: "white space"},
		{name: "trailing space", in: "a ", refused: "white space"},
		{name: "leading no-break space", in: "\u00a0a", refused: "white space"},
		{name: "trailing em space", in: "a\u2003", refused: "white space"},
		{name: "NUL", in: "a\x00b", refused: "U+0000"},
		{name: "tab", in: "a\tb", refused: "U+0009"},
		{name: "line feed", in: "a\nb", refused: "U+000A"},
		{name: "trailing line feed", in: "a\n", refused: "U+000A"},
		{name: "escape", in: "a\x1b[31m", refused: "U+001B"},
		{name: "DEL", in: "a\x7f", refused: "U+007F"},
		{name: "C1 control", in: "a\u009bb", refused: "U+009B"},
		{name: "next line", in: "a\u0085b", refused: "U+0085"},
		{name: "line separator", in: "a\u2028b", refused: "U+2028"},
		{name: "paragraph separator", in: "a\u2029b", refused: "U+2029"},
		{name: "bidi override", in: "a\u202eb", refused: "U+202E"},
		{name: "bidi isolate", in: "a\u2066b", refused: "U+2066"},
		{name: "right-to-left mark", in: "a\u200f", refused: "U+200F"},
		{name: "zero-width space", in: "a\u200bb", refused: "U+200B"},
		{name: "zero-width joiner", in: "👩\u200d🚀", refused: "U+200D"},
		{name: "soft hyphen", in: "a\u00adb", refused: "U+00AD"},
		{name: "BOM", in: "\ufeffa", refused: "U+FEFF"},
		{name: "tag characters", in: "a\U000e0041", refused: "U+E0041"},
		{name: "grapheme joiner", in: "a\u034fb", refused: "U+034F"},
		{name: "Hangul filler", in: "\u3164", refused: "U+3164"},
		{name: "half-width filler", in: "a\uffa0", refused: "U+FFA0"},
		{name: "private use", in: "a\ue000", refused: "U+E000"},
		{name: "noncharacter", in: "a\uffff", refused: "U+FFFF"},
		{name: "unassigned", in: "a\u0378", refused: "U+0378"},
		{name: "replacement character", in: "a\ufffd", refused: "U+FFFD"},
		{name: "invalid UTF-8", in: "a\xff", refused: "UTF-8"},
		{name: "overlong UTF-8", in: "a\xc0\xaf", refused: "UTF-8"},
		{name: "surrogate in UTF-8", in: "a\xed\xa0\x80", refused: "UTF-8"},
		{name: "cut UTF-8", in: "a\xe2\x82", refused: "UTF-8"},
		{name: "31 marks", in: "a" + strings.Repeat("\u0316", 31), refused: "30 combining marks"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got, err := contract.NormalizeText("owner", tc.in, 256, true)
			if tc.refused != "" {
				wantInvalid(t, err, "owner", tc.refused)
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("got %+q, %v; want %+q", got, err, tc.want)
			}
		})
	}
}

func TestNormalizeText_optional(t *testing.T) {
	if got, err := contract.NormalizeText("job_id", "", 256, false); got != "" || err != nil {
		t.Errorf("empty: got %q, %v; want it as it is", got, err)
	}
	_, err := contract.NormalizeText("job_id", " ", 256, false)
	wantInvalid(t, err, "job_id", "white space")
}

// TestNormalizeText_everyRune puts each code point of the first two planes, and
// some of the rest, in the middle of a text: what is accepted is visible and
// comes back in NFC.
func TestNormalizeText_everyRune(t *testing.T) {
	accepted := 0
	step := rune(1)
	for r := rune(0); r <= unicode.MaxRune; r += step {
		if r >= 0x20000 {
			step = 61 // ideographs, tags, private use: long runs of one kind
		}
		in := "a" + string(r) + "b"
		got, err := contract.NormalizeText("owner", in, 256, true)
		if err != nil {
			if unicode.In(r, unicode.L, unicode.N, unicode.P) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) {
				t.Errorf("%U, a letter, number or punctuation: %v", r, err)
			}
			continue
		}
		accepted++
		if unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) || !unicode.IsGraphic(r) {
			t.Errorf("%U was accepted", r)
		}
		if want := norm.NFC.String(in); got != want {
			t.Errorf("%U: got %+q, want %+q", r, got, want)
		}
	}
	if accepted < 50_000 {
		t.Errorf("only %d code points were accepted", accepted)
	}
}

// TestNormalizeText_stable draws texts full of what normalisation moves about.
func TestNormalizeText_stable(t *testing.T) {
	runes := rapid.SampledFrom([]rune("ab /:%e\u0301\u0308\u0323\u0327\u0345\u1100\u1161\u11a8\uac00\u0958\u212b\u2126\u0f71\u0f72\u0f80\U0001d15e\U0001d16d"))
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.StringOfN(runes, 1, 60, -1).Draw(t, "in")
		got, err := contract.NormalizeText("owner", in, 256, true)
		if err != nil {
			return
		}
		accepted++
		again, err := contract.NormalizeText("owner", got, 256, true)
		if err != nil || again != got {
			t.Fatalf("%+q is %+q, which is %+q, %v", in, got, again, err)
		}
		decomposed, err := contract.NormalizeText("owner", norm.NFD.String(in), 256, true)
		if err == nil && decomposed != got {
			t.Fatalf("%+q is %+q, but decomposed it is %+q", in, got, decomposed)
		}
	})
	if accepted == 0 {
		t.Error("no generated text was accepted: nothing was compared")
	}
}
