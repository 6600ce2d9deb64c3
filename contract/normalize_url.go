package contract

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// normalizeURL returns the normal form of an absolute URL by RFC 3986 section 6
// (syntax-based and scheme-based). Its error is the bare reason and never shows
// the URL, which may hold a password.
//
// Package net/url is not used to parse: it decodes the path, so that %2F and /
// become one, and accepts much that two programs read differently.
func normalizeURL(s string) (string, error) {
	// A browser reads "\" as "/", RFC 3986 does not allow it: one spelling, two
	// hosts.
	if strings.Contains(s, `\`) {
		return "", errors.New(`holds a "\"; write "/" or %5C`)
	}
	s, fragment, _ := strings.Cut(s, "#")
	if _, err := appendEscaped(nil, fragment, isQueryByte); err != nil {
		return "", err
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || !isScheme(scheme) {
		return "", errors.New("is not an absolute URL with a host; use target type name for anything else")
	}
	scheme = strings.ToLower(scheme)
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	path, query, hasQuery := strings.Cut(tail, "?")

	authority, err := normalizeAuthority(scheme, authority)
	if err != nil {
		return "", err
	}
	out := make([]byte, 0, len(s)+16)
	out = append(out, scheme...)
	out = append(out, "://"...)
	out = append(out, authority...)
	// Unreserved characters are decoded before dot segments are removed, or
	// %2e%2e would become a ".." that the next normalisation removes.
	segments, err := appendEscaped(nil, path, isPathByte)
	if err != nil {
		return "", err
	}
	out = append(out, removeDotSegments(string(segments))...)
	if hasQuery {
		out = append(out, '?')
		if out, err = appendEscaped(out, query, isQueryByte); err != nil {
			return "", err
		}
	}
	return string(out), nil
}

func isScheme(s string) bool {
	if s == "" || !isAlpha(s[0]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlpha(c) && !isDigit(c) && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// normalizeAuthority returns the host, with the port unless it is the scheme's
// own.
func normalizeAuthority(scheme, s string) (string, error) {
	if strings.Contains(s, "@") {
		return "", errors.New("has user information; leave it out, credentials do not belong in a key")
	}
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && i > strings.LastIndexByte(s, ']') {
		host, port = s[:i], s[i+1:]
	}
	host, err := normalizeHost(host)
	if err != nil {
		return "", err
	}
	if port == "" { // "http://example.com:/" has none either, RFC 3986 section 6.2.3
		return host, nil
	}
	if strings.Trim(port, "0123456789") != "" {
		return "", errors.New("has a port that is not a decimal number")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", errors.New("has a port outside 1 to 65535")
	}
	if n == defaultPort(scheme) {
		return host, nil
	}
	return host + ":" + strconv.FormatUint(n, 10), nil
}

func defaultPort(scheme string) uint64 {
	switch scheme {
	case "http", "ws":
		return 80
	case "https", "wss":
		return 443
	case "ftp":
		return 21
	}
	return 0
}

func normalizeHost(s string) (string, error) {
	if s == "" {
		return "", errors.New("has no host; use target type name for URLs without one")
	}
	if s[0] == '[' {
		return normalizeLiteral(s)
	}
	// Escapes are decoded once. What is still an escape after that, or has
	// become a delimiter, is not a domain character and is refused below.
	host, err := url.PathUnescape(s)
	if err != nil {
		return "", errMalformedEscape()
	}
	if !utf8.ValidString(host) {
		return "", errors.New("has a host that is not valid UTF-8 once its escapes are decoded")
	}
	for _, r := range host {
		if !textRune(r, hostText) {
			return "", fmt.Errorf("has a host with %U in it", r)
		}
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		return addr.String(), nil
	}
	if strings.Contains(host, ":") {
		return "", errors.New("has a host with a colon in it; an IPv6 address stands in brackets")
	}
	return normalizeDomain(host)
}

// normalizeLiteral returns the host for an IPv6 literal in brackets. A mapped
// IPv4 address loses the brackets, as it is the same host as the plain one.
func normalizeLiteral(s string) (string, error) {
	inner, ok := strings.CutSuffix(s[1:], "]")
	if !ok || !strings.Contains(inner, ":") {
		return "", errors.New("has a host in brackets that is not an IPv6 address")
	}
	ip, err := normalizeIP(inner)
	if err != nil {
		return "", fmt.Errorf("has a host in brackets that %w", err)
	}
	if strings.Contains(ip, ":") {
		return "[" + ip + "]", nil
	}
	return ip, nil
}

// appendEscaped appends s with every escape in normal form: decoded if it is an
// unreserved character, else in upper case; bytes that are not allowed to stand
// for themselves are escaped. "%252e" stays what it is: what one decoding
// yields is never decoded again.
func appendEscaped(dst []byte, s string, allowed func(byte) bool) ([]byte, error) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '%' {
			if allowed(c) {
				dst = append(dst, c)
			} else {
				dst = appendEscape(dst, c)
			}
			continue
		}
		if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
			return nil, errMalformedEscape()
		}
		c = unhex(s[i+1])<<4 | unhex(s[i+2])
		if isUnreserved(c) {
			dst = append(dst, c)
		} else {
			dst = appendEscape(dst, c)
		}
		i += 2
	}
	return dst, nil
}

func errMalformedEscape() error {
	return errors.New(`has a "%" that two hexadecimal digits do not follow; write %25 for the character itself`)
}

// removeDotSegments is RFC 3986 section 5.2.4 for a path that is empty or
// begins with "/".
func removeDotSegments(path string) string {
	if path == "" {
		return "/"
	}
	if !strings.Contains(path, "/.") {
		return path
	}
	segments := strings.Split(path[1:], "/")
	kept := segments[:0]
	for i, segment := range segments {
		dots := segment == "." || segment == ".."
		if segment == ".." && len(kept) > 0 {
			kept = kept[:len(kept)-1]
		}
		switch {
		case !dots:
			kept = append(kept, segment)
		case i == len(segments)-1: // "/a/." and "/a/b/.." name the directory
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

// isPathByte and isQueryByte report what RFC 3986 allows unescaped there. "["
// and "]" are not among it, so a[]=1 and a%5B%5D=1 are the same query.
func isPathByte(c byte) bool {
	return isUnreserved(c) || strings.IndexByte("/:@!$&'()*+,;=", c) >= 0
}

func isQueryByte(c byte) bool { return c == '?' || isPathByte(c) }

func isUnreserved(c byte) bool {
	return isAlpha(c) || isDigit(c) || c == '-' || c == '.' || c == '_' || c == '~'
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}

func appendEscape(dst []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(dst, '%', digits[c>>4], digits[c&15])
}
