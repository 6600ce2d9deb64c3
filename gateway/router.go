package gateway

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"leased/contract"
)

// Namespace is one namespace as the caller of New configures it.
type Namespace struct {
	Name    string
	Backend string // the backend's name in the configuration
	// Store serves the namespace. Several namespaces may share one; closing it
	// is the caller's.
	Store  contract.Store
	Policy Policy
}

// namespace is a Namespace with what is worked out once.
type namespace struct {
	Namespace
	retention contract.Retention
	limits    contract.Limits
	metrics   *namespaceMetrics
	health    *probe
	// overdue counts the leases that had ended before the gateway started and were
	// recorded since.
	overdue atomic.Int64
}

// router finds the namespace that a request names. It does not change while the
// gateway runs.
type router struct {
	byName map[string]*namespace
	sorted []*namespace
	// unknown stands for every namespace that is not configured: it has metrics
	// and nothing else, so that a caller's text never becomes a label.
	unknown *namespace
}

const unknownNamespace = "unknown"

// ValidateNamespaceName returns what is wrong with the name of a namespace, in
// words that follow the name.
func ValidateNamespaceName(name string) error {
	normal, err := contract.NormalizeText("name", name, contract.MaxNamespace, true)
	if e, ok := errors.AsType[*contract.Error](err); ok {
		return errors.New(e.Detail)
	}
	switch {
	case err != nil:
		return err
	case normal != name:
		return errors.New("is not in Unicode normal form C")
	case name == unknownNamespace:
		return errors.New("stands for all unknown namespaces in the metrics; choose another name")
	}
	return nil
}

func newRouter(configured []Namespace, m *metrics) (*router, error) {
	if len(configured) == 0 {
		return nil, errors.New("gateway: no namespace is configured")
	}
	r := &router{
		byName:  make(map[string]*namespace, len(configured)),
		unknown: &namespace{Namespace: Namespace{Name: unknownNamespace}, metrics: m.namespace(unknownNamespace)},
	}
	for _, c := range configured {
		name := c.Name
		if err := ValidateNamespaceName(name); err != nil {
			return nil, fmt.Errorf("gateway: namespace %q %w", name, err)
		}
		switch {
		case r.byName[name] != nil:
			return nil, fmt.Errorf("gateway: namespace %q is configured twice", name)
		case c.Backend == "" || c.Store == nil:
			return nil, fmt.Errorf("gateway: namespace %q has no backend", name)
		}
		if err := c.Policy.Validate(); err != nil {
			return nil, fmt.Errorf("gateway: namespace %q: %w", name, err)
		}
		r.byName[name] = &namespace{
			Namespace: c, retention: c.Policy.retention(), limits: c.Policy.limits(),
			metrics: m.namespace(name), health: newProbe(name, c.Store),
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.byName)) {
		r.sorted = append(r.sorted, r.byName[name])
	}
	return r, nil
}
