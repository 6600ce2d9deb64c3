package contract

// TargetType says how a target's id is read, and so which spellings of it are
// the same target.
type TargetType string

// The target types. There are no others: a type that only some gateways knew
// would be normalised by some and taken as it is by the rest.
const (
	// TargetDomain is a DNS name: "Example.COM." and "example.com" are one.
	TargetDomain TargetType = "domain"
	// TargetIP is one IPv4 or IPv6 address, without a zone.
	TargetIP TargetType = "ip"
	// TargetCIDR is an address block; bits beyond the prefix are cleared.
	TargetCIDR TargetType = "cidr"
	// TargetURL is an absolute URL with a host.
	TargetURL TargetType = "url"
	// TargetEmail is one mailbox, local@domain.
	TargetEmail TargetType = "email"
	// TargetName is anything else; upper and lower case differ.
	TargetName TargetType = "name"
)

const targetTypeNames = "domain, ip, cidr, url, email or name"

// Target is what the work is about.
type Target struct {
	Type TargetType
	ID   string
}

// Key is the identity of mutually exclusive work. Tenant, Target and Actor are
// required. Only a key that Normalize returned may reach a store: two spellings
// of one target would otherwise be leased twice.
//
// Keys are comparable, and two normalised keys are equal exactly when their
// canonical texts are.
type Key struct {
	Tenant    string
	Program   string
	Target    Target
	Actor     string
	Workflow  string
	Operation string
}

const (
	maxKeyPart  = 256  // bytes of each part except the target id
	maxTargetID = 1024 // bytes

	// defaultPart stands for an optional part that was left out. It is a part
	// like any other: leaving it out and spelling it out are the same key.
	defaultPart = "default"
)

// Normalize returns the canonical form of k: each part is valid UTF-8 in NFC,
// see NormalizeText, the target is as NormalizeTarget says, and an empty
// Program, Workflow or Operation is "default". A part has at most 256 bytes and
// a target id 1,024, both before and after normalisation; nothing is ever
// shortened. Normalising a normalised key changes nothing.
//
// The error is an *Error with CodeInvalid whose Field is the one of the HTTP
// API: "key.tenant", "key.program", "key.target.type", "key.target.id",
// "key.actor", "key.workflow" or "key.operation".
func (k Key) Normalize() (Key, error) {
	tenant, err := NormalizeText("key.tenant", k.Tenant, maxKeyPart, true)
	if err != nil {
		return Key{}, err
	}
	program, err := normalizeOptional("key.program", k.Program)
	if err != nil {
		return Key{}, err
	}
	target, err := normalizeTarget("key.target.type", "key.target.id", k.Target)
	if err != nil {
		return Key{}, err
	}
	actor, err := NormalizeText("key.actor", k.Actor, maxKeyPart, true)
	if err != nil {
		return Key{}, err
	}
	workflow, err := normalizeOptional("key.workflow", k.Workflow)
	if err != nil {
		return Key{}, err
	}
	operation, err := normalizeOptional("key.operation", k.Operation)
	if err != nil {
		return Key{}, err
	}
	return Key{
		Tenant: tenant, Program: program, Target: target,
		Actor: actor, Workflow: workflow, Operation: operation,
	}, nil
}

func normalizeOptional(field, s string) (string, error) {
	if s == "" {
		return defaultPart, nil
	}
	return NormalizeText(field, s, maxKeyPart, true)
}

// NormalizeTarget returns the canonical form of a target that stands alone, as
// in a list filter, by the same rules as Key.Normalize: a filter that spelled
// its target otherwise would silently match nothing.
//
//   - domain: UTS #46 non-transitional and IDNA to ASCII, lower case, one
//     trailing dot dropped. Letters, digits and hyphens only, so no "_"; a name
//     that ends in a number is an IPv4 address in disguise and is refused.
//   - ip: RFC 5952; an IPv4-mapped IPv6 address is the IPv4 address.
//   - cidr: masked; an IPv4-mapped block of /96 or longer is the IPv4 block.
//   - url: scheme and host in lower case, host as domain or ip, default port
//     and fragment dropped, user information refused, escapes of unreserved
//     characters decoded once and the rest in upper case, characters that a URL
//     cannot hold escaped as the UTF-8 of their NFC form, dot segments removed,
//     empty path "/". The query keeps its order, and an empty query is not the
//     same as none. Escaped bytes are bytes: "e%CC%81" is not "%C3%A9".
//   - email: the domain as domain; the local part is a dot-atom (RFC 5321, RFC
//     6531) of at most 64 bytes and keeps its case. Quoted local parts and
//     address literals are refused.
//   - name: as NormalizeText, case kept.
//
// The error is an *Error with CodeInvalid and Field "target_type" or "target".
func NormalizeTarget(t Target) (Target, error) {
	return normalizeTarget("target_type", "target", t)
}

func normalizeTarget(typeField, idField string, t Target) (Target, error) {
	var (
		rule      = visibleText
		normalize func(string) (string, error)
	)
	switch t.Type {
	case TargetDomain:
		rule, normalize = hostText, normalizeDomain
	case TargetIP:
		normalize = normalizeIP
	case TargetCIDR:
		normalize = normalizeCIDR
	case TargetURL:
		rule, normalize = hostText, normalizeURL
	case TargetEmail:
		rule, normalize = hostText, normalizeEmail
	case TargetName:
	case "":
		return Target{}, Invalid(typeField, "is required; use %s", targetTypeNames)
	default:
		return Target{}, Invalid(typeField, "is not a target type; use %s", targetTypeNames)
	}
	if t.ID == "" {
		return Target{}, Invalid(idField, "is required")
	}
	id, err := normalizeText(t.ID, maxTargetID, rule)
	if err == nil && normalize != nil {
		id, err = normalize(id)
	}
	if err != nil {
		return Target{}, Invalid(idField, "%v", err)
	}
	// Escaping makes a URL up to three times as long.
	if len(id) > maxTargetID {
		return Target{}, Invalid(idField, "has more than %d bytes once normalised", maxTargetID)
	}
	return Target{Type: t.Type, ID: id}, nil
}
