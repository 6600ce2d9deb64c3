package contract_test

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"leased/contract"
)

func TestNormalizeTarget_ip(t *testing.T) {
	runTargets(t, contract.TargetIP, []targetCase{
		{name: "v4", in: "192.0.2.1", want: "192.0.2.1"},
		{name: "v6", in: "2001:db8::1", want: "2001:db8::1"},
		{name: "v6 upper case, all groups", in: "2001:0DB8:0000:0000:0000:0000:0000:0001", want: "2001:db8::1"},
		{name: "v6 one zero group stays", in: "2001:db8:0:1:1:1:1:1", want: "2001:db8:0:1:1:1:1:1"},
		{name: "v6 longest run of zeros", in: "2001:0:0:1:0:0:0:1", want: "2001:0:0:1::1"},
		{name: "unspecified", in: "0:0:0:0:0:0:0:0", want: "::"},
		{name: "mapped", in: "::ffff:192.0.2.1", want: "192.0.2.1"},
		{name: "mapped in hexadecimal", in: "::FFFF:C000:0201", want: "192.0.2.1"},
		{name: "compatible is not mapped", in: "::192.0.2.1", want: "::c000:201"},
		{name: "NAT64 is not mapped", in: "64:ff9b::192.0.2.1", want: "64:ff9b::c000:201"},

		{name: "empty", in: "", refused: "is required"},
		{name: "zone", in: "fe80::1%eth0", refused: "zone"},
		{name: "zone on mapped", in: "::ffff:192.0.2.1%eth0", refused: "zone"},
		{name: "empty zone", in: "fe80::1%", refused: "not an IPv4"},
		{name: "leading zeros", in: "192.0.2.010", refused: "leading zeros"},
		{name: "hexadecimal", in: "0x7f.1", refused: "not an IPv4"},
		{name: "short", in: "127.1", refused: "not an IPv4"},
		{name: "integer", in: "2130706433", refused: "not an IPv4"},
		{name: "five numbers", in: "1.2.3.4.5", refused: "not an IPv4"},
		{name: "out of range", in: "192.0.2.256", refused: "not an IPv4"},
		{name: "negative", in: "-1.0.2.1", refused: "not an IPv4"},
		{name: "root dot", in: "192.0.2.1.", refused: "not an IPv4"},
		{name: "full width", in: "１92.0.2.1", refused: "not an IPv4"},
		{name: "brackets", in: "[::1]", refused: "not an IPv4"},
		{name: "prefix", in: "192.0.2.1/32", refused: "not an IPv4"},
		{name: "port", in: "192.0.2.1:80", refused: "not an IPv4"},
		{name: "two ellipses", in: "1::2::3", refused: "not an IPv4"},
		{name: "group too long", in: "2001:db8::00001", refused: "not an IPv4"},
		{name: "white space", in: "192.0.2.1 ", refused: "white space"},
		{name: "line end", in: "192.0.2.1\n", refused: "U+000A"},
		{name: "name", in: "localhost", refused: "not an IPv4"},
	})
}

func TestNormalizeTarget_cidr(t *testing.T) {
	runTargets(t, contract.TargetCIDR, []targetCase{
		{name: "v4", in: "192.0.2.0/24", want: "192.0.2.0/24"},
		{name: "v4 masked", in: "192.0.2.99/24", want: "192.0.2.0/24"},
		{name: "v4 host", in: "192.0.2.99/32", want: "192.0.2.99/32"},
		{name: "v4 all", in: "192.0.2.99/0", want: "0.0.0.0/0"},
		{name: "v6", in: "2001:DB8::/32", want: "2001:db8::/32"},
		{name: "v6 masked", in: "2001:db8:1:2:3::/33", want: "2001:db8::/33"},
		{name: "v6 all", in: "::1/0", want: "::/0"},
		{name: "mapped", in: "::ffff:192.0.2.99/120", want: "192.0.2.0/24"},
		{name: "mapped host", in: "::ffff:192.0.2.99/128", want: "192.0.2.99/32"},
		{name: "mapped, all of IPv4", in: "::ffff:192.0.2.99/96", want: "0.0.0.0/0"},
		{name: "mapped, more than IPv4", in: "::ffff:192.0.2.99/95", want: "::fffe:0:0/95"},
		{name: "mapped, much more than IPv4", in: "::ffff:192.0.2.99/64", want: "::/64"},

		{name: "no length", in: "192.0.2.0", refused: "has type ip"},
		{name: "empty length", in: "192.0.2.0/", refused: "not an address block"},
		{name: "length too long for v4", in: "192.0.2.0/33", refused: "not an address block"},
		{name: "length too long for v6", in: "::/129", refused: "not an address block"},
		{name: "length with leading zero", in: "192.0.2.0/08", refused: "not an address block"},
		{name: "length with sign", in: "192.0.2.0/+8", refused: "not an address block"},
		{name: "netmask", in: "192.0.2.0/255.255.255.0", refused: "not an address block"},
		{name: "zone", in: "fe80::1%eth0/64", refused: "not an address block"},
		{name: "leading zeros", in: "010.0.0.0/8", refused: "not an address block"},
		{name: "short", in: "10/8", refused: "not an address block"},
		{name: "two slashes", in: "10.0.0.0/8/8", refused: "not an address block"},
	})
}

// TestNormalizeTarget_addressSpellings draws addresses and checks that every
// way to write one leads to one key, and that two addresses never share one.
func TestNormalizeTarget_addressSpellings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v4 := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4"))
		v6 := [16]byte(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 0, 1, 0xff}), 16, 16).Draw(t, "v6"))
		for _, addr := range []netip.Addr{netip.AddrFrom4(v4), netip.AddrFrom16(v6)} {
			mapped := netip.AddrFrom16(addr.As16())
			for _, spelling := range []string{addr.String(), addr.StringExpanded(), mapped.String(), mapped.StringExpanded()} {
				got, err := contract.NormalizeTarget(contract.Target{Type: contract.TargetIP, ID: spelling})
				if want := addr.Unmap().String(); err != nil || got.ID != want {
					t.Fatalf("%q: got %q, %v; want %q", spelling, got.ID, err, want)
				}
			}
			bits := rapid.IntRange(0, addr.BitLen()).Draw(t, "bits")
			wide := bits + 128 - addr.BitLen()
			first, err1 := contract.NormalizeTarget(contract.Target{
				Type: contract.TargetCIDR, ID: netip.PrefixFrom(addr, bits).String(),
			})
			second, err2 := contract.NormalizeTarget(contract.Target{
				Type: contract.TargetCIDR, ID: netip.PrefixFrom(mapped, wide).String(),
			})
			if err1 != nil || err2 != nil || first != second {
				t.Fatalf("%v/%d is %q (%v), %v/%d is %q (%v)", addr, bits, first.ID, err1, mapped, wide, second.ID, err2)
			}
			block, err := netip.ParsePrefix(first.ID)
			if err != nil || block != block.Masked() || !block.Contains(addr.Unmap()) && wide >= 96 {
				t.Fatalf("%v/%d became %q (%v)", addr, bits, first.ID, err)
			}
		}
	})
}
