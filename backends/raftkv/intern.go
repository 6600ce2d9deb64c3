package raftkv

import "hash/maphash"

// internSlots is how many texts an interner remembers at the most.
const internSlots = 1024

// interner lets equal texts share memory: a million leases have few tenants,
// actors, owners and instances. It is a cache of fixed size, so that a flood of
// different texts costs nothing but sharing. It is no part of the state: equal
// texts are equal wherever they are kept.
type interner struct {
	seed  maphash.Seed
	slots [internSlots]string
}

func newInterner() *interner { return &interner{seed: maphash.MakeSeed()} }

func (in *interner) text(s string) string {
	if s == "" {
		return ""
	}
	slot := &in.slots[maphash.String(in.seed, s)%internSlots]
	if *slot != s {
		*slot = s
	}
	return *slot
}

func (in *interner) key(k *keyParts) {
	for _, part := range [...]*string{&k.Tenant, &k.Program, &k.TargetType, &k.Actor, &k.Workflow, &k.Operation} {
		*part = in.text(*part)
	}
}

// acquire interns what acquires have in common. Ids of requests and jobs and
// targets differ each time and would only push out what does not.
func (in *interner) acquire(c *acquireCmd) {
	c.Namespace, c.Owner, c.Instance = in.text(c.Namespace), in.text(c.Owner), in.text(c.Instance)
	in.key(&c.Key)
	for i := range c.Metadata {
		c.Metadata[i] = in.text(c.Metadata[i])
	}
}
