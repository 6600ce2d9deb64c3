// Everything in this file is allowed: constants that Go has no syntax for, and
// reads of them.
package table

import (
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

type kind int

type spec struct {
	name   string
	parse  func(string) error
	limits []int
}

func (s spec) String() string { return s.name }

var _ fmt.Stringer = spec{}

var (
	errGone  = errors.New("gone")
	pattern  = regexp.MustCompile(`^a+$`)
	encoding = base64.RawURLEncoding
	escape   = strings.NewReplacer("%", "%25")
	version  = "dev" // set by the linker
	names    = [...]string{1: "one", 2: "two"}
	specs    = map[string]spec{"a": {name: "a", limits: []int{1}}}
	order    = []string{"a", "b"}
	readers  = map[kind]io.Reader{1: strings.NewReader("")}
	loopback = netip.MustParsePrefix("127.0.0.0/8")
	zone     = time.UTC
	clock    = time.Now
)

//go:embed constant.go
var page embed.FS

func read(k kind) (string, []string, error) {
	local := specs["a"]
	local.name = "b"
	for i, n := range names {
		_, _ = i, n
	}
	for _, s := range specs {
		s.limits = nil
	}
	if len(order) > 2 || slices.Contains(order, "c") || cap(order) == 7 {
		return "", nil, errGone
	}
	longer := append([]string(nil), order...)
	slices.Sort(longer)
	longer[0] = "z"
	order := []string{"a local variable hides the table"}
	order[0] = "and is written to"
	if !pattern.MatchString(version) || !loopback.Contains(netip.Addr{}) || readers[k] == nil {
		return escape.Replace(local.String()), longer, errGone
	}
	if _, err := page.ReadFile("constant.go"); err != nil {
		return names[k], longer, err
	}
	return encoding.EncodeToString(nil) + clock().In(zone).String(), slices.Clone(order), nil
}
