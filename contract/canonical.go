package contract

import (
	"net/url"
	"strings"
)

// canonicalVersion leads every canonical text. Whatever changes the canonical
// text of any key, the rules of normalisation included, needs a new version:
// key ids are stored.
const canonicalVersion = "v1"

// canonicalStack is the room for a canonical text on the stack; longer ones are
// rare and cost an allocation.
const canonicalStack = 320

// Canonical returns the versioned text of a normalised key in printable ASCII:
//
//	v1/acme/recon/domain:example.com/crawler/default/scan
//
// Every byte but A–Z a–z 0–9 - . _ ~ @ is percent-encoded in upper case, so
// that "/" and ":" only ever separate and different keys have different texts:
// (`a`, `b:c`) and (`a:b`, `c`) do not meet. The text of a key that Normalize
// did not return means nothing. It is not a path: "." and ".." may be parts.
func (k Key) Canonical() string {
	return string(k.appendCanonical(make([]byte, 0, canonicalStack)))
}

func (k Key) appendCanonical(b []byte) []byte {
	b = append(b, canonicalVersion...)
	b = appendPart(append(b, '/'), k.Tenant)
	b = appendPart(append(b, '/'), k.Program)
	b = appendPart(append(b, '/'), string(k.Target.Type))
	b = appendPart(append(b, ':'), k.Target.ID)
	b = appendPart(append(b, '/'), k.Actor)
	b = appendPart(append(b, '/'), k.Workflow)
	return appendPart(append(b, '/'), k.Operation)
}

// appendPart copies runs of plain bytes, as most parts are one such run.
func appendPart(b []byte, s string) []byte {
	start := 0
	for i := range len(s) {
		if c := s[i]; !isUnreserved(c) && c != '@' {
			b = append(b, s[start:i]...)
			b = appendEscape(b, c)
			start = i + 1
		}
	}
	return append(b, s[start:]...)
}

// ParseCanonical returns the normalised key whose canonical text is s. It is
// the strict inverse of Canonical: a text that Canonical would not have
// produced, however close, is an *Error with CodeInvalid and Field "canonical".
func ParseCanonical(s string) (Key, error) {
	rest, ok := strings.CutPrefix(s, canonicalVersion+"/")
	if !ok {
		return Key{}, Invalid("canonical", "is not canonical text of version %s", canonicalVersion)
	}
	parts := strings.SplitN(rest, "/", 7)
	if len(parts) != 6 {
		return Key{}, errNotCanonical()
	}
	// Cut before decoding: a colon of the id is encoded, the separator is not.
	targetType, id, _ := strings.Cut(parts[2], ":")
	texts := [...]string{parts[0], parts[1], id, parts[3], parts[4], parts[5]}
	for i, text := range texts {
		decoded, err := url.PathUnescape(text)
		if err != nil {
			return Key{}, errNotCanonical()
		}
		texts[i] = decoded
	}
	k, err := Key{
		Tenant: texts[0], Program: texts[1],
		Target: Target{Type: TargetType(targetType), ID: texts[2]},
		Actor:  texts[3], Workflow: texts[4], Operation: texts[5],
	}.Normalize()
	// This refuses keys that were not normalised as well as other spellings of
	// a text, since decoding above is lenient.
	if err != nil || k.Canonical() != s {
		return Key{}, errNotCanonical()
	}
	return k, nil
}

func errNotCanonical() error {
	return Invalid("canonical", "is not the canonical text of a key")
}
