package contract

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxLocalPart = 64 // bytes, RFC 5321 section 4.5.3.1.1

// normalizeEmail returns a mailbox with its domain in normal form. Its error is
// the bare reason. The local part keeps its case, and its dots and plus signs:
// only the receiving host knows what they mean (RFC 5321 section 2.4).
func normalizeEmail(s string) (string, error) {
	local, domain, ok := strings.Cut(s, "@")
	// An "@" in a quoted local part is refused with the quotes: the same mailbox
	// has many quoted spellings.
	if !ok || strings.Contains(domain, "@") {
		return "", errors.New(`is not an email address with exactly one "@"`)
	}
	if len(local) > maxLocalPart {
		return "", fmt.Errorf(`has more than %d bytes before the "@"`, maxLocalPart)
	}
	if local == "" || local[0] == '.' || local[len(local)-1] == '.' || strings.Contains(local, "..") {
		return "", errors.New(`has nothing, or a misplaced dot, before the "@"`)
	}
	for _, r := range local {
		if r < utf8.RuneSelf && !isAtext(byte(r)) || unicode.IsSpace(r) || !textRune(r, visibleText) {
			return "", fmt.Errorf(`holds %U before the "@"; quoted local parts are not supported`, r)
		}
	}
	domain, err := normalizeDomain(domain)
	if err != nil {
		return "", err
	}
	return local + "@" + domain, nil
}

// isAtext reports whether c may stand in a dot-atom, dots included (RFC 5322
// section 3.2.3).
func isAtext(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte(".!#$%&'*+-/=?^_`{|}~", c) >= 0
}
