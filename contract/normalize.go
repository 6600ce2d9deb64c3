package contract

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// NormalizeText returns the NFC form of one part of a key, or of another
// identifier such as an owner, an instance or a job id. It accepts valid UTF-8
// of at most limit bytes, before and after normalisation, made of characters that
// can be seen, and of spaces between them.
//
// What cannot be seen is refused: control characters, line and paragraph
// separators, bidirectional controls, zero-width and other format characters,
// fillers. Two identifiers that look the same to whoever reads the audit log
// would name different leases. The price is that emoji and words joined by
// U+200C or U+200D cannot be used. Refused too are private-use and unassigned
// code points, whose NFC form the next Unicode version may change, and U+FFFD,
// into which JSON decoders turn bytes that were not UTF-8: different inputs
// would have become one key. White space at either end is refused, not trimmed.
//
// The error is an *Error with CodeInvalid about field. An empty s is an error
// if required, else it is returned as it is.
func NormalizeText(field, s string, limit int, required bool) (string, error) {
	if s == "" {
		if required {
			return "", Invalid(field, "is required")
		}
		return "", nil
	}
	s, err := normalizeText(s, limit, visibleText)
	if err != nil {
		return "", Invalid(field, "%v", err)
	}
	return s, nil
}

// textRule says which characters a text may hold.
type textRule bool

const (
	// visibleText is the rule that NormalizeText documents.
	visibleText textRule = false
	// hostText lets format characters pass, for texts that have a host name in
	// them: UTS #46 drops some, needs others (the joiners, in some scripts) and
	// refuses the rest. Whoever asks for hostText deals with them.
	hostText textRule = true
)

// normalizeText is NormalizeText for a text that is not empty. Its error is the
// bare reason.
func normalizeText(s string, limit int, rule textRule) (string, error) {
	if len(s) > limit {
		return "", fmt.Errorf("has more than %d bytes", limit)
	}
	if isPlain(s) {
		return s, nil
	}
	if !utf8.ValidString(s) {
		return "", errors.New("is not valid UTF-8")
	}
	nfc := norm.NFC.String(s)
	// The library breaks a longer run of marks with a character of its own.
	// That is no longer the text the caller wrote.
	if joiner := norm.GraphemeJoiner; strings.Count(nfc, joiner) != strings.Count(s, joiner) {
		return "", errors.New("has more than 30 combining marks in a row")
	}
	if len(nfc) > limit {
		return "", fmt.Errorf("has more than %d bytes in Unicode normal form C", limit)
	}
	for _, r := range nfc {
		if !textRune(r, rule) {
			return "", fmt.Errorf("holds %U, which is a control, invisible, private-use or unassigned character", r)
		}
	}
	first, _ := utf8.DecodeRuneInString(nfc)
	last, _ := utf8.DecodeLastRuneInString(nfc)
	if unicode.IsSpace(first) || unicode.IsSpace(last) {
		return "", errors.New("begins or ends with white space")
	}
	return nfc, nil
}

// isPlain reports whether s is printable ASCII without white space at its ends:
// such a text is normalised already, and nearly every text is.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s[0] != ' ' && s[len(s)-1] != ' '
}

func textRune(r rune, rule textRule) bool {
	switch {
	case r == utf8.RuneError:
		return false
	case rule == hostText && unicode.Is(unicode.Cf, r):
		return true
	case !unicode.IsGraphic(r):
		return false
	}
	// These are letters and marks by category, but nothing is drawn for them.
	return rule == hostText || !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}
