package gateway

import (
	"errors"
	"strings"
	"testing"
	"time"

	"leased/contract"
	"leased/contract/memstore"
)

func TestPolicy_Validate(t *testing.T) {
	tests := map[string]struct {
		change func(*Policy)
		field  string // "" is valid
	}{
		"default":                 {func(*Policy) {}, ""},
		"no waiting":              {func(p *Policy) { p.MaxWait = 0 }, ""},
		"no quotas":               {func(p *Policy) { p.Quotas = QuotaPolicy{} }, ""},
		"one TTL":                 {func(p *Policy) { p.TTL = TTLPolicy{Min: time.Second, Default: time.Second, Max: time.Second} }, ""},
		"lifetime as long as TTL": {func(p *Policy) { p.MaxLifetime = p.TTL.Max }, ""},
		"TTL zero":                {func(p *Policy) { p.TTL.Min = 0 }, "ttl.min"},
		"TTL negative":            {func(p *Policy) { p.TTL.Min = -time.Second }, "ttl.min"},
		"TTL too fine":            {func(p *Policy) { p.TTL.Min = 1500 * time.Microsecond }, "ttl.min"},
		"default below":           {func(p *Policy) { p.TTL.Default = p.TTL.Min - time.Millisecond }, "ttl.default"},
		"default above":           {func(p *Policy) { p.TTL.Default = p.TTL.Max + time.Millisecond }, "ttl.default"},
		"default missing":         {func(p *Policy) { p.TTL.Default = 0 }, "ttl.default"},
		"TTL endless":             {func(p *Policy) { p.TTL.Max = contract.MaxDuration + time.Millisecond }, "ttl.max"},
		"lifetime below TTL":      {func(p *Policy) { p.MaxLifetime = p.TTL.Max - time.Millisecond }, "max_lifetime"},
		"lifetime missing":        {func(p *Policy) { p.MaxLifetime = 0 }, "max_lifetime"},
		"lifetime endless":        {func(p *Policy) { p.MaxLifetime = contract.MaxDuration + time.Millisecond }, "max_lifetime"},
		"wait negative":           {func(p *Policy) { p.MaxWait = -1 }, "max_wait"},
		"history negative":        {func(p *Policy) { p.History.Keep = -1 }, "history.keep"},
		"history of one":          {func(p *Policy) { p.History.PerKey = 1 }, "history.per_key"},
		"history endless":         {func(p *Policy) { p.History.PerKey = contract.MaxHistoryRows + 1 }, "history.per_key"},
		"answers forgotten":       {func(p *Policy) { p.Idempotency.Keep = 10*time.Minute - time.Millisecond }, "idempotency.keep"},
		"quota negative":          {func(p *Policy) { p.Quotas.LeasesPerOwner = -1 }, "quotas.leases_per_owner"},
		"waiters negative":        {func(p *Policy) { p.Quotas.WaitersPerKey = -1 }, "quotas.waiters_per_key"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := DefaultPolicy()
			test.change(&p)
			err := p.Validate()
			if test.field == "" {
				if err != nil {
					t.Errorf("got %v, want none", err)
				}
				return
			}
			if e, ok := errors.AsType[*contract.Error](err); !ok || e.Code != contract.CodeInvalid || e.Field != test.field {
				t.Errorf("got %v, want field %s", err, test.field)
			}
		})
	}
}

func TestNew_namespaces(t *testing.T) {
	valid := Namespace{Name: "default", Backend: "local", Store: memstore.New(memstore.Options{}).Open(), Policy: DefaultPolicy()}
	with := func(change func(*Namespace)) []Namespace {
		ns := valid
		change(&ns)
		return []Namespace{ns}
	}
	for name, test := range map[string]struct {
		namespaces []Namespace
		want       string
	}{
		"none":       {nil, "no namespace"},
		"twice":      {[]Namespace{valid, valid}, "configured twice"},
		"no name":    {with(func(n *Namespace) { n.Name = "" }), "is required"},
		"control":    {with(func(n *Namespace) { n.Name = "a\n" }), "control"},
		"not NFC":    {with(func(n *Namespace) { n.Name = "e\u0301" }), "normal form"},
		"unknown":    {with(func(n *Namespace) { n.Name = "unknown" }), "stands for all unknown"},
		"no store":   {with(func(n *Namespace) { n.Store = nil }), "no backend"},
		"no backend": {with(func(n *Namespace) { n.Backend = "" }), "no backend"},
		"policy":     {with(func(n *Namespace) { n.Policy.TTL.Min = 0 }), "ttl.min"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Options{Auth: AuthNone(), Namespaces: test.namespaces})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
