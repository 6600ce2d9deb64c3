package contract

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	maxDomain = 253 // bytes of the ASCII form without a trailing dot, RFC 1035
	maxLabel  = 63
)

// normalizeDomain returns the ASCII form of a DNS name. Its error is the bare
// reason.
//
// Names in ASCII are checked here and not by package idna, which refuses any
// label with hyphens in its third and fourth place; hosts such as
// r3---sn-4g5e6nez exist and are crawled. Labels that begin with xn-- and
// everything beyond ASCII go through the strict lookup profile of UTS #46.
func normalizeDomain(s string) (string, error) {
	s = trimRootDot(s)
	if needsIDNA(s) {
		var err error
		if s, err = toASCII(s); err != nil {
			return "", err
		}
	}
	s = strings.ToLower(s)
	if err := checkDomain(s); err != nil {
		return "", err
	}
	return s, nil
}

// trimRootDot drops one trailing dot, in any of the four spellings that IDNA
// takes for a dot. It has to happen before the mapping: from Unicode 16 on the
// library refuses a trailing dot, before that it did not.
func trimRootDot(s string) string {
	for _, dot := range [...]string{".", "\u3002", "\uff0e", "\uff61"} {
		if rest, ok := strings.CutSuffix(s, dot); ok {
			return rest
		}
	}
	return s
}

func needsIDNA(s string) bool {
	start := true
	for i := range len(s) {
		switch c := s[i]; {
		case c > '~':
			return true
		case start && (c == 'x' || c == 'X') && len(s) >= i+4 && strings.EqualFold(s[i:i+4], "xn--"):
			return true
		default:
			start = c == '.'
		}
	}
	return false
}

func toASCII(s string) (string, error) {
	// With the tables of Unicode 15 this letter becomes "ss", with those of 16
	// "ß": the same input would be two keys on gateways built with different Go
	// releases. It is the only such code point up to Unicode 17.
	if strings.Contains(s, "\u1e9e") {
		return "", errors.New(`holds U+1E9E (capital sharp s), which Unicode versions read differently; write "ß" or "ss"`)
	}
	// Decoding an A-label takes time quadratic in its length, half a millisecond
	// for a kilobyte. A name has fewer bytes in ASCII than it has characters only if
	// most of it is ignored characters.
	if utf8.RuneCountInString(s) > maxDomain {
		return "", errLongDomain()
	}
	// The other lengths are checked on the result. The profile is built for
	// each call because idna.Lookup may change its meaning, and a variable of
	// our own could be changed.
	profile := idna.New(
		idna.MapForLookup(),
		idna.StrictDomainName(true),
		idna.BidiRule(),
		idna.Transitional(false),
	)
	ascii, err := profile.ToASCII(s)
	if err != nil {
		return "", fmt.Errorf("is not a domain name by UTS #46: %w", err)
	}
	// Some results are not accepted, or changed, when they come back as input,
	// for example marks that meet only once an ignored character between them
	// is gone. Doing it again until it settles would be guessing.
	again, err := profile.ToASCII(ascii)
	if err != nil || again != ascii {
		return "", errors.New("has no stable ASCII form by UTS #46")
	}
	return ascii, nil
}

// checkDomain holds for every domain, whatever package idna let through.
func checkDomain(s string) error {
	if s == "" {
		return errors.New("has no domain name")
	}
	if len(s) > maxDomain {
		return errLongDomain()
	}
	start := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			if c := s[i]; !isLower(c) && !isDigit(c) && c != '-' {
				return errors.New(`has a domain name with a character other than letters, digits, "-" and "."; ` +
					`for other names use target type name`)
			}
			continue
		}
		switch label := s[start:i]; {
		case label == "":
			return errors.New("has an empty label in its domain name")
		case len(label) > maxLabel:
			return fmt.Errorf("has a domain label of more than %d bytes", maxLabel)
		case label[0] == '-' || label[len(label)-1] == '-':
			return errors.New("has a domain label that begins or ends with a hyphen")
		}
		start = i + 1
	}
	if isNumber(s[strings.LastIndexByte(s, '.')+1:]) {
		return errors.New("has a domain name that ends in a number; " +
			"an IPv4 address is four decimal numbers, and as a target of its own has type ip")
	}
	return nil
}

func errLongDomain() error {
	return fmt.Errorf("has a domain name of more than %d bytes", maxDomain)
}

// isNumber reports whether the last label of a host would make it an IPv4
// address for a URL parser or for inet_aton: 127.1, 0x7f.1, 2130706433, 0x.
// Taken for a domain, such a host would be a second key for that address.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool { return isLower(c | 0x20) }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
