package contract

import (
	"errors"
	"net/netip"
)

// normalizeIP returns the RFC 5952 text of an address. Its error is the bare
// reason.
func normalizeIP(s string) (string, error) {
	// Package netip refuses leading zeros, which inet_aton reads as octal, and
	// the short and hexadecimal forms.
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return "", errors.New("is not an IPv4 address of four decimal numbers without leading zeros, nor an IPv6 address")
	}
	// A zone names an interface of one machine and means nothing on another.
	if addr.Zone() != "" {
		return "", errors.New("has a zone, which means something on one machine only; leave it out")
	}
	return addr.Unmap().String(), nil
}

// normalizeCIDR returns the masked form of an address block. Its error is the
// bare reason.
func normalizeCIDR(s string) (string, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return "", errors.New("is not an address block such as 192.0.2.0/24 or 2001:db8::/32; " +
			"a single address has type ip")
	}
	prefix = prefix.Masked()
	// Masking comes first: a shorter mapped block, say ::ffff:1.2.3.4/64, holds
	// more than IPv4 and after masking it no longer has the mapped prefix.
	if addr := prefix.Addr(); addr.Is4In6() {
		prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
	}
	return prefix.String(), nil
}
